"""A run's own held-out evaluations: what one policy version reaches, and what was gained between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hyperrl.train.estimates import Estimate, compute_mean
from hyperrl.train.figures import EvalFigures

__all__ = ["Evaluation", "compare_success"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One held-out evaluation of one policy version, sampled and greedy.

    Attributes:
        version: the policy version that played.
        sampled: ``evaluation.samples`` episodes of each task, drawn with the settings of ``evaluation``.
        greedy: one episode of each task, always the most likely token.
    """

    version: int
    sampled: EvalFigures
    greedy: EvalFigures

    def metrics(self) -> dict[str, float]:
        """Return the metrics of ``train/metrics.py`` that this evaluation gives."""
        sampled, greedy = self.sampled, self.greedy
        values: dict[str, float] = {
            "validation/sampled_success": sampled.success.mean,
            "validation/sampled_success_low": sampled.success.low,
            "validation/sampled_success_high": sampled.success.high,
            "validation/sampled_reward_mean": sampled.reward.mean,
            "validation/greedy_success": greedy.success.mean,
            "validation/greedy_reward_mean": greedy.reward.mean,
            "validation/tasks": sampled.success.tasks,
            "validation/episodes": sampled.episodes,
            "validation/unscored": sampled.episodes - sampled.scored + greedy.episodes - greedy.scored,
            "policy/version": self.version,
        }
        for k, estimate in sampled.pass_at.items():
            values[f"validation/pass_at/{k}"] = estimate.mean
            values[f"validation/pass_at_low/{k}"] = estimate.low
            values[f"validation/pass_at_high/{k}"] = estimate.high
        values |= _counts("validation/causes", sampled.causes)
        values |= _counts("validation/tool_calls", sampled.tool_calls)
        return {name: float(value) for name, value in values.items()}


def compare_success(before: EvalFigures, after: EvalFigures) -> Estimate:
    """Return how much more of each task succeeds after than before, as a mean over tasks.

    Both have played the same tasks, so the difference is taken task by task: its interval leaves out what
    makes one task harder than another (Miller 2024, "Adding Error Bars to Evals", section 4.2). Tasks that
    have a scored sample on one side only are left out.
    """
    both = before.success_by_task.keys() & after.success_by_task.keys()
    return compute_mean([after.success_by_task[task] - before.success_by_task[task] for task in sorted(both)])


def _counts(name: str, counts: Mapping[str, int]) -> dict[str, float]:
    return {f"{name}/{kind}": count for kind, count in counts.items()}
