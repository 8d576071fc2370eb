"""The training loop: sample, prepare, update, publish, tell."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from hyperrl.errors import InvariantError
from hyperrl.train.config import TrainConfig
from hyperrl.train.estimates import Estimate
from hyperrl.train.evaluation import Evaluation, compare_success
from hyperrl.train.profiling import StageClock
from hyperrl.train.requirements import Requirements
from hyperrl.train.source import Evaluator, RunObserver, TrajectorySource
from hyperrl.train.statistics import describe_outcomes
from hyperrl.trajectory import Group

__all__ = ["TrainResult", "Trainer", "TrainerParts"]


class _Algorithm(Protocol):
    def prepare(self, groups: Sequence[Group], *, played: Sequence[Group]) -> Any: ...

    def has_signal(self, group: Group) -> bool: ...


class _Learner(Protocol):
    def step(self, batch: Any, *, version: int) -> Mapping[str, float]: ...

    def weights(self) -> Iterable[tuple[str, Any]]: ...

    @property
    def applied_steps(self) -> int: ...


class _Publisher(Protocol):
    def publish(self, version: int, named_tensors: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerParts:
    """What a trainer works with; wiring brings them together.

    ``profile`` gives the context that an iteration, named by its number, runs in.
    """

    source: TrajectorySource
    algorithm: _Algorithm
    learner: _Learner
    publisher: _Publisher
    evaluator: Evaluator
    observer: RunObserver
    profile: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a run came to.

    Attributes:
        before, after: held-out evaluations of version 0 and of the last version.
        iterations: finished iterations.
        policy_version: the last published version.
        seconds: wall seconds from the first publication to the last evaluation.
        unmet: what the section ``require`` demands and the run did not show, in words.
    """

    before: Evaluation
    after: Evaluation
    iterations: int
    policy_version: int
    seconds: float
    unmet: tuple[str, ...] = ()

    @property
    def gain(self) -> Estimate:
        """Sampled success gained, task by task, with its 95 % interval."""
        return compare_success(self.before.sampled, self.after.sampled)

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` holds: sampled held-out success, what it took and what is unmet."""
        before, after = self.before.sampled.success, self.after.sampled.success
        return {
            "before": before.mean,
            "after": after.mean,
            "gain": self.gain.mean,
            "gain_low": self.gain.low,
            "gain_high": self.gain.high,
            "iterations": self.iterations,
            "policy_version": self.policy_version,
            "seconds": round(self.seconds, 1),
            "unmet": list(self.unmet),
        }


class Trainer:
    """Runs iterations: one batch of groups, its updates, one publication each.

    Version 0 is the initial policy, published before the first sample; iteration k publishes version
    k, or nothing where every update was skipped.

    Attributes:
        version: the last published version; -1 before the first.
        iteration: the last finished iteration; 0 before the first.
    """

    def __init__(self, config: TrainConfig, parts: TrainerParts) -> None:
        self.config = config
        self.version = -1
        self.iteration = 0
        self._parts = parts
        warmup = config.critic.warmup if config.algorithm.needs_critic else 0
        self._requirements = Requirements(config.require, skipped=warmup)

    def run(self) -> TrainResult:
        """Train to the end, or until it shows that what ``require`` demands will be missing.

        Raises:
            InvariantError: a rule that training promises to keep was broken.
            RolloutError: no episode of a batch could be played.
            PublicationError: a version could not be made live.
        """
        began = time.monotonic()
        self._publish(0)
        before = after = self._evaluate()
        while self.iteration < self.config.iterations and not self._requirements.unmet:
            self.iterate()
            if self._is_evaluated():
                after = self._evaluate()
        result = TrainResult(
            before=before,
            after=after,
            iterations=self.iteration,
            policy_version=self.version,
            seconds=time.monotonic() - began,
        )
        if not self._requirements.unmet:
            self._requirements.finish(success=after.sampled.success.mean, gain=result.gain)
        return dataclasses.replace(result, unmet=tuple(self._requirements.unmet))

    def _is_evaluated(self) -> bool:
        every, done = self.config.evaluation.every, self.iteration
        ends = done == self.config.iterations or bool(self._requirements.unmet)
        return ends or bool(every and done % every == 0)

    def iterate(self) -> None:
        """Take one batch, learn from it, and publish the new version if there is one.

        Raises:
            InvariantError, PublicationError, RolloutError: as for :meth:`run`.
        """
        with self._parts.profile(self.iteration + 1):
            self._iterate(self.iteration + 1)

    def _iterate(self, iteration: int) -> None:
        parts = self._parts
        clock = StageClock()
        with clock.measure("gen"):
            played, learned = self._sample()
        with clock.measure("store"):
            parts.observer.on_batch(iteration, played)
        with clock.measure("adv"):
            batch = parts.algorithm.prepare(learned, played=played)
        steps = parts.learner.applied_steps
        metrics = dict(parts.learner.step(batch, version=self.version))
        if parts.learner.applied_steps > steps:
            with clock.measure("update_weights"):
                self._publish(iteration)
        self.iteration = iteration
        metrics["training/global_step"] = float(iteration)
        metrics["training/epoch"] = float(played[0].group_id[0])
        metrics["groups/played"] = float(len(played))
        metrics["policy/version"] = float(self.version)
        metrics |= describe_outcomes(played, success=self.config.evaluation.success)
        parts.observer.on_iteration(iteration, metrics | _describe_time(clock, metrics))
        self._requirements.see(iteration, metrics)

    def _sample(self) -> tuple[list[Group], list[Group]]:
        """Play a batch; return all groups, and those to learn from.

        With dynamic sampling (DAPO, Yu et al. 2025, section 3.2) groups without signal are left out, and
        further batches are played until there are enough others or the bound is reached.
        """
        size, source = self.config.rollout.groups, self._parts.source
        played = list(source.next_batch(version=self.version, size=size))
        further = self.config.algorithm.dynamic_sampling
        if not further:
            return played, played
        learned = list(filter(self._parts.algorithm.has_signal, played))
        while len(learned) < size and further:
            more = list(source.next_batch(version=self.version, size=size))
            played += more
            learned += filter(self._parts.algorithm.has_signal, more)
            further -= 1
        return played, learned[:size]

    def _publish(self, version: int) -> None:
        if version <= self.version:
            raise InvariantError(f"version {version} would be published after version {self.version}")
        self._parts.publisher.publish(version, dict(self._parts.learner.weights()))
        self.version = version

    def _evaluate(self) -> Evaluation:
        clock = StageClock()
        evaluation = self._parts.evaluator.evaluate(version=self.version, iteration=self.iteration)
        self._parts.observer.on_evaluation(self.iteration, evaluation, seconds=clock.total)
        return evaluation


def _describe_time(clock: StageClock, known: Mapping[str, float]) -> dict[str, float]:
    step = clock.total
    found = {**clock.metrics(), "timing_s/step": step, "perf/time_per_step": step}
    if tokens := known.get("perf/total_num_tokens"):
        found["perf/throughput"] = tokens / step
    return found
