"""The learner: scores a batch, passes the gate, and updates the policy.

Shapes: N loss tokens of a minibatch, n of a microbatch, B episodes of a batch.

What training promises is checked here on every batch, not only in tests: the first on-policy ratio
is exactly 1, weights sum to 1, every sampled token has a version that the batch may hold, rewards
are finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperrl.errors import InvariantError
from hyperrl.sampling import EpisodeKey
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.batch_checks import check_batch, check_first_ratio, check_parts
from hyperrl.train.batch_scores import (
    BatchScores,
    correct_mismatch,
    estimate_from_scores,
    in_token_order,
    score_minibatch,
)
from hyperrl.train.batching import Microbatch, Minibatch, TrainBatch
from hyperrl.train.config import OptimizerConfig
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.device import peak_memory_bytes
from hyperrl.train.flops import UpdateMeter
from hyperrl.train.metrics import reduce_metrics, summarise
from hyperrl.train.nonfinite import SkippedUpdate, SkipWatch, find_culprits, unsound_weights
from hyperrl.train.optimization import Optimizer
from hyperrl.train.policy_pass import PassSums, PolicyUpdate, run_pass
from hyperrl.train.profiling import StageClock
from hyperrl.train.scoring import Score, score_microbatch

__all__ = ["Auxiliary", "Critic", "Learner"]

Floats = NDArray[np.float64]


class Critic(Protocol):
    """A value function that learns beside the policy."""

    def score(self, batch: TrainBatch) -> tuple[list[Floats], Floats]:
        """Return f64[N] values for each minibatch, and f64[B] values after truncated episodes."""
        ...

    def update(self, minibatch: Minibatch, values: Floats) -> dict[str, float]:
        """Make one update towards ``minibatch.returns``; ``values`` are those of ``score``."""
        ...

    def probe(self, minibatch: Minibatch, values: Floats, micro: Microbatch) -> float:
        """Return the norm of a microbatch's gradient, NaN where its loss is not finite; change nothing."""
        ...


