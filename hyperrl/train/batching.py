"""From trajectories to padded arrays: the only place where trajectories are flattened and masked.

Shapes: T tokens of a segment, N loss tokens of a minibatch, n of a microbatch, B rows and L padded
columns of a microbatch.

A *segment* is a root-to-leaf path of ``train`` turns; it may pass through other turns, which are
only read. A token that several segments share is learned from once: in the main path if it lies
there, else in the segment of the earliest leaf. Masks come from how a token came to be, never from
its id, so a pad token may be any id (the end-of-text token of many models is their pad token).

Everything here is numpy on the host and deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hyperrl.columns import TurnColumns
from hyperrl.errors import TrajectoryError
from hyperrl.sampling import EpisodeKey
from hyperrl.trajectory import NOT_SAMPLED, Trajectory

__all__ = [
    "LossTokens",
    "Microbatch",
    "Minibatch",
    "Segment",
    "TrainBatch",
    "make_loss_tokens",
    "make_microbatches",
    "make_segments",
    "partition_segments",
    "refuse_unsampled",
    "split_minibatches",
]

Learn = Literal["sampled", "gold"]
"""``sampled``: tokens that our sampler drew; ``gold``: action tokens that it did not draw."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """One path of a trajectory, flattened. All arrays have length T.

    Attributes:
        trajectory: index of its trajectory within the batch.
        token_ids: i32, context and action tokens in the order in which the policy saw them.
        sampled_mask: our sampler drew the token.
        loss_mask: the token is counted in the loss. Never true at position 0, which nothing predicts.
        behavior_logprobs: f32 nats; 0 where the token was not sampled.
        policy_versions: i32; ``NOT_SAMPLED`` where the token was not sampled.
        temperature: f64, what logits are divided by where the token is predicted; 1 for context.
        turn: i32, the turn that the token belongs to.
    """

    trajectory: int
    token_ids: NDArray[np.int32]
    sampled_mask: Bools
    loss_mask: Bools
    behavior_logprobs: NDArray[np.float32]
    policy_versions: NDArray[np.int32]
    temperature: Floats
    turn: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def input_length(self) -> int:
        """Tokens that a model must read to predict every loss token; 0 without loss tokens."""
        return int(self.loss_mask.nonzero()[0].max(initial=0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossTokens:
    """The tokens that are learned from, flat, in the order of their segments. Arrays have length N.

    Attributes:
        segment: index of the segment in the sequence that the tokens were made from.
        position: index of the token within its segment, at least 1.
        trajectory: index of the trajectory within the batch.
        token_ids: the tokens.
        behavior_logprobs, policy_versions, temperature, turn: see :class:`Segment`.
    """

    segment: Ints
    position: Ints
    trajectory: Ints
    token_ids: Ints
    behavior_logprobs: NDArray[np.float32]
    policy_versions: NDArray[np.int32]
    temperature: Floats
    turn: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Microbatch:
    """Some segments for one forward and backward pass: padded on the right, or packed side by side.

    Attributes:
        input_ids: i64[B, L]; the last loss token of a segment is not read, for it predicts nothing. Packed
            segments stand in one row, [1, T].
        tokens: i64[n], which of the minibatch's loss tokens are predicted here.
        predictors: i64[n], index into the flattened [B * L] positions of the one that predicts each.
        sequence: i64[n], the segment of each within the microbatch; the row, where they are padded.
        targets: i64[n], the tokens that are predicted.
        temperature: f64[n].
        lengths: i64, tokens of each packed segment; ``None`` where segments are padded.
    """

    input_ids: Ints
    tokens: Ints
    predictors: Ints
    sequence: Ints
    targets: Ints
    temperature: Floats
    lengths: Ints | None = None

    @property
    def padded_tokens(self) -> int:
        """Tokens that the model computes, padding included."""
        return self.input_ids.size

    @property
    def segment_lengths(self) -> Ints:
        """i64, tokens of each segment that are read, padding left out."""
        last = np.zeros(len(self._starts), np.int64)
        np.maximum.at(last, self.sequence, self.predictors)
        return last - self._starts + 1

    @property
    def _starts(self) -> Ints:
        """Where each segment begins in the flattened ``input_ids``."""
        if self.lengths is None:
            starts: Ints = np.arange(len(self.input_ids)) * self.input_ids.shape[1]
        else:
            starts = np.cumsum(self.lengths) - self.lengths
        return starts

    def rows(self) -> list[Microbatch]:
        """Return each segment as a microbatch of its own."""
        flat, starts, lengths = self.input_ids.ravel(), self._starts, self.segment_lengths
        own = [np.flatnonzero(self.sequence == row) for row in range(len(starts))]
        return [
            Microbatch(
                input_ids=flat[None, start : start + length],
                tokens=self.tokens[chosen],
                predictors=self.predictors[chosen] - start,
                sequence=np.zeros(len(chosen), np.int64),
                targets=self.targets[chosen],
                temperature=self.temperature[chosen],
            )
            for start, length, chosen in zip(starts, lengths, own, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Minibatch:
    """The data of one optimizer step.

    Attributes:
        tokens: its N loss tokens.
        microbatches: together they predict every loss token exactly once.
        token_rewards: f64[N], reward earned at each token (``algorithms.token_rewards``).
        weights: f64[N], fixed weights of the token losses (``losses.token_weights``).
        advantages: f64[N]; ``None`` until they are estimated.
        returns: f64[N], targets of a critic; ``None`` where the estimator has none.
    """

    tokens: LossTokens
    microbatches: tuple[Microbatch, ...]
    token_rewards: Floats
    weights: Floats
    advantages: Floats | None = None
    returns: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainBatch:
    """The data of one iteration.

    Attributes:
        minibatches: in the order of the updates; an episode is never split between two.
        episodes: name of each trajectory; ``LossTokens.trajectory`` indexes it.
        groups: i64, index of each trajectory's group.
        rewards: f64, reward of each trajectory, penalties taken off.
        bootstrap_ids: by index of a trajectory that was truncated, i32 tokens of its main path and of what
            was read after it; only for estimators that bootstrap.
        metrics: numbers about the batch, named as in ``metrics.METRICS``.
    """

    minibatches: tuple[Minibatch, ...]
    episodes: tuple[EpisodeKey, ...]
    groups: Ints
    rewards: Floats
    bootstrap_ids: Mapping[int, NDArray[np.int32]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


def make_segments(trajectory: Trajectory, index: int = 0, *, learn: Learn = "sampled") -> list[Segment]:
    """Flatten a trajectory into its segments, main path first; paths without loss tokens are left out.

    Args:
        trajectory: what happened.
        index: its index within the batch.
        learn: which action tokens of ``train`` turns are loss tokens.

    Raises:
        TrajectoryError: a loss token stands at the very start, where nothing predicts it.
    """
    segments: list[Segment] = []
    claimed: set[int] = set()
    for path in _leaf_paths(trajectory):
        learned = [_is_learned(trajectory.columns, i, learn) and i not in claimed for i in path]
        claimed.update(path)
        segment = _flatten(index, path, trajectory.columns, learned)
        if segment.loss_mask.any():
            if segment.loss_mask[0]:
                raise TrajectoryError(
                    f"turn {path[0]} of {trajectory.task_id!r} has no context_ids: nothing predicts its"
                    " first action token. A root turn needs a prompt of at least one token"
                )
            segments.append(segment)
    return segments


def refuse_unsampled(trajectory: Trajectory) -> None:
    """Refuse an episode that was recorded without tokens, such as those of ``hyperrl eval --endpoint``.

    Raises:
        TrajectoryError: it was; no ratio or gradient can be computed.
    """
    columns = trajectory.columns
    facts = zip(columns.uses, columns.sampled, columns.action_lengths, strict=True)
    known = [sampled or length > 0 for use, sampled, length in facts if use == "train"]
    if known and not any(known):
        raise TrajectoryError(
            f"the episode of task {trajectory.task_id!r} (group {trajectory.group_id}) was played by a remote"
            " endpoint or a script: its turns have neither tokens nor behavior_logprobs to learn from. It is"
            " for evaluation; train on episodes that a sampler of the run has played"
        )


def _leaf_paths(trajectory: Trajectory) -> list[tuple[int, ...]]:
    """Paths to the ``train`` turns that no other ``train`` turn extends; the main path first."""
    learned = [i for i, use in enumerate(trajectory.columns.uses) if use == "train"]
    if not learned:
        return []
    paths = {i: trajectory.path(i) for i in learned}
    inner = {ancestor for path in paths.values() for ancestor in path[:-1]}
    main_end = trajectory.main_path[-1]
    leaves = [path for i, path in paths.items() if i not in inner]
    return sorted(leaves, key=lambda path: main_end not in path)


def _is_learned(columns: TurnColumns, turn: int, learn: Learn) -> bool:
    return columns.uses[turn] == "train" and columns.sampled[turn] == (learn == "sampled")


def _flatten(index: int, path: Sequence[int], columns: TurnColumns, learned: Sequence[bool]) -> Segment:
    starts, drawn = columns.starts, columns.drawn_starts
    lengths = list(zip(columns.context_lengths, columns.action_lengths, strict=True))
    runs = [length for i in path for length in lengths[i]]

    def spread(values: Iterable[Any], context: object, dtype: type[np.generic]) -> NDArray[Any]:
        """Give every context token one value and every action token its turn's."""
        return np.repeat(np.array([x for value in values for x in (context, value)], dtype), runs)

    sampled = spread((columns.sampled[i] for i in path), False, np.bool_)
    logprobs = np.zeros(len(sampled), np.float32)
    versions = np.full(len(sampled), NOT_SAMPLED, np.int32)
    logprobs[sampled] = np.concatenate([columns.logprobs[drawn[i] : drawn[i + 1]] for i in path])
    versions[sampled] = np.concatenate([columns.policy_versions[drawn[i] : drawn[i + 1]] for i in path])
    return Segment(
        trajectory=index,
        token_ids=np.concatenate([columns.ids[starts[i] : starts[i + 1]] for i in path]),
        sampled_mask=sampled,
        loss_mask=spread(learned, False, np.bool_),
        behavior_logprobs=logprobs,
        policy_versions=versions,
        # Temperature 0 is reported at 1 (see trajectory.Turn).
        temperature=spread((columns.temperatures[i] or 1.0 for i in path), 1.0, np.float64),
        turn=np.repeat(np.array(path, np.int32), [starts[i + 1] - starts[i] for i in path]),
    )


