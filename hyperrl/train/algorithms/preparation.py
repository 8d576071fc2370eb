"""From groups of trajectories to the batch of one iteration, the same way for every algorithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyperrl.errors import InvariantError
from hyperrl.sampling import EpisodeKey
from hyperrl.train.advantages import AdvantageInput, Advantages, all_equal
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.algorithms.token_rewards import overlong_penalty, place_rewards
from hyperrl.train.batching import (
    LossTokens,
    Minibatch,
    Segment,
    TrainBatch,
    make_loss_tokens,
    make_microbatches,
    make_segments,
    refuse_unsampled,
    split_minibatches,
)
from hyperrl.train.estimation import estimate_advantages, with_advantages
from hyperrl.train.losses import token_weights
from hyperrl.train.metrics import summarise
from hyperrl.train.statistics import describe_play
from hyperrl.trajectory import EXCLUDED, Group, Trajectory

__all__ = ["Algorithm"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """What is learned from: trajectories and, for each, its group, reward and penalty."""

    trajectories: tuple[Trajectory, ...]
    groups: NDArray[np.int64]
    rewards: Floats
    penalties: Floats


class Algorithm:
    """Turns groups into what the learner needs. Holds no state between iterations.

    Args:
        config: parts and sizes.
        seed: seed of the run; the order of episodes in minibatches follows it and the batch.
        max_tokens: token limit of a turn, for ``horizon`` and ``overlong``.
    """

    def __init__(self, config: AlgorithmConfig, *, seed: int = 0, max_tokens: int = 0) -> None:
        self.config = config
        self.seed = seed
        self._max_tokens = max_tokens

    def prepare(self, groups: Sequence[Group], *, played: Sequence[Group] | None = None) -> TrainBatch:
        """Compute masks, weights and microbatches of one iteration, and advantages where they need no scores.

        Episodes without a reward and episodes whose failure excludes them are left out, and groups
        with fewer than ``smallest_group`` others are left out whole; both are counted.

        Args:
            groups: the groups to learn from.
            played: all groups of the iteration, where dynamic sampling has left some out: what is counted
                and described are these.

        Raises:
            InvariantError: an episode has side branches, and the estimator follows the main path.
        """
        config = self.config
        played = groups if played is None else played
        kept = self._keep(groups)
        segments = [self._segments(trajectory, i) for i, trajectory in enumerate(kept.trajectories)]
        entropy = (self.seed, *(groups[0].group_id if groups else ()))
        split = split_minibatches(len(segments), config.minibatches, entropy=entropy)
        parts = [[s for i in part for s in segments[i]] for part in split]
        parts = [part for part in parts if part]
        tokens = [make_loss_tokens(part) for part in parts]
        placed = [place_rewards(one, kept.trajectories, kept.penalties) for one in tokens]
        scale = AdvantageInput(
            rewards=kept.rewards, groups=kept.groups, episode=np.zeros(0, np.int64), token_rewards=np.zeros(0)
        )
        early: list[Advantages] | None = None
        if not config.needs_scores:
            early = estimate_advantages(tokens, placed, scale, config)
        batch = TrainBatch(
            minibatches=tuple(
                self._minibatch(part, one, rewards, kept, None if early is None else early[i].advantages)
                for i, (part, one, rewards) in enumerate(zip(parts, tokens, placed, strict=True))
            ),
            episodes=tuple(EpisodeKey(t.group_id, t.sample_index) for t in kept.trajectories),
            groups=kept.groups,
            rewards=kept.rewards,
            bootstrap_ids=_bootstrap_ids(kept.trajectories) if config.follows_main_path else {},
            metrics=self._describe(played, kept, segments),
        )
        return batch if early is None else with_advantages(batch, early)

    def has_signal(self, group: Group) -> bool:
        """Whether a group is learned from and its rewards differ, so that comparing them says something."""
        rewards = np.array([t.reward for t in group.usable], np.float64)
        return len(rewards) >= self.config.smallest_group and not all_equal(rewards)

    def _minibatch(
        self,
        segments: Sequence[Segment],
        tokens: LossTokens,
        token_rewards: Floats,
        kept: _Kept,
        advantages: Floats | None,
    ) -> Minibatch:
        config = self.config
        # Segments without advantage have microbatches of their own, which no update needs to run.
        silent = None if advantages is None else _silent(tokens, advantages, len(segments))
        return Minibatch(
            tokens=tokens,
            microbatches=make_microbatches(
                segments, tokens, config.microbatch_tokens, silent, packed=config.packing == "packed"
            ),
            token_rewards=token_rewards,
            weights=token_weights(
                tokens.trajectory,
                config.aggregation,
                groups=kept.groups[tokens.trajectory],
                horizon=config.horizon or self._max_tokens,
            ),
        )

    def _segments(self, trajectory: Trajectory, index: int) -> list[Segment]:
        refuse_unsampled(trajectory)
        segments = make_segments(trajectory, index)
        if len(segments) < 2 or not self.config.follows_main_path:
            return segments
        if self.config.branches == "refuse":
            raise InvariantError(
                f"the episode {trajectory.task_id!r} of group {trajectory.group_id} has {len(segments)}"
                f" branches that are learned from, but {self.config.advantage!r} follows one path;"
                " algorithm.branches: drop learns from the main path only"
            )
        return segments[:1]

    def _keep(self, groups: Sequence[Group]) -> _Kept:
        config = self.config
        large = [group.usable for group in groups if len(group.usable) >= config.smallest_group]
        trajectories = tuple(t for members in large for t in members)
        penalties = np.array(
            [overlong_penalty(t, config.overlong, max_tokens=self._max_tokens) for t in trajectories],
            np.float64,
        )
        return _Kept(
            trajectories=trajectories,
            groups=np.repeat(np.arange(len(large)), [len(members) for members in large]),
            rewards=np.array([t.reward for t in trajectories], np.float64) - penalties,
            penalties=penalties,
        )

    def _describe(
        self, played: Sequence[Group], kept: _Kept, segments: Sequence[Sequence[Segment]]
    ) -> dict[str, float]:
        used = np.unique(kept.groups)
        small = [group for group in played if len(group.usable) < self.config.smallest_group]
        excluded = Counter(_why_excluded(t) for group in played for t in group if not t.usable)
        if dropped := sum(len(group.usable) for group in small):
            excluded["small_group"] = dropped
        counts = {
            "groups/kept": len(used),
            "groups/dropped": len(small),
            "episodes/used": len(kept.trajectories),
            "episodes/without_tokens": sum(not own for own in segments),
            **{f"episodes/excluded/{kind}": count for kind, count in sorted(excluded.items())},
        }
        if self.config.dynamic_sampling:
            counts["groups/without_signal"] = len(played) - len(small) - sum(map(self.has_signal, played))
        metrics = {name: float(count) for name, count in counts.items()}
        if len(used):
            equal = sum(all_equal(kept.rewards[kept.groups == group]) for group in used)
            metrics["groups/zero_std_fraction"] = equal / len(used)
        metrics |= summarise("critic/score", (kept.rewards + kept.penalties).tolist())
        return metrics | describe_play(played) | summarise("critic/rewards", kept.rewards.tolist())


def _bootstrap_ids(trajectories: Sequence[Trajectory]) -> dict[int, NDArray[np.int32]]:
    """Return what the critic reads to value the state in which an episode was cut.

    An action that was cut by its token limit was stepped and scored, so that its episode has terminated
    and is worth nothing more.
    """
    found = {}
    for index, trajectory in enumerate(trajectories):
        if trajectory.truncated and not trajectory.terminated and len(trajectory.final_context_ids):
            turns = [trajectory.turns[i] for i in trajectory.main_path]
            parts = [ids for turn in turns for ids in (turn.context_ids, turn.action_ids)]
            found[index] = np.concatenate([*parts, trajectory.final_context_ids])
    return found


def _silent(tokens: LossTokens, advantages: Floats, segments: int) -> NDArray[np.int64]:
    loud = np.zeros(segments, np.bool_)
    loud[tokens.segment[advantages != 0]] = True
    return (~loud).astype(np.int64)


def _why_excluded(trajectory: Trajectory) -> str:
    if trajectory.failure is not None and trajectory.failure.exclude:
        return trajectory.failure.kind
    if trajectory.excluded is not None:
        return EXCLUDED
    errors = (term.error for term in trajectory.reward_terms if term.weight != 0)
    return next((error.kind for error in errors if error is not None), "unscored")
