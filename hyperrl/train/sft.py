"""Supervised learning: cross entropy of gold actions, through the same batching and scoring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperrl.errors import DataError
from hyperrl.train.batching import (
    LossTokens,
    Microbatch,
    Segment,
    make_loss_tokens,
    make_microbatches,
    make_segments,
)
from hyperrl.train.config import AlgorithmConfig, OptimizerConfig, SftConfig
from hyperrl.train.losses import token_weights
from hyperrl.train.nonfinite import SkippedStep, SkipWatch, find_culprits, unsound_weights
from hyperrl.train.optimization import GradientStep, Optimizer
from hyperrl.train.scoring import compute_logprobs
from hyperrl.trajectory import Trajectory

__all__ = ["FINAL_LR_FRACTION", "count_steps", "run_sft"]

FINAL_LR_FRACTION = 0.1
"""The learning rate falls to this share along a cosine."""

ADVICE = (
    "Look at these conversations; a smaller sft.lr or model.dtype float32 often helps; algorithm.skip_limit"
    " sets how many may be left out"
)
"""What somebody whose steps are left out may do."""

_Conversation = list[Segment]


class _Lesson(NamedTuple):
    """What one optimizer step learns from: N loss tokens, the weights of their losses, and microbatches."""

    tokens: LossTokens
    weights: NDArray[np.float64]
    microbatches: tuple[Microbatch, ...]


def run_sft(
    model: nn.Module,
    trajectories: Sequence[Trajectory],
    config: SftConfig,
    *,
    seed: int = 0,
    algorithm: AlgorithmConfig = AlgorithmConfig(),  # noqa: B008  # immutable
    on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, float]:
    """Train a model to give the action tokens that our sampler did not draw (gold answers).

    Every step takes ``batch_size`` conversations without replacement (those that are left, at the end of
    an epoch), in an order that only the seed decides, and gives every action token the same weight. A step
    whose loss or gradient is not finite is left out: weights, moments and the learning rate's schedule stay.

    Args:
        model: a causal language model; changed in place, and left in evaluation mode.
        trajectories: conversations with gold ``train`` turns; a share of ``validation`` is held out.
        config: epochs or steps, batch size and learning rate.
        seed: seed of the order.
        algorithm: gives ``microbatch_tokens``, the padded tokens of one forward and backward pass, and
            ``skip_limit``: as many steps in a row that are left out end learning.
        on_step: called after each step with the number of finished steps and its metrics; first with 0 and
            the held-out loss, if there is one.

    Returns:
        Metrics of the last step (``sft/loss``, ``sft/grad_norm``, ``sft/lr``, ``sft/tokens``,
        ``sft/epoch``, ``sft/skipped``), and ``sft/validation_loss`` where conversations are held out.

    Raises:
        DataError: there is no gold action token, or nothing is left of the held-out conversations.
        NonFiniteError: too many steps in a row were left out; says which conversations caused it.
    """
    found = [made for i, t in enumerate(trajectories) if (made := make_segments(t, i, learn="gold"))]
    if not found:
        raise DataError(
            f"none of the {len(trajectories)} conversations has a gold action token to learn from; a gold"
            ' turn has use="train" and no behavior_logprobs'
        )
    conversations, held_out = _split(found, config.validation, seed)
    model.eval()
    tell = on_step or (lambda _step, _metrics: None)
    microbatch_tokens = algorithm.microbatch_tokens
    metrics = _validate(model, held_out, microbatch_tokens)
    if metrics:
        tell(0, metrics)
    optimizer = Optimizer(model, OptimizerConfig(lr=config.lr, clip_norm=config.clip_norm))
    watch = SkipWatch(algorithm.skip_limit, advice=ADVICE)
    steps = count_steps(len(found), config)
    for finished, (epoch, chosen) in enumerate(_draw(len(conversations), steps, config.batch_size, seed), 1):
        lesson = _make_lesson([segment for i in chosen for segment in conversations[i]], microbatch_tokens)
        lr = config.lr * _cosine(optimizer.applied_steps / steps)
        loss, result = _step(model, optimizer, lesson, lr=lr)
        metrics = _describe(lesson, loss, result) | {"sft/epoch": float(epoch)}
        if finished == steps or (config.validation_every and finished % config.validation_every == 0):
            metrics |= _validate(model, held_out, microbatch_tokens)
        tell(finished, metrics)
        if result.applied:
            watch.applied()
        else:
            skipped = SkippedStep(step=finished, loss=loss, grad_norm=result.grad_norm)
            watch.skipped(_explain(skipped, model, optimizer, lesson, trajectories))
    return metrics


def count_steps(conversations: int, config: SftConfig) -> int:
    """Return how many optimizer steps a number of conversations takes, some of them held out."""
    if not config.epochs:
        return config.steps
    learned = conversations - _count_held_out(conversations, config.validation)
    return config.epochs * math.ceil(learned / config.batch_size)


def _count_held_out(conversations: int, share: float) -> int:
    return max(1, round(share * conversations)) if share else 0


def _split(
    conversations: list[_Conversation], share: float, seed: int
) -> tuple[list[_Conversation], list[_Conversation]]:
    """Return what is learned from, and what is held out: at least one, where a share is asked for."""
    count = _count_held_out(len(conversations), share)
    if count >= len(conversations):
        raise DataError(
            f"sft.validation {share:g} holds out {count} of {len(conversations)} conversations, and none is"
            " left to learn from; give more conversations or a smaller share"
        )
    order = np.random.default_rng([seed, 1]).permutation(len(conversations))
    held_out = set(order[:count].tolist())
    return (
        [one for i, one in enumerate(conversations) if i not in held_out],
        [conversations[i] for i in sorted(held_out)],
    )


def _draw(count: int, steps: int, size: int, seed: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield epoch and conversations of each step; every epoch has an order of its own."""
    rng = np.random.default_rng(seed)
    order, epoch = np.zeros(0, np.int64), -1
    for _ in range(steps):
        if not len(order):
            order, epoch = rng.permutation(count), epoch + 1
        yield epoch, order[:size]
        order = order[size:]


