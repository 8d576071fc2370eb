"""The learner: scores a batch, passes the gate, and updates the policy.

Shapes: N loss tokens of a minibatch, n of a microbatch.

What training promises is checked here on every batch, not only in tests: the first on-policy ratio
is exactly 1, weights sum to 1, every sampled token has a version that the batch may hold, rewards
are finite.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hyperrl.errors import InvariantError
from hyperrl.train.batching import LossTokens, Microbatch, Minibatch, TrainBatch
from hyperrl.train.config import AlgorithmConfig, OptimizerConfig
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.losses import compute_clipped_surrogate, compute_kl
from hyperrl.train.metrics import reduce_metrics
from hyperrl.train.optimization import Optimizer
from hyperrl.train.scoring import Score, compute_logprobs, score_microbatch

__all__ = ["Learner", "check_batch"]

WEIGHT_SUM_TOLERANCE = 1e-9
"""How far float64 weights of a minibatch may sum away from 1."""


class Learner:
    """Owns the policy's weights and their optimizer.

    The model is put into evaluation mode: dropout would make the sampler another policy.

    Args:
        model: a causal language model; its parameters are changed in place.
        algorithm: clipping, aggregation and the denominator of the ratio.
        optimizer: AdamW and its schedule.
        gate: compares the sampler with the learner before every batch.
        max_staleness: how many versions the tokens of a batch may be behind.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        gate: ConsistencyGate,
        max_staleness: int = 0,
    ) -> None:
        self.model = model.eval()
        self.algorithm = algorithm
        self.gate = gate
        self.max_staleness = max_staleness
        self._optimizer = Optimizer(model, optimizer)

    @property
    def applied_steps(self) -> int:
        """Updates that changed the weights since the learner was made."""
        return self._optimizer.applied_steps

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and value of every parameter and persistent buffer; tied ones once.

        The tensors are the live ones, detached: whoever keeps them copies.
        """
        seen: set[int] = set()
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor.detach()

    def compute_logprobs(self, minibatch: Minibatch) -> Tensor:
        """Return [N]: the current policy's logprobs of a minibatch's loss tokens, without gradient."""
        return self._score(minibatch).logprobs

    def step(self, batch: TrainBatch, *, version: int) -> dict[str, float]:
        """Learn from one batch: score it, pass the gate, then one update for each minibatch.

        Updates whose loss or gradient is not finite, and updates in which every advantage is 0, are
        left out and counted; neither they nor the schedule change anything.

        Args:
            batch: what an algorithm has prepared.
            version: the policy version that the weights are now.

        Returns:
            Metrics of the batch and of its updates, named as in ``metrics.METRICS``.

        Raises:
            InvariantError: the batch or the scores break a promise; the weights are unchanged unless
                an earlier minibatch of the batch has been applied.
        """
        check_batch(batch, self.algorithm, version=version, max_staleness=self.max_staleness)
        started = time.perf_counter()
        olds, metrics = self._old_logprobs(batch, version)
        scored = time.perf_counter()
        reports = [
            self._update(minibatch, old, exact=self.algorithm.old_logprobs == "recompute" and index == 0)
            for index, (minibatch, old) in enumerate(zip(batch.minibatches, olds, strict=True))
        ]
        timings = {
            "timing_s/old_log_prob": scored - started,
            "timing_s/update_actor": time.perf_counter() - scored,
            "training/optimizer_steps": float(self.applied_steps),
        }
        return {**batch.metrics, **metrics, **reduce_metrics(reports), **timings}

    def _old_logprobs(self, batch: TrainBatch, version: int) -> tuple[list[Tensor], dict[str, float]]:
        """Return the denominators, [N] for each minibatch, and what scoring has shown."""
        recompute = self.algorithm.old_logprobs == "recompute"
        behavior = [torch.from_numpy(m.tokens.behavior_logprobs) for m in batch.minibatches]
        if not batch.minibatches or not (recompute or self.gate.enforced):
            return behavior, {}
        scores = [self._score(minibatch) for minibatch in batch.minibatches]
        metrics = self.gate.check(batch, [score.logprobs for score in scores], version=version)
        metrics["actor/entropy"] = float(torch.cat([score.entropy for score in scores]).mean())
        return [score.logprobs for score in scores] if recompute else behavior, metrics

    def _score(self, minibatch: Minibatch) -> Score:
        return _scatter(minibatch, [score_microbatch(self.model, micro) for micro in minibatch.microbatches])

    def _update(self, minibatch: Minibatch, old: Tensor, *, exact: bool) -> dict[str, float]:
        """Accumulate the gradient over the microbatches, then apply it once."""
        parts = [
            self._accumulate(minibatch, micro, old)
            for micro in minibatch.microbatches
            if minibatch.advantages[micro.tokens].any()
        ]
        if not parts:
            return {"actor/updates_without_signal": 1.0}
        loss, clipped, k1, k3, tokens, off = torch.stack(parts).unbind(-1)
        if exact:
            _check_first_ratio(float(off.max()), minibatch.tokens)
        total = float(loss.sum())
        result = self._optimizer.step(total)
        seen = float(tokens.sum())
        return {
            "actor/pg_loss": total,
            "actor/pg_clipfrac": float(clipped.sum()) / len(minibatch.tokens),
            "actor/ppo_kl": float(k1.sum()) / seen,
            "actor/ppo_kl_k3": float(k3.sum()) / seen,
            "actor/grad_norm": result.grad_norm,
            "actor/lr": result.lr,
            "actor/updates_applied": float(result.applied),
            "actor/updates_skipped": float(not result.applied),
        }

    def _accumulate(self, minibatch: Minibatch, micro: Microbatch, old: Tensor) -> Tensor:
        """Add a microbatch's gradient; return its loss, sums, and largest distance of a log ratio from 0."""
        logprobs = compute_logprobs(self.model, micro)
        advantages = torch.from_numpy(minibatch.advantages[micro.tokens]).to(logprobs)
        weights = torch.from_numpy(minibatch.weights[micro.tokens]).to(logprobs)
        surrogate = compute_clipped_surrogate(
            logprobs,
            old[torch.from_numpy(micro.tokens).to(old.device)].to(logprobs),
            advantages,
            clip_low=self.algorithm.clip_low,
            clip_high=self.algorithm.clip_high,
        )
        loss = (weights * surrogate.losses).sum()
        torch.autograd.backward(loss)
        k1, k3 = compute_kl(surrogate.log_ratio)
        off = surrogate.log_ratio.abs().max()
        clipped = surrogate.clipped.sum().to(logprobs)
        count = torch.full_like(off, len(micro.tokens))
        return torch.stack([loss.detach(), clipped, k1.sum(), k3.sum(), count, off])


