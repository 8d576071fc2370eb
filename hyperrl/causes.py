"""Why episodes came out as they did: one cause for each, and the counts of many.

A reward of 0 has many reasons, and they call for different remedies. Here every episode has exactly one:

===================  ==================================================================================
``excluded``         a reward said that the episode does not count (``Excluded``)
``failed``           the episode could not be played; its ``failure`` says why
``tool_failure``     the last tool call raised or ran out of time, and the episode is not right
``timeout``          a reward ran out of time, or the episode did and is not right
``judge_failure``    a judge or a reward model did not answer
``unscored``         no reward, for another reason
``right``            the reward reaches the threshold of success
``unparsed``         no answer could be read, as a reward says (``Score(0, cause="unparsed")``)
``wrong``            none of these: an answer was read, and it is not right
===================  ==================================================================================

The cause of a counted score (``Score(0, cause=...)``) decides where it is ``wrong``, ``unparsed``,
``tool_failure`` or ``timeout``; the last such term of the episode wins. Any other cause is the author's own
word: it is kept in the term, and the episode is ``wrong``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hyperrl.trajectory import RewardTerm, Trajectory, TruncationReason

__all__ = ["CAUSES", "UNPARSED", "cause_of", "count_causes"]

CAUSES = (
    "right",
    "wrong",
    "unparsed",
    "tool_failure",
    "timeout",
    "judge_failure",
    "unscored",
    "failed",
    "excluded",
)
"""Every cause, in the order in which reports list them."""

UNPARSED = "unparsed"
"""Cause of a score that means "no answer could be read"."""

_OF_KIND = {
    "judge_failure": "judge_failure",
    "reward_timeout": "timeout",
    "scorer_timeout": "timeout",
    "tool_failure": "tool_failure",
    "tool_timeout": "tool_failure",
}
_OF_SCORE = frozenset({"wrong", "unparsed", "tool_failure", "timeout"})
_BROKEN_TOOL = frozenset({"error", "timeout"})


def cause_of(trajectory: Trajectory, *, success: float = 1.0) -> str:
    """Return why an episode came out as it did, one of ``CAUSES``.

    Args:
        trajectory: the episode.
        success: the least reward of an episode that is right.
    """
    if trajectory.excluded is not None:
        return "excluded"
    if trajectory.failure is not None and trajectory.failure.exclude:
        return _OF_KIND.get(trajectory.failure.kind, "failed")
    if trajectory.reward is None:
        return _cause_of_silence(trajectory)
    if trajectory.reward >= success:
        return "right"
    return _cause_of_loss(trajectory)


def count_causes(trajectories: Iterable[Trajectory], *, success: float = 1.0) -> Mapping[str, int]:
    """Return how many episodes have each cause, in the order of ``CAUSES``; those of none are left out.

    Args:
        trajectories: the episodes.
        success: the least reward of an episode that is right.
    """
    found = Counter(cause_of(trajectory, success=success) for trajectory in trajectories)
    return {cause: found[cause] for cause in CAUSES if found[cause]}


def _counted(trajectory: Trajectory) -> list[RewardTerm]:
    return [term for term in trajectory.reward_terms if term.weight != 0]


def _cause_of_silence(trajectory: Trajectory) -> str:
    """Why an episode has no reward; the cause with a name goes before one without."""
    kinds = [term.error.kind for term in _counted(trajectory) if term.error is not None]
    return next((_OF_KIND[kind] for kind in kinds if kind in _OF_KIND), "unscored")


def _cause_of_loss(trajectory: Trajectory) -> str:
    if trajectory.truncation_reason is TruncationReason.WALL_CLOCK:
        return "timeout"
    said = [term.cause for term in _counted(trajectory) if term.cause in _OF_SCORE]
    if said:
        return str(said[-1])
    calls = trajectory.tool_records
    return "tool_failure" if calls and calls[-1].status in _BROKEN_TOOL else "wrong"
