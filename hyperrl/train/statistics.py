"""What was played, in numbers: lengths, failures, tool calls. Knows no algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hyperrl.causes import count_causes
from hyperrl.columns import TurnColumns
from hyperrl.train.metrics import summarise
from hyperrl.trajectory import Group, StopReason, Trajectory

__all__ = ["describe_outcomes", "describe_play"]


def describe_play(groups: Sequence[Group]) -> dict[str, float]:
    """Return metrics of every episode that was played, whether it is learned from or not."""
    episodes = [trajectory for group in groups for trajectory in group]
    columns = [episode.columns for episode in episodes]
    turns = list(map(len, columns))
    if not any(turns):
        return {"episodes/failed": float(sum(e.failure is not None for e in episodes))}
    return {
        "episodes/failed": float(sum(e.failure is not None for e in episodes)),
        "episodes/truncated_fraction": sum(e.truncated for e in episodes) / len(episodes),
        "response_length/clip_ratio": sum(map(_is_clipped, columns)) / len(episodes),
        "rollout/new_root_rate": sum(map(_extra_roots, columns)) / sum(turns),
        **_delivered(columns),
        "perf/total_num_tokens": float(sum(c.starts[-1] for c in columns)),
        **_tool_calls(episodes),
        **summarise("episodes/turns", turns),
        **summarise("prompt_length", [c.context_lengths[0] for c in columns if len(c)]),
        **summarise("response_length", [len(c.logprobs) for c in columns]),
    }


def describe_outcomes(groups: Sequence[Group], *, success: float) -> dict[str, float]:
    """Return how many episodes have each cause of :mod:`hyperrl.causes`, as metrics.

    Args:
        groups: every episode that was played.
        success: the least reward of an episode that is right.
    """
    counts = count_causes((trajectory for group in groups for trajectory in group), success=success)
    return {f"episodes/causes/{cause}": float(count) for cause, count in counts.items()}


def _is_clipped(columns: TurnColumns) -> bool:
    facts = zip(columns.sampled, columns.stop_reasons, strict=True)
    return any(sampled and reason is StopReason.LENGTH for sampled, reason in facts)


def _extra_roots(columns: TurnColumns) -> int:
    """Roots after the first of each seat: requests that rewrote history."""
    facts = zip(columns.policies, columns.parents, strict=True)
    seats = [seat for seat, parent in facts if parent is None]
    return len(seats) - len(set(seats))


def _delivered(columns: Sequence[TurnColumns]) -> dict[str, float]:
    """Return the share of the sampled tokens that stands in turns which may be learned from."""
    tokens = sum(len(c.logprobs) for c in columns)
    if not tokens:
        return {}
    facts = (fact for c in columns for fact in zip(c.uses, c.sampled, c.action_lengths, strict=True))
    learned = sum(length for use, sampled, length in facts if sampled and use == "train")
    return {"rollout/delivered_fraction": learned / tokens}


def _tool_calls(episodes: Sequence[Trajectory]) -> dict[str, float]:
    records = (record for episode in episodes for record in episode.tool_records)
    statuses = Counter(record.status for record in records)
    return {f"rollout/tool_calls/{status}": float(count) for status, count in sorted(statuses.items())}
