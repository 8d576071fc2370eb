"""The gate between sampler and learner: the same version must give the same logprobs.

A wrong mask, a stale weight, a template that renders differently or a temperature that only one
side applies: all of them show here first, and often nowhere else.

Both sides share model code, dtype and attention. What is left is rounding: a decode step with
cached keys and values adds in another order than a forward pass over the whole sequence. Largest
difference measured on CPU over 768 sampled tokens of random Qwen3 models, the worst of them 12
layers deep with logits of 13 (rounding grows with both):

==========  ===============  ==============  ===========================================
weights     eager attention  sdpa attention  limit
==========  ===============  ==============  ===========================================
float64     2.4e-6           0               1e-5 (eager attention has a float32 softmax)
float32     2.8e-5           2.4e-5          2e-4
bfloat16    0.08             0.20            0.5
==========  ===============  ==============  ===========================================

Two-layer models stay under 5e-7 in float32. Logprobs are kept as float32, so one unit in their last
place is always allowed; with float64 weights and sdpa attention nothing else is needed, which is
what the mode ``exact`` holds a run to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperrl.errors import ConfigError, InvariantError
from hyperrl.train.batching import LossTokens, TrainBatch
from hyperrl.train.config import ConsistencyConfig

__all__ = ["DTYPE_LIMITS", "ConsistencyGate"]

DTYPE_LIMITS = {torch.float64: 1e-5, torch.float32: 2e-4, torch.bfloat16: 0.5}
"""Largest difference in nats, by the dtype of the weights."""

FLOAT32_STEP = 2.0**-23
"""Relative distance of neighbouring float32 numbers: logprobs are kept no finer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Comparison:
    """Differences of the tokens of one minibatch that the learner's version drew."""

    tokens: LossTokens
    chosen: NDArray[np.int64]
    sampler: NDArray[np.float64]
    learner: NDArray[np.float64]

    @property
    def difference(self) -> NDArray[np.float64]:
        return np.abs(self.sampler - self.learner)

    def excess(self, limit: float) -> NDArray[np.float64]:
        """How far each difference is over the limit; NaN logprobs are infinitely far."""
        over = self.difference - (limit + FLOAT32_STEP * np.abs(self.sampler))
        return np.nan_to_num(over, nan=np.inf)


class ConsistencyGate:
    """Compares the sampler's logprob of every sampled token with the learner's, before an update.

    Args:
        config: whether to stop the run, and from which difference on.
        dtype: type of the weights, which the limit follows if the config gives none.

    Raises:
        ConfigError: no limit is known for the dtype.
    """

    def __init__(self, config: ConsistencyConfig, *, dtype: torch.dtype) -> None:
        if not config.limit and dtype not in DTYPE_LIMITS:
            raise ConfigError(f"consistency.limit must be given for weights of {dtype}; none is known for it")
        self.enforced = config.mode != "off"
        self.limit = 0.0 if config.mode == "exact" else config.limit or DTYPE_LIMITS[dtype]

    def check(self, batch: TrainBatch, logprobs: Sequence[Tensor], *, version: int) -> dict[str, float]:
        """Compare and return the differences as metrics.

        Only tokens of the learner's own version are compared; in ``off`` mode nothing is refused.

        Args:
            batch: what will be learned from.
            logprobs: the learner's, [N] for each minibatch.
            version: the learner's policy version.

        Raises:
            InvariantError: a difference is over the limit; names the worst token.
        """
        pairs = zip(batch.minibatches, logprobs, strict=True)
        compared = [_compare(m.tokens, values, version) for m, values in pairs]
        compared = [comparison for comparison in compared if len(comparison.chosen)]
        if not compared:
            return {"consistency/tokens": 0.0}
        excess = [comparison.excess(self.limit) for comparison in compared]
        over = sum(int((values > 0).sum()) for values in excess)
        metrics = _measure(compared) | {"consistency/over_limit": float(over)}
        if over and self.enforced:
            worst = max(range(len(excess)), key=lambda i: float(excess[i].max()))
            where = _name_token(batch, compared[worst], int(excess[worst].argmax()))
            raise InvariantError(self._explain(version, metrics, where))
        return metrics

    def _explain(self, version: int, metrics: Mapping[str, float], where: str) -> str:
        return (
            f"sampler and learner disagree on version {version}:"
            f" {metrics['consistency/over_limit']:.0f} of {metrics['consistency/tokens']:.0f} sampled tokens"
            f" differ by more than {self.limit:g} nats. The worst is {where}."
            " Both must hold the same weights, dtype, attention and temperature; consistency.limit widens the"
            " gate and consistency.mode: off opens it"
        )


def _name_token(batch: TrainBatch, comparison: _Comparison, worst: int) -> str:
    tokens, token = comparison.tokens, comparison.chosen[worst]
    episode = batch.episodes[tokens.trajectory[token]]
    return (
        f"token {tokens.token_ids[token]} at position {tokens.position[token]} of group {episode.group_id},"
        f" sample {episode.sample_index}: sampler {comparison.sampler[worst]:.9g},"
        f" learner {comparison.learner[worst]:.9g}"
    )


def _compare(tokens: LossTokens, logprobs: Tensor, version: int) -> _Comparison:
    chosen = (tokens.policy_versions == version).nonzero()[0]
    learner = logprobs.to(torch.float32).cpu().numpy()[chosen]
    return _Comparison(
        tokens=tokens,
        chosen=chosen,
        sampler=tokens.behavior_logprobs[chosen].astype(np.float64),
        learner=learner.astype(np.float64),
    )


def _measure(compared: Sequence[_Comparison]) -> dict[str, float]:
    difference = np.concatenate([comparison.difference for comparison in compared])
    probability = np.concatenate([np.abs(np.exp(c.sampler) - np.exp(c.learner)) for c in compared])
    return {
        "consistency/logprob_diff_max": float(difference.max()),
        "consistency/logprob_diff_mean": float(difference.mean()),
        "consistency/tokens": float(len(difference)),
        "training/rollout_probs_diff_max": float(probability.max()),
        "training/rollout_probs_diff_mean": float(probability.mean()),
        "training/rollout_probs_diff_std": float(probability.std(ddof=1)) if len(probability) > 1 else 0.0,
    }
