"""Gold conversations: the environment's own answers, played and recorded like any episode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs.core import TextEnv
from hyperrl.envs.gold_actions import gold_actions
from hyperrl.errors import ConfigError
from hyperrl.sampling import RequestKey
from hyperrl.trajectory import NOT_SAMPLED, GroupId, Trajectory, Turn

if TYPE_CHECKING:
    from hyperrl.agents.rendering import Renderer

__all__ = ["GoldScript", "as_gold", "make_gold_sampler"]


class GoldScript:
    """Says the gold actions of the tasks that an environment plays.

    Args:
        env: an environment of its own, reset to each task to ask for its gold.
        picks: task index by group id.
        seed_of: the seed that the episodes of a group are reset with.
    """

    def __init__(self, env: TextEnv, picks: dict[GroupId, int], seed_of: Callable[[GroupId], int]) -> None:
        self._env = env
        self._picks = picks
        self._seed_of = seed_of
        self._known: dict[GroupId, Sequence[str]] = {}

    def __call__(self, prompt: str, key: RequestKey) -> str:  # noqa: ARG002 - the gold knows the task
        """Return the gold action of a request.

        Raises:
            ConfigError: the environment has no gold answer for the task, or fewer actions than asked for.
        """
        actions = self.actions(key.group_id)
        if key.ordinal >= len(actions):
            raise ConfigError(
                f"the gold of task {self._picks[key.group_id]} has {len(actions)} actions, and the"
                " environment goes on after them; mend its gold()"
            )
        return actions[key.ordinal]

    def actions(self, group_id: GroupId) -> Sequence[str]:
        """Return the gold actions of a group's task. Raises ConfigError where it has none."""
        known = self._known.get(group_id)
        if known is None:
            known = self._known[group_id] = self._ask(group_id)
        return known

    def _ask(self, group_id: GroupId) -> Sequence[str]:
        index = self._picks[group_id]
        self._env.reset(seed=self._seed_of(group_id), options={"task": index})
        actions = gold_actions(self._env)
        if actions is None:
            raise ConfigError(f"{type(self._env).__name__} has no gold answer for its task {index}")
        return actions


def make_gold_sampler(
    renderer: Renderer, env: TextEnv, picks: dict[GroupId, int], *, seed_of: Callable[[GroupId], int]
) -> ScriptedSampler:
    """Return a sampler that plays the gold of every picked task; arguments as for ``GoldScript``."""
    return ScriptedSampler(renderer, GoldScript(env, picks, seed_of))


def as_gold(trajectory: Trajectory) -> Trajectory:
    """Return the same episode with actions that no policy sampled, to be learned from as text."""
    return dataclasses.replace(trajectory, turns=tuple(_gold_turn(turn) for turn in trajectory.turns))


def _gold_turn(turn: Turn) -> Turn:
    versions = np.full(len(turn.action_ids), NOT_SAMPLED, np.int32)
    return dataclasses.replace(turn, behavior_logprobs=None, policy_versions=versions)
