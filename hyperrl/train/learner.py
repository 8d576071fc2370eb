"""The learner: scores a batch, passes the gate, and updates the policy.

Shapes: N loss tokens of a minibatch, n of a microbatch, B episodes of a batch.

What training promises is checked here on every batch, not only in tests: the first on-policy ratio
is exactly 1, weights sum to 1, every sampled token has a version that the batch may hold, rewards
are finite.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperrl.errors import InvariantError
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.batch_checks import check_batch, check_first_ratio, check_parts
from hyperrl.train.batch_scores import (
    BatchScores,
    correct_mismatch,
    estimate_from_scores,
    score_minibatch,
)
from hyperrl.train.batching import Microbatch, Minibatch, TrainBatch
from hyperrl.train.config import OptimizerConfig
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.kl import compute_kl, estimate_drift
from hyperrl.train.losses import LOG_RATIO_LIMIT, LOSSES, LossInput, compute_token_losses
from hyperrl.train.metrics import reduce_metrics, summarise
from hyperrl.train.optimization import Optimizer
from hyperrl.train.scoring import compute_logprobs, compute_score

__all__ = ["Auxiliary", "Critic", "Learner", "PolicyUpdate"]

Floats = NDArray[np.float64]


class Critic(Protocol):
    """A value function that learns beside the policy."""

    def score(self, batch: TrainBatch) -> tuple[list[Floats], Floats]:
        """Return f64[N] values for each minibatch, and f64[B] values after truncated episodes."""
        ...

    def update(self, minibatch: Minibatch, values: Floats) -> dict[str, float]:
        """Make one update towards ``minibatch.returns``; ``values`` are those of ``score``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyUpdate:
    """What one optimizer step of the policy looks at, all of length N.

    Attributes:
        minibatch: its tokens and weights.
        old: denominators of the ratios.
        advantages: of each token.
        reference: the reference's logprobs, where a KL is part of the loss.
        correction: weights for the mismatch of sampler and learner, where they are on.
    """

    minibatch: Minibatch
    old: Tensor
    advantages: Floats
    reference: Tensor | None = None
    correction: Floats | None = None


class Auxiliary(NamedTuple):
    """Models beside the policy.

    Attributes:
        reference: the frozen policy that a KL is measured to; never changed.
        critic: learns values, where the advantage asks for them.
        critic_warmup: first batches from which only the critic learns.
    """

    reference: nn.Module | None = None
    critic: Critic | None = None
    critic_warmup: int = 0


