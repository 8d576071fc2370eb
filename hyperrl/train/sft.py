"""A supervised warm start: cross entropy of gold actions, through the same batching and scoring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hyperrl.errors import DataError
from hyperrl.train.batching import Segment, make_loss_tokens, make_microbatches, make_segments
from hyperrl.train.config import OptimizerConfig, SftConfig
from hyperrl.train.losses import token_weights
from hyperrl.train.optimization import Optimizer
from hyperrl.train.scoring import compute_logprobs
from hyperrl.trajectory import Trajectory

__all__ = ["FINAL_LR_FRACTION", "run_sft"]

FINAL_LR_FRACTION = 0.1
"""The learning rate falls to this share along a cosine."""


def run_sft(
    model: nn.Module,
    trajectories: Sequence[Trajectory],
    config: SftConfig,
    *,
    seed: int = 0,
    microbatch_tokens: int = 16384,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, float]:
    """Train a model to give the action tokens that our sampler did not draw (gold answers).

    Every step takes ``batch_size`` conversations without replacement (all of them, if there are
    fewer), in an order that only the seed decides, and gives every action token the same weight.

    Args:
        model: a causal language model; changed in place, and left in evaluation mode.
        trajectories: conversations with gold ``train`` turns.
        config: steps, batch size and learning rate.
        seed: seed of the order.
        microbatch_tokens: padded tokens of one forward and backward pass.
        on_step: called after each step with its index and metrics.

    Returns:
        Metrics of the last step (``sft/loss``, ``sft/grad_norm``, ``sft/lr``, ``sft/tokens``,
        ``sft/skipped``).

    Raises:
        DataError: there is no gold action token.
    """
    conversations = [made for t in trajectories if (made := make_segments(t, learn="gold"))]
    if not conversations:
        raise DataError(
            f"none of the {len(trajectories)} conversations has a gold action token to learn from; a gold"
            ' turn has use="train" and no behavior_logprobs'
        )
    model.eval()
    optimizer = Optimizer(model, OptimizerConfig(lr=config.lr, clip_norm=config.clip_norm))
    metrics: dict[str, float] = {}
    for index, chosen in enumerate(_draw(len(conversations), config, seed)):
        segments = [segment for i in chosen for segment in conversations[i]]
        lr = config.lr * _cosine(index / config.steps)
        metrics = _step(model, optimizer, segments, lr=lr, microbatch_tokens=microbatch_tokens)
        if on_step is not None:
            on_step(index, metrics)
    return metrics


def _draw(count: int, config: SftConfig, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the conversations of each step; every epoch has an order of its own."""
    rng = np.random.default_rng(seed)
    size = min(config.batch_size, count)
    order = np.zeros(0, np.int64)
    for _ in range(config.steps):
        if len(order) < size:
            order = rng.permutation(count)
        yield order[:size]
        order = order[size:]


def _cosine(progress: float) -> float:
    """Share of the learning rate: 1 at progress 0, ``FINAL_LR_FRACTION`` at progress 1."""
    return FINAL_LR_FRACTION + (1 - FINAL_LR_FRACTION) * (1 + math.cos(math.pi * progress)) / 2


def _step(
    model: nn.Module, optimizer: Optimizer, segments: Sequence[Segment], *, lr: float, microbatch_tokens: int
) -> dict[str, float]:
    tokens = make_loss_tokens(segments)
    weights = token_weights(tokens.segment, "token_mean")
    losses = []
    for micro in make_microbatches(segments, tokens, microbatch_tokens):
        logprobs = compute_logprobs(model, micro)
        loss = -(torch.from_numpy(weights[micro.tokens]).to(logprobs) * logprobs).sum()
        torch.autograd.backward(loss)
        losses.append(loss.detach())
    total = float(torch.stack(losses).sum())
    result = optimizer.step(total, lr=lr)
    return {
        "sft/loss": total,
        "sft/grad_norm": result.grad_norm,
        "sft/lr": result.lr,
        "sft/tokens": float(len(tokens)),
        "sft/skipped": float(not result.applied),
    }
