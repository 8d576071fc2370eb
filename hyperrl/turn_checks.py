"""What holds for a trajectory and for each of its turns, with an error that names the turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperrl.columns import NOT_SAMPLED, columns_of, places, surely_valid
from hyperrl.errors import TrajectoryError

__all__ = ["check_outcome", "check_references", "check_turns"]


def check_turns(turns: Sequence[Any]) -> None:
    """Check the invariants of :class:`hyperrl.trajectory.Turn`, whose arrays are sealed.

    Raises:
        TrajectoryError: one does not hold.
    """
    if turns and all(map(_even, turns)) and surely_valid(columns_of(turns)):
        return
    for index, turn in enumerate(turns):
        _check_turn(turn, f"turn {index}")
        _check_lineage(turn, index, turns)


def _even(turn: Any) -> bool:
    logprobs, count = turn.behavior_logprobs, len(turn.action_ids)
    return logprobs is not None and len(logprobs) == count == len(turn.policy_versions)


def _check_turn(turn: Any, where: str) -> None:
    length = len(turn.action_ids)
    if len(turn.policy_versions) != length:
        raise TrajectoryError(f"{where}: {length} action_ids but {len(turn.policy_versions)} policy_versions")
    if turn.behavior_logprobs is None:
        if np.any(turn.policy_versions != NOT_SAMPLED):
            raise TrajectoryError(f"{where}: policy versions without behavior_logprobs")
    else:
        _check_sampled(turn, length, where)
    if any(ids.size and ids.min() < 0 for ids in (turn.context_ids, turn.action_ids)):
        raise TrajectoryError(f"{where}: token ids must not be negative")
    if not (turn.temperature >= 0 and math.isfinite(turn.temperature)):
        raise TrajectoryError(f"{where}: temperature must be finite and >= 0, got {turn.temperature}")


def _check_sampled(turn: Any, length: int, where: str) -> None:
    logprobs = turn.behavior_logprobs
    if len(logprobs) != length:
        raise TrajectoryError(f"{where}: {length} action_ids but {len(logprobs)} behavior_logprobs")
    if turn.use == "context":
        raise TrajectoryError(f"{where}: a context turn was not sampled and has no behavior_logprobs")
    if length and turn.policy_versions.min() < 0:
        raise TrajectoryError(f"{where}: every sampled token needs the version that drew it")
    if length and not (np.isfinite(logprobs).all() and logprobs.max() <= 0):
        raise TrajectoryError(f"{where}: behavior_logprobs must be finite and at most 0")


def _check_lineage(turn: Any, index: int, before: Sequence[Any]) -> None:
    """Parents precede children; versions never decrease along a path of one policy."""
    parent = turn.parent
    if parent is not None and not 0 <= parent < index:
        raise TrajectoryError(f"turn {index}: parent {parent} must be an earlier turn")
    versions = turn.policy_versions
    if not turn.sampled or not len(versions):
        return
    if len(versions) > 1 and np.any(versions[1:] < versions[:-1]):
        raise TrajectoryError(f"turn {index}: policy versions decrease within the action")
    while parent is not None:
        other = before[parent]
        if other.sampled and other.policy == turn.policy and len(other.policy_versions):
            if other.policy_versions[-1] > versions[0]:
                raise TrajectoryError(
                    f"turn {index}: version {versions[0]} after version"
                    f" {other.policy_versions[-1]} of its ancestor {parent}"
                )
            return
        parent = other.parent


def check_outcome(trajectory: Any) -> None:
    """Check how an episode ended, its place in the group, and its reward terms. Raises TrajectoryError."""
    if trajectory.truncated != (trajectory.truncation_reason is not None):
        raise TrajectoryError("truncated and truncation_reason must be given together")
    if trajectory.sample_index < 0:
        raise TrajectoryError(f"sample_index must be >= 0, got {trajectory.sample_index}")
    for term in trajectory.reward_terms:
        score = term.score
        if score is None and term.error is None:
            raise TrajectoryError(f"reward term {term.name!r} is unscored without an error")
        if score is not None and not math.isfinite(score):
            raise TrajectoryError(f"reward term {term.name!r} has the score {score}")
        if not math.isfinite(term.weight):
            raise TrajectoryError(f"reward term {term.name!r} has the weight {term.weight}")


def check_references(count: int, rewarded: Sequence[int | None], read: Sequence[int | None]) -> None:
    """Check that reward terms and events name one of the ``count`` turns. Raises TrajectoryError."""
    every = places(count)
    named = rewarded if read == every else [*rewarded, *read]
    if {None, *every}.issuperset(named):
        return
    for what, named in (("reward term", rewarded), ("event", read)):
        for turn in named:
            if turn is not None and not 0 <= turn < count:
                raise TrajectoryError(f"{what} names turn {turn} of {count}")
