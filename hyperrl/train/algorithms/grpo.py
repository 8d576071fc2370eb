"""GRPO: compare the episodes of a task with each other (Shao et al. 2024)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyperrl.sampling import EpisodeKey
from hyperrl.train.advantages import compute_group_advantages
from hyperrl.train.batching import (
    Minibatch,
    Segment,
    TrainBatch,
    make_loss_tokens,
    make_microbatches,
    make_segments,
    split_minibatches,
)
from hyperrl.train.config import AlgorithmConfig
from hyperrl.train.losses import token_weights
from hyperrl.train.metrics import summarise
from hyperrl.train.statistics import describe_play
from hyperrl.trajectory import EXCLUDED, Group, Trajectory

__all__ = ["Grpo"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """What is learned from: trajectories with their advantages, both of the same length."""

    trajectories: tuple[Trajectory, ...]
    advantages: NDArray[np.float64]
    rewards: NDArray[np.float64]
    groups: int
    equal_groups: int
    excluded: Mapping[str, int]


class Grpo:
    """Turns groups into what the learner needs. Holds no state between iterations.

    Args:
        config: scaling, aggregation and sizes.
        seed: seed of the run; the order of episodes in minibatches follows it and the batch.
    """

    def __init__(self, config: AlgorithmConfig, *, seed: int = 0) -> None:
        self.config = config
        self.seed = seed

    def prepare(self, groups: Sequence[Group]) -> TrainBatch:
        """Compute advantages, masks, weights and microbatches of one iteration.

        Episodes without a reward and episodes whose failure excludes them are left out, and groups
        with fewer than two others are left out whole; both are counted.

        Args:
            groups: the iteration's groups.
        """
        kept = _keep(groups, self.config)
        segments = [make_segments(trajectory, i) for i, trajectory in enumerate(kept.trajectories)]
        entropy = (self.seed, *(groups[0].group_id if groups else ()))
        parts = split_minibatches(len(segments), self.config.minibatches, entropy=entropy)
        minibatches = [self._minibatch([s for i in part for s in segments[i]], kept) for part in parts]
        return TrainBatch(
            minibatches=tuple(minibatch for minibatch in minibatches if len(minibatch.tokens)),
            episodes=tuple(EpisodeKey(t.group_id, t.sample_index) for t in kept.trajectories),
            rewards=kept.rewards,
            metrics=_describe(groups, kept, segments),
        )

    def _minibatch(self, segments: Sequence[Segment], kept: _Kept) -> Minibatch:
        tokens = make_loss_tokens(segments)
        # Segments without advantage have microbatches of their own, which no update needs to run.
        silent = np.array([kept.advantages[segment.trajectory] == 0 for segment in segments], np.int64)
        return Minibatch(
            tokens=tokens,
            microbatches=make_microbatches(segments, tokens, self.config.microbatch_tokens, silent),
            advantages=kept.advantages[tokens.trajectory],
            weights=token_weights(tokens.trajectory, self.config.aggregation),
        )


def _keep(groups: Sequence[Group], config: AlgorithmConfig) -> _Kept:
    excluded = Counter(_why_excluded(t) for group in groups for t in group if not t.usable)
    large = [group.usable for group in groups if len(group.usable) >= 2]
    usable = sum(len(group.usable) for group in groups)
    if small := usable - sum(map(len, large)):
        excluded["small_group"] = small
    rewards = [np.array([t.reward for t in members], np.float64) for members in large]
    advantages = [compute_group_advantages(values, scale=config.scale) for values in rewards]
    return _Kept(
        trajectories=tuple(t for members in large for t in members),
        advantages=np.concatenate([np.zeros(0), *advantages]),
        rewards=np.concatenate([np.zeros(0), *rewards]),
        groups=len(large),
        equal_groups=sum(not values.any() for values in advantages),
        excluded=excluded,
    )


def _why_excluded(trajectory: Trajectory) -> str:
    if trajectory.failure is not None and trajectory.failure.exclude:
        return trajectory.failure.kind
    if trajectory.excluded is not None:
        return EXCLUDED
    errors = (term.error for term in trajectory.reward_terms if term.weight != 0)
    return next((error.kind for error in errors if error is not None), "unscored")


def _describe(
    groups: Sequence[Group], kept: _Kept, segments: Sequence[Sequence[Segment]]
) -> dict[str, float]:
    counts = {
        "groups/kept": kept.groups,
        "groups/dropped": len(groups) - kept.groups,
        "episodes/used": len(kept.trajectories),
        "episodes/without_tokens": sum(not own for own in segments),
        **{f"episodes/excluded/{kind}": count for kind, count in sorted(kept.excluded.items())},
    }
    metrics = {name: float(count) for name, count in counts.items()}
    if kept.groups:
        metrics["groups/zero_std_fraction"] = kept.equal_groups / kept.groups
    return (
        metrics
        | describe_play(groups)
        | summarise("critic/rewards", kept.rewards.tolist())
        | summarise("critic/advantages", kept.advantages.tolist())
    )