def make_loss_tokens(segments: Sequence[Segment]) -> LossTokens:
    """Collect the loss tokens of segments into flat arrays."""
    counts = [int(segment.loss_mask.sum()) for segment in segments]

    def pick(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        parts = [getattr(segment, name)[segment.loss_mask] for segment in segments]
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)

    positions = [segment.loss_mask.nonzero()[0] for segment in segments]
    return LossTokens(
        segment=np.repeat(np.arange(len(segments)), counts),
        position=np.concatenate([np.zeros(0, np.int64), *positions]),
        trajectory=np.repeat(np.array([s.trajectory for s in segments], np.int64), counts),
        token_ids=pick("token_ids", np.int64),
        behavior_logprobs=pick("behavior_logprobs", np.float32),
        policy_versions=pick("policy_versions", np.int32),
        temperature=pick("temperature", np.float64),
        turn=pick("turn", np.int32),
    )


def split_minibatches(trajectories: int, minibatches: int, *, entropy: Sequence[int]) -> list[Ints]:
    """Split trajectory indices into at most ``minibatches`` parts of nearly equal size.

    Args:
        trajectories: how many there are.
        minibatches: how many parts are wanted; parts without trajectories are left out.
        entropy: what the order depends on (the run's seed and what names the batch).
    """
    order = np.arange(trajectories)
    if minibatches > 1:
        order = np.random.default_rng(list(entropy)).permutation(order)
    return [np.sort(part) for part in np.array_split(order, minibatches) if len(part)]


