"""Losses as fixed weights over token losses, and the clipped surrogate.

Shapes: N loss tokens of a minibatch (or n of a microbatch; every function works on any part).

A loss is ``sum(weights * token_losses)``. The weights are computed once for the whole minibatch,
from nothing but which episode each token belongs to, so neither the split into microbatches nor
padding nor masked sequences can change the result.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "LOG_RATIO_LIMIT",
    "Aggregation",
    "Surrogate",
    "compute_clipped_surrogate",
    "compute_kl",
    "global_sum",
    "token_weights",
]

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"]

LOG_RATIO_LIMIT = 20.0
"""The log ratio is clamped to this magnitude, so that the ratio stays finite in float32."""


def global_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over all processes that share a minibatch: the one seam where processes meet.

    Every denominator and every count goes through here. One process is its own sum.
    """
    return values


def token_weights(episodes: NDArray[np.int64], mode: Aggregation) -> NDArray[np.float64]:
    """Return the weight of every loss token of a minibatch.

    With n_b loss tokens in episode b, N tokens and S episodes that have any:

    =====================  =================  ==========
    mode                   weight             sum
    =====================  =================  ==========
    token_mean             1 / N              1
    seq_mean_token_mean    1 / n_b / S        1
    seq_mean_token_sum     1 / S              N / S
    =====================  =================  ==========

    Args:
        episodes: i64[N], the episode of each loss token. An episode with several segments is one.
        mode: how token losses become one number.

    Returns:
        f64[N].
    """
    found, inverse, counts = np.unique(episodes, return_inverse=True, return_counts=True)
    tokens, sequences = global_sum(np.array([len(episodes), len(found)], np.float64))
    if mode == "token_mean":
        return np.full(len(episodes), 1.0) / tokens if len(episodes) else np.zeros(0)
    if mode == "seq_mean_token_mean":
        return np.asarray(1.0 / counts[inverse] / sequences)
    return np.full(len(episodes), 1.0) / sequences if len(episodes) else np.zeros(0)


class Surrogate(NamedTuple):
    """What the clipped surrogate gives for each token.

    Attributes:
        losses: [n], with gradient.
        log_ratio: [n], current minus old logprobs, clamped, detached.
        clipped: bool[n], the clipped branch is the larger loss, so the token has no gradient.
    """

    losses: Tensor
    log_ratio: Tensor
    clipped: Tensor


def compute_clipped_surrogate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> Surrogate:
    """Return PPO's clipped loss of each token (Schulman et al. 2017, eq. 7; clip-higher: DAPO 2025).

    ``max(-A r, -A clamp(r, 1 - clip_low, 1 + clip_high))`` with r = exp(logprobs - old_logprobs).

    Args:
        logprobs: [n], current, with gradient.
        old_logprobs: [n], denominator of the ratio.
        advantages: [n].
        clip_low: how far the ratio may move below 1.
        clip_high: how far the ratio may move above 1.
    """
    log_ratio = (logprobs - old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    free = -advantages * ratio
    held = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    return Surrogate(torch.maximum(free, held), log_ratio.detach(), (held > free).detach())


def compute_kl(log_ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return the estimates k1 and k3 of KL(old || current) for each token (Schulman 2020).

    With d = current minus old logprobs of tokens drawn by the old policy: k1 = -d (unbiased, may be
    negative) and k3 = exp(d) - d - 1 (unbiased, never negative).
    """
    return -log_ratio, torch.expm1(log_ratio) - log_ratio
