"""hyperrl: environments, agents and training for LLM agents, token-first.

Importing it registers its environments with gymnasium and loads little else; every public name is
imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hyperrl.envs.registration import register_all

if TYPE_CHECKING:
    from hyperrl.envs import (
        Action,
        Excluded,
        JsonlTaskset,
        Observation,
        Outcome,
        ParquetTaskset,
        ProceduralTaskset,
        Score,
        Task,
        Taskset,
        TextEnv,
        Unicode,
        Unscored,
        env_ids,
        make_env,
        reward,
        tool,
    )
    from hyperrl.errors import HyperrlError
    from hyperrl.trajectory import Group, RewardTerm, StopReason, Trajectory, Turn

__all__ = [
    "Action",
    "Excluded",
    "Group",
    "HyperrlError",
    "JsonlTaskset",
    "Observation",
    "Outcome",
    "ParquetTaskset",
    "ProceduralTaskset",
    "RewardTerm",
    "Score",
    "StopReason",
    "Task",
    "Taskset",
    "TextEnv",
    "Trajectory",
    "Turn",
    "Unicode",
    "Unscored",
    "__version__",
    "env_ids",
    "make_env",
    "reward",
    "tool",
]

__version__ = "0.1.0.dev0"

_HOME_OF = {
    **dict.fromkeys(("Group", "RewardTerm", "StopReason", "Trajectory", "Turn"), "hyperrl.trajectory"),
    "HyperrlError": "hyperrl.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF.get(name, "hyperrl.envs")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_all()