def partition_segments(
    lengths: Ints, budget: int, classes: Ints | None = None, *, packed: bool = False
) -> list[Ints]:
    """Partition segments into microbatches of similar length.

    Longest first, as many as fit into ``budget`` tokens; a segment longer than the budget is alone.
    Segments of different classes never share a microbatch.

    Args:
        lengths: i64, input tokens of each segment.
        budget: tokens of one microbatch, padding included.
        classes: i64, class of each segment; all the same if not given.
        packed: whether segments will stand side by side, without padding.
    """
    classes = np.zeros_like(lengths) if classes is None else classes
    order = np.lexsort((np.arange(len(lengths)), -lengths, classes))
    parts: list[Ints] = []
    start = 0
    while start < len(order):
        first = order[start]
        if packed:
            rows = max(1, int(np.searchsorted(np.cumsum(lengths[order[start:]]), budget, "right")))
        else:
            rows = max(1, budget // max(1, int(lengths[first])))
        same = order[start : start + rows]
        same = same[classes[same] == classes[first]]
        parts.append(same)
        start += len(same)
    return parts


def make_microbatches(
    segments: Sequence[Segment],
    tokens: LossTokens,
    budget: int,
    classes: Ints | None = None,
    *,
    packed: bool = False,
) -> tuple[Microbatch, ...]:
    """Pad or pack segments into microbatches under a budget of tokens; see ``partition_segments``.

    The result depends only on the arguments, so scoring and updating with it see the same arrays.
    """
    lengths = np.array([segment.input_length for segment in segments], np.int64)
    starts = np.searchsorted(tokens.segment, np.arange(len(segments) + 1))
    lay_out = _pack if packed else _pad
    return tuple(
        lay_out(
            [segments[i] for i in part], lengths[part], tokens, [(starts[i], starts[i + 1]) for i in part]
        )
        for part in partition_segments(lengths, budget, classes, packed=packed)
    )


def _pad(
    segments: Sequence[Segment], lengths: Ints, tokens: LossTokens, spans: Sequence[tuple[int, int]]
) -> Microbatch:
    width = int(lengths.max())
    input_ids = np.zeros((len(segments), width), np.int64)
    filled = np.arange(width) < lengths[:, None]
    input_ids[filled] = np.concatenate([s.token_ids[:n] for s, n in zip(segments, lengths, strict=True)])
    return _microbatch(input_ids, np.arange(len(segments)) * width, tokens, spans)


def _pack(
    segments: Sequence[Segment], lengths: Ints, tokens: LossTokens, spans: Sequence[tuple[int, int]]
) -> Microbatch:
    ids = np.concatenate([s.token_ids[:n] for s, n in zip(segments, lengths, strict=True)]).astype(np.int64)
    made = _microbatch(ids[None], np.cumsum(lengths) - lengths, tokens, spans)
    return replace(made, lengths=lengths)


def _microbatch(
    input_ids: Ints, starts: Ints, tokens: LossTokens, spans: Sequence[tuple[int, int]]
) -> Microbatch:
    """Return a microbatch whose segments begin at ``starts`` of the flattened ``input_ids``."""
    members = np.concatenate([np.arange(start, end) for start, end in spans])
    rows = np.repeat(np.arange(len(spans)), [end - start for start, end in spans])
    return Microbatch(
        input_ids=input_ids,
        tokens=members,
        predictors=starts[rows] + tokens.position[members] - 1,
        sequence=rows,
        targets=tokens.token_ids[members],
        temperature=tokens.temperature[members],
    )
