"""What scoring a whole batch gives before it is learned from: old, reference, values, correction.

Shapes: N loss tokens of a minibatch, B episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperrl.train.advantages import AdvantageInput
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.batching import Minibatch, TrainBatch
from hyperrl.train.correction import compute_correction, describe_mismatch
from hyperrl.train.estimation import estimate_advantages, with_advantages
from hyperrl.train.kl import compute_kl
from hyperrl.train.scoring import Score, score_microbatch

__all__ = ["BatchScores", "correct_mismatch", "estimate_from_scores", "in_token_order", "score_minibatch"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchScores:
    """What scoring a batch gave, one entry of each list for each minibatch.

    Attributes:
        old: [N], denominators of the ratios.
        reference: [N], the reference's logprobs; ``None`` where no KL is asked for.
        correction: f64[N], weights for the mismatch of sampler and learner; ``None`` where it is off.
        values: f64[N], the critic's; ``None`` without one.
        bootstrap: f64[B], the critic's after truncated episodes; ``None`` without one.
        metrics: what scoring has shown.
    """

    old: list[Tensor]
    reference: list[Tensor] | None = None
    correction: list[Floats] | None = None
    values: list[Floats] | None = None
    bootstrap: Floats | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def score_minibatch(model: nn.Module, minibatch: Minibatch) -> Score:
    """Return logprobs and entropies, [N] each, in the order of the minibatch's tokens."""
    return in_token_order(minibatch, [score_microbatch(model, micro) for micro in minibatch.microbatches])


def in_token_order(minibatch: Minibatch, scores: Sequence[Score]) -> Score:
    """Return the scores of a minibatch's microbatches, [n] each, as [N] in the order of its tokens."""
    order = torch.from_numpy(np.concatenate([micro.tokens for micro in minibatch.microbatches]))
    logprobs, entropy = (torch.cat(column) for column in zip(*scores, strict=True))
    place = torch.argsort(order.to(logprobs.device))
    return Score(logprobs[place], entropy[place])


def correct_mismatch(
    batch: TrainBatch, logprobs: Sequence[Tensor], algorithm: AlgorithmConfig
) -> tuple[list[Floats] | None, dict[str, float]]:
    """Return correction weights f64[N] of each minibatch (``None`` where it is off) and diagnostics.

    Args:
        batch: holds the sampler's logprobs.
        logprobs: [N] for each minibatch, the learner's.
        algorithm: mode, level and bounds of the correction.
    """
    if not batch.minibatches:
        return None, {}
    tokens = [minibatch.tokens for minibatch in batch.minibatches]
    ends = np.cumsum([len(one) for one in tokens])[:-1]
    first = np.cumsum([0, *(int(one.segment.max(initial=-1)) + 1 for one in tokens[:-1])])
    learner = np.concatenate([_host(values) for values in logprobs])
    sampler = np.concatenate([one.behavior_logprobs.astype(np.float64) for one in tokens])
    sequence = np.concatenate([one.segment + start for one, start in zip(tokens, first, strict=True)])
    metrics = describe_mismatch(learner, sampler, sequence)
    if algorithm.correction.mode == "off":
        return None, metrics
    weights, found = compute_correction(learner, sampler, sequence, algorithm.correction)
    return np.split(weights, ends), metrics | found


def estimate_from_scores(batch: TrainBatch, scores: BatchScores, algorithm: AlgorithmConfig) -> TrainBatch:
    """Return the batch with its advantages, estimated from what scoring gave.

    Args:
        batch: prepared, without advantages.
        scores: values where the advantage needs them; old and reference logprobs where a KL is taken
            off the rewards.
        algorithm: names the parts.
    """
    rewards = [minibatch.token_rewards for minibatch in batch.minibatches]
    totals = batch.rewards
    metrics: dict[str, float] = {}
    if algorithm.kl.place == "reward" and scores.reference is not None:
        kls = [
            _host(compute_kl(old, reference, algorithm.kl.estimator))
            for old, reference in zip(scores.old, scores.reference, strict=True)
        ]
        rewards = [reward - algorithm.kl.coef * kl for reward, kl in zip(rewards, kls, strict=True)]
        for minibatch, kl in zip(batch.minibatches, kls, strict=True):
            episodes = minibatch.tokens.trajectory
            totals = totals - algorithm.kl.coef * np.bincount(episodes, kl, minlength=len(totals))
        metrics["actor/reward_kl_penalty"] = float(np.concatenate(kls).mean()) if kls else 0.0
    whole = AdvantageInput(
        rewards=totals,
        groups=batch.groups,
        episode=np.zeros(0, np.int64),
        token_rewards=np.zeros(0),
        values=None if scores.values is None else np.concatenate([np.zeros(0), *scores.values]),
        bootstrap=scores.bootstrap,
    )
    found = estimate_advantages([m.tokens for m in batch.minibatches], rewards, whole, algorithm)
    return replace(with_advantages(batch, found), metrics={**batch.metrics, **metrics})


def _host(values: Tensor) -> Floats:
    host: Floats = values.detach().to("cpu", torch.float64).numpy()
    return host
