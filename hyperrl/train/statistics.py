"""What was played, in numbers: lengths, failures, tool calls. Knows no algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hyperrl.causes import count_causes
from hyperrl.train.metrics import summarise
from hyperrl.trajectory import Group, StopReason, Trajectory, Turn

__all__ = ["describe_outcomes", "describe_play"]


def describe_play(groups: Sequence[Group]) -> dict[str, float]:
    """Return metrics of every episode that was played, whether it is learned from or not."""
    episodes = [trajectory for group in groups for trajectory in group]
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        return {"episodes/failed": float(sum(e.failure is not None for e in episodes))}
    return {
        "episodes/failed": float(sum(e.failure is not None for e in episodes)),
        "episodes/truncated_fraction": sum(e.truncated for e in episodes) / len(episodes),
        "response_length/clip_ratio": sum(map(_is_clipped, episodes)) / len(episodes),
        "rollout/new_root_rate": sum(map(_extra_roots, episodes)) / len(turns),
        **_delivered(turns),
        "perf/total_num_tokens": float(sum(len(t.context_ids) + len(t.action_ids) for t in turns)),
        **_tool_calls(episodes),
        **summarise("episodes/turns", [len(e.turns) for e in episodes]),
        **summarise("prompt_length", [len(e.turns[0].context_ids) for e in episodes if e.turns]),
        **summarise("response_length", [_sampled_tokens(e) for e in episodes]),
    }


def describe_outcomes(groups: Sequence[Group], *, success: float) -> dict[str, float]:
    """Return how many episodes have each cause of :mod:`hyperrl.causes`, as metrics.

    Args:
        groups: every episode that was played.
        success: the least reward of an episode that is right.
    """
    counts = count_causes((trajectory for group in groups for trajectory in group), success=success)
    return {f"episodes/causes/{cause}": float(count) for cause, count in counts.items()}


def _is_clipped(trajectory: Trajectory) -> bool:
    return any(turn.sampled and turn.stop_reason is StopReason.LENGTH for turn in trajectory.turns)


def _extra_roots(trajectory: Trajectory) -> int:
    """Roots after the first of each seat: requests that rewrote history."""
    seats = [turn.policy for turn in trajectory.turns if turn.parent is None]
    return len(seats) - len(set(seats))


def _delivered(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the share of the sampled tokens that stands in turns which may be learned from."""
    sampled = [turn for turn in turns if turn.sampled]
    tokens = sum(len(turn.action_ids) for turn in sampled)
    if not tokens:
        return {}
    learned = sum(len(turn.action_ids) for turn in sampled if turn.use == "train")
    return {"rollout/delivered_fraction": learned / tokens}


def _sampled_tokens(trajectory: Trajectory) -> int:
    return sum(len(turn.action_ids) for turn in trajectory.turns if turn.sampled)


def _tool_calls(episodes: Sequence[Trajectory]) -> dict[str, float]:
    records = (record for episode in episodes for event in episode.events for record in event.tool_calls)
    statuses = Counter(record.status for record in records)
    return {f"rollout/tool_calls/{status}": float(count) for status, count in sorted(statuses.items())}
