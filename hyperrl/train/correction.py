"""Correction of the mismatch between the sampler's and the learner's logprobs of one policy.

Shapes: N tokens that were sampled, S sequences (segments).

A token was drawn with probability exp(behavior), while the ratio of the loss begins at exp(old). Where
the two differ (another engine, another dtype), exp(old - behavior) is the importance weight that is
missing. Weights never change a denominator: a masked token still counts in the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hyperrl.train.algorithm_config import CorrectionConfig

__all__ = ["compute_correction", "describe_mismatch"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_RATIO_LIMIT = 20.0


def compute_correction(
    old_logprobs: Floats, behavior_logprobs: Floats, sequence: Ints, config: CorrectionConfig
) -> tuple[Floats, dict[str, float]]:
    """Return the weights of the token losses, and what they came to.

    ``truncate`` gives min(r, cap) (truncated importance sampling, Yao et al. 2025), ``mask`` gives r
    where ``floor`` <= r <= ``cap`` and 0 elsewhere (IcePop, Ling team 2025). r is exp(old - behavior) of
    the token, or the product over its sequence.

    Args:
        old_logprobs: f64[N], the learner's.
        behavior_logprobs: f64[N], the sampler's.
        sequence: i64[N], the sequence of each token.
        config: mode, level and bounds.

    Returns:
        f64[N] weights, and metrics named as in ``metrics.METRICS``.
    """
    log_ratio = old_logprobs - behavior_logprobs
    if config.level == "sequence":
        log_ratio = _per_sequence(np.add.reduceat, log_ratio, sequence)
    ratio = np.exp(np.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    if config.mode == "off" or not len(ratio):
        return np.ones_like(ratio), {}
    inside = ratio <= config.cap
    if config.mode == "mask":
        inside &= ratio >= config.floor
        weights = np.where(inside, ratio, 0.0)
    else:
        weights = np.minimum(ratio, config.cap)
    total = float(np.square(weights).sum())
    return weights, {
        "rollout_corr/rollout_is_mean": float(weights.mean()),
        "rollout_corr/rollout_is_max": float(ratio.max()),
        "rollout_corr/rollout_is_min": float(ratio.min()),
        "rollout_corr/rollout_is_eff_sample_size": float(weights.sum() ** 2 / total / len(weights))
        if total
        else 0.0,
        "rollout_corr/rollout_is_oob_ratio": float(1 - inside.mean()),
    }


def describe_mismatch(old_logprobs: Floats, behavior_logprobs: Floats, sequence: Ints) -> dict[str, float]:
    """Return how far the learner's logprobs are from the sampler's, under verl's names.

    Args:
        old_logprobs: f64[N], the learner's.
        behavior_logprobs: f64[N], the sampler's.
        sequence: i64[N], the sequence of each token.
    """
    if not len(old_logprobs):
        return {}
    log_ratio = old_logprobs - behavior_logprobs
    clipped = np.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    sums = _reduce(np.add.reduceat, log_ratio, sequence)
    old, drawn = (_reduce(_mean_reduceat, values, sequence) for values in (old_logprobs, behavior_logprobs))
    probabilities = np.exp(old_logprobs), np.exp(behavior_logprobs)
    return {
        "rollout_corr/kl": float(-log_ratio.mean()),
        "rollout_corr/k3_kl": float((np.expm1(clipped) - log_ratio).mean()),
        "rollout_corr/training_ppl": float(np.exp(-old).mean()),
        "rollout_corr/rollout_ppl": float(np.exp(-drawn).mean()),
        "rollout_corr/log_ppl_diff": float((drawn - old).mean()),
        "rollout_corr/chi2_token": float(np.exp(2 * clipped).mean() - 1),
        "rollout_corr/chi2_seq": float(
            np.exp(2 * np.clip(sums, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).mean() - 1
        ),
        "training/rollout_actor_probs_pearson_corr": _correlate(*probabilities),
    }


Reduceat = Callable[[Floats, Ints], Floats]


def _reduce(reduceat: Reduceat, values: Floats, sequence: Ints) -> Floats:
    """Reduce each sequence to one value, f64[N] -> f64[S]; tokens of a sequence need not be neighbours."""
    order = np.argsort(sequence, kind="stable")
    starts = np.flatnonzero(np.diff(sequence[order], prepend=-1))
    return reduceat(values[order], starts)


def _per_sequence(reduceat: Reduceat, values: Floats, sequence: Ints) -> Floats:
    """Give every token its sequence's value, f64[N] -> f64[N]."""
    if not len(values):
        return values
    _, index = np.unique(sequence, return_inverse=True)
    return _reduce(reduceat, values, sequence)[index]


def _mean_reduceat(values: Floats, starts: Ints) -> Floats:
    counts = np.diff(starts, append=len(values))
    return np.asarray(np.add.reduceat(values, starts) / counts)


def _correlate(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation; 1 where neither or only one of them varies and they are equal."""
    spread = float(first.std() * second.std())
    if not spread:
        return 1.0 if np.array_equal(first, second) else 0.0
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread)