class Learner:
    """Owns the policy's weights and their optimizer.

    The model is put into evaluation mode: dropout would make the sampler another policy.

    Args:
        model: a causal language model; its parameters are changed in place.
        algorithm: the parts of the update.
        optimizer: AdamW and its schedule.
        gate: compares the sampler with the learner before every batch.
        auxiliary: reference and critic, where the algorithm needs them.
        max_staleness: how many versions the tokens of a batch may be behind.

    Raises:
        ConfigError: the algorithm names a loss or an advantage that there is not, or needs a reference or
            a critic that is not given.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        gate: ConsistencyGate,
        auxiliary: Auxiliary = Auxiliary(),  # noqa: B008  # immutable
        max_staleness: int = 0,
    ) -> None:
        reference, critic, self._warmup = auxiliary
        self._batches = 0
        check_parts(algorithm, reference=reference is not None, critic=critic is not None)
        self.model = model.eval()
        self.reference = None if reference is None else reference.eval().requires_grad_(False)
        self.critic = critic
        self.algorithm = algorithm
        self.gate = gate
        self.max_staleness = max_staleness
        self._loss = LOSSES.find(algorithm.loss)
        self._optimizer = Optimizer(model, optimizer)

    @property
    def applied_steps(self) -> int:
        """Updates that changed the weights since the learner was made."""
        return self._optimizer.applied_steps

    @property
    def _warming_up(self) -> bool:
        return self._batches < self._warmup

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
        return score_minibatch(self.model, minibatch).logprobs

    def step(self, batch: TrainBatch, *, version: int) -> dict[str, float]:
        """Learn from one batch: score it, pass the gate, then one update for each minibatch and epoch.

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
        scores = self._score_batch(batch, version)
        if self.algorithm.needs_scores:
            batch = estimate_from_scores(batch, scores, self.algorithm)
        scored = time.perf_counter()
        reports = [
            self._update_both(minibatch, scores, index, first=not (epoch or index))
            for epoch in range(self.algorithm.epochs)
            for index, minibatch in enumerate(batch.minibatches)
        ]
        timings = {
            "timing_s/old_log_prob": scored - started,
            "timing_s/update_actor": time.perf_counter() - scored,
            "training/optimizer_steps": float(self.applied_steps),
        }
        self._batches += 1
        described = _describe_advantages(batch.minibatches)
        return {**batch.metrics, **scores.metrics, **described, **reduce_metrics(reports), **timings}

    def _score_batch(self, batch: TrainBatch, version: int) -> BatchScores:
        """Score with every model that the algorithm asks, and pass the gate."""
        config = self.algorithm
        old = [torch.from_numpy(m.tokens.behavior_logprobs) for m in batch.minibatches]
        correction, metrics = None, {}
        recompute = config.old_logprobs == "recompute"
        if batch.minibatches and (recompute or self.gate.enforced or config.correction.mode != "off"):
            scores = [score_minibatch(self.model, minibatch) for minibatch in batch.minibatches]
            logprobs = [score.logprobs for score in scores]
            metrics = self.gate.check(batch, logprobs, version=version)
            metrics["actor/entropy"] = float(torch.cat([score.entropy for score in scores]).mean())
            correction, mismatch = correct_mismatch(batch, logprobs, config)
            metrics |= mismatch
            old = logprobs if recompute else old
        reference = None
        if self.reference is not None and config.kl.place != "none":
            reference = [score_minibatch(self.reference, m).logprobs for m in batch.minibatches]
        values, bootstrap = (None, None) if self.critic is None else self.critic.score(batch)
        return BatchScores(
            old=old,
            reference=reference,
            correction=correction,
            values=values,
            bootstrap=bootstrap,
            metrics=metrics,
        )

    def _update_both(
        self, minibatch: Minibatch, scores: BatchScores, index: int, *, first: bool
    ) -> dict[str, float]:
        if minibatch.advantages is None:
            raise InvariantError("a minibatch without advantages cannot be learned from")
        in_loss = scores.reference if self.algorithm.kl.place == "loss" else None
        update = PolicyUpdate(
            minibatch=minibatch,
            old=scores.old[index],
            advantages=minibatch.advantages,
            reference=None if in_loss is None else in_loss[index],
            correction=None if scores.correction is None else scores.correction[index],
        )
        report = {} if self._warming_up else self._update(update, first=first)
        if self.critic is not None and scores.values is not None:
            report |= self.critic.update(minibatch, scores.values[index])
        return report

    def _update(self, update: PolicyUpdate, *, first: bool) -> dict[str, float]:
        """Accumulate the gradient over the microbatches, then apply it once."""
        always = self.algorithm.learns_without_advantage
        parts = [
            self._accumulate(update, micro)
            for micro in update.minibatch.microbatches
            if always or update.advantages[micro.tokens].any()
        ]
        if not parts:
            return {"actor/updates_without_signal": 1.0}
        loss, policy, clipped, k1, k3, kl, entropy, tokens, off = torch.stack(parts).unbind(-1)
        if first and self.algorithm.old_logprobs == "recompute":
            check_first_ratio(float(off.max()), update.minibatch.tokens)
        total = float(loss.sum())
        result = self._optimizer.step(total)
        seen = float(tokens.sum())
        report = {
            "actor/loss": total,
            "actor/pg_loss": float(policy.sum()),
            "actor/pg_clipfrac": float(clipped.sum()) / len(update.minibatch.tokens),
            "actor/ppo_kl": float(k1.sum()) / seen,
            "actor/ppo_kl_k3": float(k3.sum()) / seen,
            "actor/grad_norm": result.grad_norm,
            "actor/lr": result.lr,
            "actor/updates_applied": float(result.applied),
            "actor/updates_skipped": float(not result.applied),
        }
        if update.reference is not None:
            report["actor/kl_loss"] = float(kl.sum())
        if self.algorithm.entropy_coef:
            report["actor/entropy_loss"] = float(entropy.sum())
        return report

    def _accumulate(self, update: PolicyUpdate, micro: Microbatch) -> Tensor:
        """Add a microbatch's gradient; return losses, sums and the largest magnitude of a log ratio."""
        config = self.algorithm
        entropy: Tensor | None = None
        if config.entropy_coef:
            logprobs, entropy = compute_score(self.model, micro)
        else:
            logprobs = compute_logprobs(self.model, micro)
        chosen = torch.from_numpy(micro.tokens)
        old = _pick(update.old, chosen, logprobs)
        weights = _pick(update.minibatch.weights, chosen, logprobs)
        found = compute_token_losses(
            self._loss,
            LossInput(
                logprobs=logprobs,
                old_logprobs=old,
                advantages=_pick(update.advantages, chosen, logprobs),
                sequence=torch.from_numpy(micro.sequence).to(logprobs.device),
            ),
            config,
        )
        losses = found.losses
        if update.correction is not None:
            losses = losses * _pick(update.correction, chosen, logprobs)
        loss = policy = (weights * losses).sum()
        kl = bonus = torch.zeros_like(policy)
        if update.reference is not None:
            reference = _pick(update.reference, chosen, logprobs)
            kl = (weights * compute_kl(logprobs, reference, config.kl.estimator)).sum()
            loss = loss + config.kl.coef * kl
        if entropy is not None:
            bonus = (weights * entropy).sum()
            loss = loss - config.entropy_coef * bonus
        torch.autograd.backward(loss)
        moved = logprobs.detach() - old
        k1, k3 = estimate_drift(moved.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
        clipped = policy.new_zeros(()) if found.clipped is None else found.clipped.sum().to(policy)
        count = policy.new_full((), len(micro.tokens))
        sums = [loss, policy, clipped, k1.sum(), k3.sum(), kl, bonus, count, moved.abs().max()]
        return torch.stack([value.detach() for value in sums])


def _pick(values: Tensor | Floats, chosen: Tensor, like: Tensor) -> Tensor:
    """Return the chosen values on the device and in the type of ``like``."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    return tensor[chosen.to(tensor.device)].to(like)


def _describe_advantages(minibatches: Sequence[Minibatch]) -> dict[str, float]:
    values = [m.advantages for m in minibatches if m.advantages is not None]
    return summarise("critic/advantages", np.concatenate([np.zeros(0), *values]).tolist())