class _Opening(NamedTuple):
    """The pass over the first minibatch, where it is scored by the pass that learns from it.

    Attributes:
        parts: sums of the microbatches that have a gradient, which is accumulated and not yet applied.
        score: of all its tokens.
    """

    parts: list[PassSums]
    score: Score


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in its batch an update stands.

    Attributes:
        episodes: names of the batch's episodes.
        version: policy version of the batch.
        steps_before: updates that had been applied when the batch began.
        clock: counts the seconds of each model's updates.
        index: the minibatch.
    """

    episodes: tuple[EpisodeKey, ...]
    version: int
    steps_before: int
    clock: StageClock
    index: int = 0

    def at(self, index: int) -> _Place:
        return replace(self, index=index)

    def skipped(self, model: str, loss: float, grad_norm: float, culprits: tuple[int, ...]) -> SkippedUpdate:
        return SkippedUpdate(
            model=model,
            version=self.version,
            minibatch=self.index,
            loss=loss,
            grad_norm=grad_norm,
            episodes=tuple(self.episodes[i] for i in culprits),
        )


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
        self._skips = {name: SkipWatch(algorithm.skip_limit) for name in ("policy", "critic")}
        self._meter = UpdateMeter(model)
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
            NonFiniteError: ``skip_limit`` updates in a row were left out; says which episodes caused it.
        """
        check_batch(batch, self.algorithm, version=version, max_staleness=self.max_staleness)
        clock = StageClock()
        opening = None
        if self._scores_while_learning(batch):
            with clock.measure("update_actor"):
                opening = self._open(batch)
        try:
            scores = self._score_batch(batch, version, opening, clock)
        except BaseException:
            self._optimizer.clear()  # what the opening pass has accumulated
            raise
        if self.algorithm.needs_scores:
            batch = estimate_from_scores(batch, scores, self.algorithm)
        place = _Place(batch.episodes, version, self.applied_steps, clock)
        reports = [
            self._update_both(minibatch, scores, place.at(index), None if epoch or index else opening)
            for epoch in range(self.algorithm.epochs)
            for index, minibatch in enumerate(batch.minibatches)
        ]
        self._batches += 1
        return {
            **batch.metrics,
            **scores.metrics,
            **_describe_advantages(batch.minibatches),
            **reduce_metrics(reports),
            **clock.metrics(),
            **self._meter.take(clock.seconds.get("update_actor", 0.0)),
            **_describe_memory(next(self.model.parameters()).device),
            "training/optimizer_steps": float(self.applied_steps),
        }

    def _scores_while_learning(self, batch: TrainBatch) -> bool:
        """Whether the first minibatch need not be scored before the pass that learns from it.

        The first batch is scored apart, which proves that scoring and learning compute the same.
        """
        alone = self.algorithm.learns_from_tokens_alone and not self._warming_up
        return alone and self._batches > 0 and bool(batch.minibatches)

    def _open(self, batch: TrainBatch) -> _Opening:
        """Accumulate the gradient of the first minibatch, whose old logprobs are those of this very pass."""
        minibatch = batch.minibatches[0]
        update = PolicyUpdate(minibatch=minibatch, old=None, advantages=_advantages(minibatch))
        parts, scores = [], []
        for micro in minibatch.microbatches:
            if self._learns_from(update, micro):
                sums, score = self._run(update, micro)
                parts.append(sums)
            else:
                score = score_microbatch(self.model, micro)
            scores.append(score)
        return _Opening(parts, in_token_order(minibatch, scores))

    def _score_batch(
        self, batch: TrainBatch, version: int, opening: _Opening | None, clock: StageClock
    ) -> BatchScores:
        """Score with every model that the algorithm asks, and pass the gate."""
        with clock.measure("old_log_prob"):
            scores = self._score_policy(batch, version, opening)
        reference = None
        if self.reference is not None and self.algorithm.kl.place != "none":
            with clock.measure("ref"):
                reference = [score_minibatch(self.reference, m).logprobs for m in batch.minibatches]
        if self.critic is None:
            return replace(scores, reference=reference)
        with clock.measure("values"):
            values, bootstrap = self.critic.score(batch)
        return replace(scores, reference=reference, values=values, bootstrap=bootstrap)

    def _score_policy(self, batch: TrainBatch, version: int, opening: _Opening | None) -> BatchScores:
        """Score with the policy, where that is needed, and pass the gate."""
        config = self.algorithm
        old = [torch.from_numpy(m.tokens.behavior_logprobs) for m in batch.minibatches]
        correction, metrics = None, {}
        recompute = config.old_logprobs == "recompute"
        if batch.minibatches and (recompute or self.gate.enforced or config.correction.mode != "off"):
            scores = [] if opening is None else [opening.score]
            scores += [score_minibatch(self.model, m) for m in batch.minibatches[len(scores) :]]
            logprobs = [score.logprobs for score in scores]
            metrics = self.gate.check(batch, logprobs, version=version)
            metrics["actor/entropy"] = float(torch.cat([score.entropy for score in scores]).mean())
            correction, mismatch = correct_mismatch(batch, logprobs, config)
            metrics |= mismatch
            old = logprobs if recompute else old
        return BatchScores(old=old, correction=correction, metrics=metrics)

    def _update_both(
        self, minibatch: Minibatch, scores: BatchScores, place: _Place, opening: _Opening | None
    ) -> dict[str, float]:
        in_loss = scores.reference if self.algorithm.kl.place == "loss" else None
        update = PolicyUpdate(
            minibatch=minibatch,
            old=scores.old[place.index],
            advantages=_advantages(minibatch),
            reference=None if in_loss is None else in_loss[place.index],
            correction=None if scores.correction is None else scores.correction[place.index],
        )
        report: dict[str, float] = {}
        if not self._warming_up:
            with place.clock.measure("update_actor"):
                report |= self._update(update, place, opening)
        if self.critic is not None and scores.values is not None:
            with place.clock.measure("update_critic"):
                report |= self._update_critic(self.critic, minibatch, scores.values[place.index], place)
        return report

    def _run(self, update: PolicyUpdate, micro: Microbatch) -> tuple[PassSums, Score]:
        self._meter.add(micro)
        return run_pass(self.model, update, micro, self.algorithm)

    def _learns_from(self, update: PolicyUpdate, micro: Microbatch) -> bool:
        return self.algorithm.learns_without_advantage or bool(update.advantages[micro.tokens].any())

    def _update(self, update: PolicyUpdate, place: _Place, opening: _Opening | None) -> dict[str, float]:
        """Accumulate the gradient over the microbatches, unless that was done, then apply it once."""
        if opening is None:
            parts = [
                self._run(update, micro)[0]
                for micro in update.minibatch.microbatches
                if self._learns_from(update, micro)
            ]
        else:
            parts = opening.parts
        if not parts:
            return {"actor/updates_without_signal": 1.0}
        sums = PassSums.join(parts)
        if self.applied_steps == place.steps_before and self.algorithm.old_logprobs == "recompute":
            check_first_ratio(float(sums.moved), update.minibatch.tokens)
        total = float(sums.loss)
        result = self._optimizer.step(total)
        if result.applied:
            self._skips["policy"].applied()
        else:
            self._skip_policy(update, place, total, result.grad_norm)
        report = {
            "actor/loss": total,
            "actor/pg_loss": float(sums.policy),
            "actor/pg_clipfrac": float(sums.clipped - sums.capped) / len(update.minibatch.tokens),
            "actor/pg_clipfrac_lower": float(sums.capped) / len(update.minibatch.tokens),
            "actor/ppo_kl": float(sums.k1 / sums.tokens),
            "actor/ppo_kl_k3": float(sums.k3 / sums.tokens),
            "actor/grad_norm": result.grad_norm,
            "actor/lr": result.lr,
            "actor/updates_applied": float(result.applied),
            "actor/updates_skipped": float(not result.applied),
        }
        if update.reference is not None:
            report["actor/kl_loss"] = float(sums.kl)
        if self.algorithm.entropy_coef:
            report["actor/entropy_loss"] = float(sums.entropy)
        return report

    def _update_critic(
        self, critic: Critic, minibatch: Minibatch, values: Floats, place: _Place
    ) -> dict[str, float]:
        report = critic.update(minibatch, values)
        if report.get("critic/updates_applied"):
            self._skips["critic"].applied()
        elif report.get("critic/updates_skipped"):
            culprits = find_culprits(
                minibatch.microbatches, minibatch.tokens, lambda micro: critic.probe(minibatch, values, micro)
            )
            skipped = place.skipped("critic", report["critic/vf_loss"], report["critic/grad_norm"], culprits)
            self._skips["critic"].skipped(skipped)
        return report

    def _skip_policy(self, update: PolicyUpdate, place: _Place, loss: float, grad_norm: float) -> None:
        """Find out who made an update's loss or gradient not finite, and tell the watch."""

        def probe(row: Microbatch) -> float:
            if not self._learns_from(update, row):
                return 0.0
            sums, _ = run_pass(self.model, update, row, self.algorithm)
            norm = float(self._optimizer.gradient_norm()) if bool(sums.loss.isfinite()) else math.nan
            self._optimizer.clear()
            return norm

        weights = unsound_weights(self.model)
        minibatch = update.minibatch
        culprits = () if weights else find_culprits(minibatch.microbatches, minibatch.tokens, probe)
        skipped = place.skipped("policy", loss, grad_norm, culprits)
        self._skips["policy"].skipped(replace(skipped, weights=weights))


def _describe_memory(device: torch.device) -> dict[str, float]:
    name = "perf/cpu_memory_used_gb" if device.type == "cpu" else "perf/max_memory_allocated_gb"
    return {name: peak_memory_bytes(device) / 2**30}


def _advantages(minibatch: Minibatch) -> Floats:
    if minibatch.advantages is None:
        raise InvariantError("a minibatch without advantages cannot be learned from")
    return minibatch.advantages


def _describe_advantages(minibatches: Sequence[Minibatch]) -> dict[str, float]:
    values = [m.advantages for m in minibatches if m.advantages is not None]
    return summarise("critic/advantages", np.concatenate([np.zeros(0), *values]).tolist())
