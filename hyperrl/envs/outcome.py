"""What came of a reset or a step, for those who drive an environment without gymnasium's face."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from hyperrl.envs.messages import Observation
from hyperrl.trajectory import EXCLUDED, RewardTerm, ToolRecord

__all__ = ["Outcome"]


class Outcome(NamedTuple):
    """What came of a reset or a step.

    Attributes:
        kind: ``reset``; ``tools`` (calls were run, their results are the observation); ``reply``
            (the environment answered); ``final`` (the episode ended).
        observation: what is new to read; empty, without messages, where nothing is.
        task_id: the task that is played.
        terminated: the task ended.
        reward_terms: the terms that this step earned; their ``turn`` is for the recorder to fill in.
        tool_records: the tool calls of the action, in order.
    """

    kind: Literal["reset", "tools", "reply", "final"]
    observation: Observation
    task_id: str
    terminated: bool = False
    reward_terms: tuple[RewardTerm, ...] = ()
    tool_records: tuple[ToolRecord, ...] = ()

    @property
    def unscored(self) -> dict[str, str]:
        """Why terms that count, or exclude the episode, have no score, by name; empty where all have one."""
        if self.terminated and not self.reward_terms:
            return {"": "the environment has no reward of a single episode"}
        return {
            term.name: f"{term.error.kind}: {term.error.reason}" if term.error else "unscored"
            for term in self.reward_terms
            if term.score is None and (term.weight != 0 or (term.error and term.error.kind == EXCLUDED))
        }

    @property
    def reward(self) -> float:
        """Weighted sum of the terms of this step; NaN while one that counts is unscored."""
        if self.unscored:
            return math.nan
        return math.fsum(t.score * t.weight for t in self.reward_terms if t.score is not None)

    @property
    def info(self) -> dict[str, Any]:
        """A new dictionary at each call, the same for the same episode: no clocks, no identities.

        ``task_id`` after a reset; ``tool_calls`` (name and status of each) where there were some;
        ``reward_terms`` (scores by name), ``causes`` (of scores, by name) and ``unscored`` (reasons by
        name) where there are some.
        """
        info: dict[str, Any] = {"task_id": self.task_id} if self.kind == "reset" else {}
        if self.tool_records:
            info["tool_calls"] = tuple((record.name, record.status) for record in self.tool_records)
        if self.reward_terms:
            info["reward_terms"] = {t.name: t.score for t in self.reward_terms if t.score is not None}
        if causes := {t.name: t.cause for t in self.reward_terms if t.cause is not None}:
            info["causes"] = causes
        if unscored := self.unscored:
            info["unscored"] = unscored
        return info
