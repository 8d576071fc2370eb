"""Agents: playing episodes, an environment and a policy, into trajectories."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperrl.agents.base import AgentProgram, EpisodeContext, FunctionProgram, load_program
    from hyperrl.agents.byte_renderer import ByteRenderer
    from hyperrl.agents.endpoint import EndpointPolicy
    from hyperrl.agents.env_pool import EnvPool
    from hyperrl.agents.episode import EpisodePlan, RolloutSettings
    from hyperrl.agents.limits import LimitReached, RolloutLimits
    from hyperrl.agents.recorder import PolicySeat, Recorder, RemoteSeat
    from hyperrl.agents.rollout import play_episode, play_groups
    from hyperrl.agents.scorers import RewardScorer, Scorer, load_scorer
    from hyperrl.agents.scripted import FunctionPolicy, ScriptedPolicy, ScriptedSampler
    from hyperrl.agents.turn_loop import TurnLoop

__all__ = [
    "AgentProgram",
    "ByteRenderer",
    "EndpointPolicy",
    "EnvPool",
    "EpisodeContext",
    "EpisodePlan",
    "FunctionPolicy",
    "FunctionProgram",
    "LimitReached",
    "PolicySeat",
    "Recorder",
    "RemoteSeat",
    "RewardScorer",
    "RolloutLimits",
    "RolloutSettings",
    "Scorer",
    "ScriptedPolicy",
    "ScriptedSampler",
    "TurnLoop",
    "load_program",
    "load_scorer",
    "play_episode",
    "play_groups",
]

_HOMES = {
    "base": ("AgentProgram", "EpisodeContext", "FunctionProgram", "load_program"),
    "byte_renderer": ("ByteRenderer",),
    "endpoint": ("EndpointPolicy",),
    "env_pool": ("EnvPool",),
    "episode": ("EpisodePlan", "RolloutSettings"),
    "limits": ("LimitReached", "RolloutLimits"),
    "recorder": ("PolicySeat", "Recorder", "RemoteSeat"),
    "rollout": ("play_episode", "play_groups"),
    "scorers": ("RewardScorer", "Scorer", "load_scorer"),
    "scripted": ("FunctionPolicy", "ScriptedPolicy", "ScriptedSampler"),
    "turn_loop": ("TurnLoop",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used: the renderers need an extra."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