@torch.no_grad()
def _validate(
    model: nn.Module, conversations: Sequence[_Conversation], microbatch_tokens: int
) -> dict[str, float]:
    """Return the mean cross entropy of the action tokens of held-out conversations; nothing without any."""
    if not conversations:
        return {}
    segments = [segment for one in conversations for segment in one]
    tokens = make_loss_tokens(segments)
    sums = [
        float(compute_logprobs(model, micro).double().sum())
        for micro in make_microbatches(segments, tokens, microbatch_tokens)
    ]
    return {"sft/validation_loss": -math.fsum(sums) / len(tokens)}


def _cosine(progress: float) -> float:
    """Share of the learning rate: 1 at progress 0, ``FINAL_LR_FRACTION`` at progress 1."""
    return FINAL_LR_FRACTION + (1 - FINAL_LR_FRACTION) * (1 + math.cos(math.pi * progress)) / 2


def _make_lesson(segments: Sequence[Segment], microbatch_tokens: int) -> _Lesson:
    tokens = make_loss_tokens(segments)
    weights = token_weights(tokens.segment, "token_mean")
    return _Lesson(tokens, weights, make_microbatches(segments, tokens, microbatch_tokens))


def _step(
    model: nn.Module, optimizer: Optimizer, lesson: _Lesson, *, lr: float
) -> tuple[float, GradientStep]:
    losses = [_backward(model, lesson, micro) for micro in lesson.microbatches]
    total = float(torch.stack(losses).sum())
    return total, optimizer.step(total, lr=lr)


def _backward(model: nn.Module, lesson: _Lesson, micro: Microbatch) -> Tensor:
    """Add the gradient of a microbatch to the parameters, and return its share of the loss."""
    logprobs = compute_logprobs(model, micro)
    loss = -(torch.from_numpy(lesson.weights[micro.tokens]).to(logprobs) * logprobs).sum()
    torch.autograd.backward(loss)
    return loss.detach()


def _describe(lesson: _Lesson, loss: float, made: GradientStep) -> dict[str, float]:
    return {
        "sft/loss": loss,
        "sft/grad_norm": made.grad_norm,
        "sft/lr": made.lr,
        "sft/tokens": float(len(lesson.tokens)),
        "sft/skipped": float(not made.applied),
    }


def _explain(
    skipped: SkippedStep,
    model: nn.Module,
    optimizer: Optimizer,
    lesson: _Lesson,
    trajectories: Sequence[Trajectory],
) -> SkippedStep:
    """Find out which weights or conversations made a step's loss or gradient not finite."""

    def probe(row: Microbatch) -> float:
        loss = _backward(model, lesson, row)
        norm = float(optimizer.gradient_norm()) if bool(loss.isfinite()) else math.nan
        optimizer.clear()
        return norm

    if weights := unsound_weights(model):
        return replace(skipped, weights=weights)
    culprits = find_culprits(lesson.microbatches, lesson.tokens, probe)
    return replace(skipped, conversations=tuple(_name(trajectories[i]) for i in culprits))


def _name(trajectory: Trajectory) -> str:
    """Name a conversation: file and row, or the task and which of its episodes."""
    if trajectory.env_id == "messages":
        return trajectory.task_id
    group, sample = trajectory.group_id, trajectory.sample_index
    return f"task {trajectory.task_id} of {trajectory.env_id} (group {group}, sample {sample})"