def check_batch(batch: TrainBatch, algorithm: AlgorithmConfig, *, version: int, max_staleness: int) -> None:
    """Check what training promises about a batch.

    Args:
        batch: what will be learned from.
        algorithm: how its weights were made.
        version: the policy version of the learner.
        max_staleness: how many versions its tokens may be behind.

    Raises:
        InvariantError: a reward is not finite, a loss token has no version or one that the batch may
            not hold, or the weights of a minibatch do not sum to 1.
    """
    if not np.isfinite(batch.rewards).all():
        worst = int(np.flatnonzero(~np.isfinite(batch.rewards))[0])
        raise InvariantError(f"the reward of {batch.episodes[worst]} is {batch.rewards[worst]}, not finite")
    for minibatch in batch.minibatches:
        _check_versions(batch, minibatch.tokens, version, max_staleness)
        total = float(minibatch.weights.sum())
        if algorithm.aggregation != "seq_mean_token_sum" and abs(total - 1) > WEIGHT_SUM_TOLERANCE:
            raise InvariantError(
                f"the weights of a minibatch sum to {total!r}; {algorithm.aggregation} needs 1"
            )


def _check_versions(batch: TrainBatch, tokens: LossTokens, version: int, max_staleness: int) -> None:
    oldest = max(0, version - max_staleness)
    versions = tokens.policy_versions
    wrong = np.flatnonzero((versions < oldest) | (versions > version))
    if len(wrong):
        episode = batch.episodes[tokens.trajectory[wrong[0]]]
        raise InvariantError(
            f"{len(wrong)} of {len(tokens)} tokens come from a version that this batch may not hold: group"
            f" {episode.group_id}, sample {episode.sample_index} has version {versions[wrong[0]]}, but the"
            f" learner holds version {version} and max_staleness is {max_staleness}"
        )


def _check_first_ratio(off: float, tokens: LossTokens) -> None:
    """The learner scored these very arrays with these very weights, so nothing may differ.

    A NaN passes: the update is then skipped because its loss is not finite.
    """
    if off > 0:
        raise InvariantError(
            f"the first ratio must be exactly 1, but a log ratio of {off:.3g} was found among"
            f" {len(tokens)} tokens: scoring and updating did not compute the same. A kernel that is not"
            " deterministic, dropout, or weights changed in between can be the cause"
        )


def _scatter(minibatch: Minibatch, scores: Sequence[Score]) -> Score:
    """Put the scores of the microbatches into the order of the minibatch's tokens."""
    order = torch.from_numpy(np.concatenate([micro.tokens for micro in minibatch.microbatches]))
    logprobs, entropy = (torch.cat(column) for column in zip(*scores, strict=True))
    place = torch.argsort(order.to(logprobs.device))
    return Score(logprobs[place], entropy[place])
