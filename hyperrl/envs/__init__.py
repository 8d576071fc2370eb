"""Environments: gymnasium environments over text, with tools and rewards in plain Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperrl.envs.checker import check_env_contract
    from hyperrl.envs.core import TextEnv
    from hyperrl.envs.endpoint import ChatAnswer, Endpoint
    from hyperrl.envs.judge import Judge, RewardModel
    from hyperrl.envs.mcp_server import McpServer
    from hyperrl.envs.messages import Action, Observation
    from hyperrl.envs.outcome import Outcome
    from hyperrl.envs.registration import env_ids, make_env
    from hyperrl.envs.rewards import Excluded, Score, Unscored, reward
    from hyperrl.envs.simulated_user import ModelUser, ScriptedUser
    from hyperrl.envs.spaces import Unicode
    from hyperrl.envs.taskset import (
        JsonlTaskset,
        ListTaskset,
        ParquetTaskset,
        ProceduralTaskset,
        Task,
        Taskset,
    )
    from hyperrl.envs.tools import tool

__all__ = [
    "Action",
    "ChatAnswer",
    "Endpoint",
    "Excluded",
    "JsonlTaskset",
    "Judge",
    "ListTaskset",
    "McpServer",
    "ModelUser",
    "Observation",
    "Outcome",
    "ParquetTaskset",
    "ProceduralTaskset",
    "RewardModel",
    "Score",
    "ScriptedUser",
    "Task",
    "Taskset",
    "TextEnv",
    "Unicode",
    "Unscored",
    "check_env_contract",
    "env_ids",
    "make_env",
    "reward",
    "tool",
]

_HOMES = {
    "checker": ("check_env_contract",),
    "core": ("TextEnv",),
    "endpoint": ("ChatAnswer", "Endpoint"),
    "judge": ("Judge", "RewardModel"),
    "mcp_server": ("McpServer",),
    "messages": ("Action", "Observation"),
    "outcome": ("Outcome",),
    "registration": ("env_ids", "make_env"),
    "rewards": ("Excluded", "Score", "Unscored", "reward"),
    "simulated_user": ("ModelUser", "ScriptedUser"),
    "spaces": ("Unicode",),
    "taskset": ("JsonlTaskset", "ListTaskset", "ParquetTaskset", "ProceduralTaskset", "Task", "Taskset"),
    "tools": ("tool",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used, so that importing hyperrl is cheap."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
