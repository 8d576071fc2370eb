"""Held-out success from played trajectories, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hyperrl.causes import count_causes
from hyperrl.train.estimates import wilson_interval
from hyperrl.trajectory import Trajectory

__all__ = ["Evaluation", "SuccessRate", "compute_success_rate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessRate:
    """The share of episodes whose reward reaches the threshold.

    Attributes:
        successes: episodes that reached it.
        scored: episodes with a reward; the share is over these.
        unscored: episodes without one, counted but never taken for failures.
        mean_reward: mean reward of the scored episodes; NaN if there is none.
        causes: all episodes by why they came out as they did, as in :mod:`hyperrl.causes`.
    """

    successes: int
    scored: int
    unscored: int
    mean_reward: float
    causes: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """``successes / scored``; NaN where nothing was scored."""
        return self.successes / self.scored if self.scored else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the rate (Wilson, 1927); NaN where nothing was scored."""
        return wilson_interval(self.rate, self.scored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One held-out evaluation of one policy version, sampled and greedy."""

    version: int
    sampled: SuccessRate
    greedy: SuccessRate

    def metrics(self) -> dict[str, float]:
        """Return the metrics of ``train/metrics.py`` that this evaluation gives."""
        low, high = self.sampled.interval
        return {
            "validation/sampled_success": self.sampled.rate,
            "validation/sampled_success_low": low,
            "validation/sampled_success_high": high,
            "validation/sampled_reward_mean": self.sampled.mean_reward,
            "validation/greedy_success": self.greedy.rate,
            "validation/greedy_reward_mean": self.greedy.mean_reward,
            "validation/episodes": float(self.sampled.scored + self.sampled.unscored),
            "validation/unscored": float(self.sampled.unscored + self.greedy.unscored),
            "policy/version": float(self.version),
            **{f"validation/causes/{c}": float(count) for c, count in self.sampled.causes.items()},
        }


def compute_success_rate(trajectories: Iterable[Trajectory], *, threshold: float) -> SuccessRate:
    """Count the episodes whose reward is at least ``threshold``; unscored ones are kept apart."""
    trajectories = list(trajectories)
    rewards = [t.reward if t.usable else None for t in trajectories]
    scored = [reward for reward in rewards if reward is not None]
    return SuccessRate(
        successes=sum(reward >= threshold for reward in scored),
        scored=len(scored),
        unscored=len(rewards) - len(scored),
        mean_reward=math.fsum(scored) / len(scored) if scored else math.nan,
        causes=count_causes(trajectories, success=threshold),
    )
