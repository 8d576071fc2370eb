"""Estimates of the distance between two policies, from logprobs of tokens that one of them drew.

Shapes: n tokens.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["KL_LIMIT", "KlEstimator", "compute_kl", "estimate_drift"]

KlEstimator = Literal["k1", "k2", "k3", "k3+"]

LOG_RATIO_LIMIT = 20.0
KL_LIMIT = 10.0
"""Largest magnitude of a token's k3, as in verl."""


def compute_kl(logprobs: Tensor, ref_logprobs: Tensor, estimator: KlEstimator) -> Tensor:
    """Return [n] estimates of KL(policy || reference) at tokens that the policy drew (Schulman 2020).

    With d = logprobs - ref_logprobs:

    =====  ===================  =============================================================
    k1     d                    unbiased, may be negative; in a loss its mean gradient is 0
    k2     d^2 / 2              biased value, its gradient is unbiased
    k3     exp(-d) + d - 1      unbiased, never negative
    k3+    k3                   with the gradient of k2
    =====  ===================  =============================================================

    Args:
        logprobs: [n], the policy's; with gradient where the estimate is part of a loss.
        ref_logprobs: [n], the reference's.
        estimator: which.
    """
    if estimator == "k1":
        return logprobs - ref_logprobs
    half_square = 0.5 * (logprobs - ref_logprobs).square()
    if estimator == "k2":
        return half_square
    back = (ref_logprobs - logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    k3 = (torch.expm1(back) - back).clamp(-KL_LIMIT, KL_LIMIT)
    if estimator == "k3":
        return k3
    return half_square - half_square.detach() + k3.detach()


def estimate_drift(log_ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return k1 and k3 of KL(old || current) for each token, from current minus old logprobs.

    k1 = -log_ratio (unbiased, may be negative) and k3 = exp(log_ratio) - log_ratio - 1 (unbiased,
    never negative), for tokens that the old policy drew.
    """
    return -log_ratio, torch.expm1(log_ratio) - log_ratio
