"""The updates of a run once more, from its stored episodes: nothing is sampled, everything else is the same.

Iteration k needs the weights and the optimizer that iteration k - 1 left. Runs keep neither, but the store
keeps what they were learned from, so the replay begins at version 0 and repeats every update up to k with
the very code of training. On one machine that gives the same metrics and weights, bit for bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from hyperrl.errors import DataError, InvariantError, RunDirectoryError
from hyperrl.store import list_iterations, read_trajectories
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import TrainConfig, load_config
from hyperrl.train.device import resolve_device, resolve_dtype, set_threads
from hyperrl.train.evaluation import Evaluation
from hyperrl.train.learner import Learner
from hyperrl.train.models import equal_weights, load_model, save_model
from hyperrl.train.trainer import Trainer, TrainerParts
from hyperrl.trajectory import Group
from hyperrl.wiring.display import Display
from hyperrl.wiring.learner import make_learner, resolve_packing
from hyperrl.wiring.run_directory import refuse_unwritable

__all__ = ["Replay", "ReplayJob", "run_replay"]

UNREPEATED = ("timing_s/", "perf/")
"""Metrics of the machine, which no replay repeats."""

Number = float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What to replay.

    Attributes:
        run_dir: folder of the run.
        iteration: which of its iterations, from 1.
        model: weights to begin with, those that played the iteration; ``None`` repeats all the updates
            before it.
        overrides: ``a.b=c``, changes of the run's config.
        out: where to write the model after the update, if anywhere.
    """

    run_dir: Path
    iteration: int
    model: Path | None = None
    overrides: Sequence[str] = ()
    out: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay came to, next to what the run had logged.

    Attributes:
        iteration: which.
        metrics: of the replay; machine times left out.
        recorded: of the run; ``None`` where it logged none, because it failed there.
        weights_equal: the weights after the update are those of the run's ``model/``, bit for bit; ``None``
            where they cannot be compared.
        faithful: nothing was changed, so that the same numbers are to be expected.
    """

    iteration: int
    metrics: Mapping[str, Number]
    recorded: Mapping[str, Number] | None
    weights_equal: bool | None = None
    faithful: bool = True

    @property
    def differences(self) -> dict[str, tuple[Number, Number]]:
        """Metrics that are not equal bit for bit: the run's value and the replay's.

        ``None`` stands for what is no number, or not there.
        """
        if self.recorded is None:
            return {}
        names = [*self.recorded, *(name for name in self.metrics if name not in self.recorded)]
        pairs = {name: (self.recorded.get(name), self.metrics.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def run_replay(job: ReplayJob, display: Display) -> Replay:
    """Repeat an update of a run.

    Raises:
        ConfigError, DataError, ModelError, RunDirectoryError, StoreError: before anything starts.
        InvariantError: the update breaks the rule that stopped the run.
    """
    config = _read_config(job)
    if job.out is not None:
        refuse_unwritable(job.out)
        if job.out.exists() and any(job.out.iterdir()):
            raise RunDirectoryError(f"{job.out} is not empty; choose another folder with --out")
    store = job.run_dir / "trajectories"
    first = job.iteration if job.model is not None else 1
    _check_stored(store, first, job.iteration)
    set_threads(config.model.threads)
    learner = make_learner(config)
    episodes = _Stored(store)
    trainer = Trainer(config, _make_parts(config, learner, episodes))
    episodes.begin(first)
    trainer.iteration, trainer.version = first - 1, episodes.version if job.model is not None else 0
    display.start("replaying updates", job.iteration - first + 1)
    for iteration in range(first, job.iteration + 1):
        episodes.begin(iteration)
        trainer.iterate()
        display.advance(1, f"iteration {iteration}")
    display.stop()
    if job.out is not None:
        save_model(learner.model, job.out, tokenizer_from=config.model.path)
    faithful = not (job.overrides or job.model)
    return Replay(
        iteration=job.iteration,
        metrics=episodes.metrics,
        recorded=_read_metrics(job.run_dir / "metrics.jsonl", job.iteration),
        weights_equal=_compare_weights(job, config, learner) if faithful else None,
        faithful=faithful,
    )


def _read_config(job: ReplayJob) -> TrainConfig:
    path = job.run_dir / "config.yaml"
    if not path.is_file():
        raise RunDirectoryError(
            f"{job.run_dir} holds no run: there is no config.yaml; give the run.dir of one"
        )
    config = load_config(path, job.overrides)
    if job.model is None:
        return config
    # The reference and the critic begin where they began in the run.
    start = config.model.path
    reference = config.reference.model_copy(update={"path": config.reference.path or start})
    critic = config.critic.model_copy(update={"path": config.critic.path or start})
    model = config.model.model_copy(update={"path": job.model})
    return config.model_copy(update={"model": model, "reference": reference, "critic": critic})


def _check_stored(store: Path, first: int, last: int) -> None:
    stored = list_iterations(store)
    missing = [iteration for iteration in range(first, last + 1) if iteration not in stored]
    if last < 1 or missing:
        known = f"{min(stored)} to {max(stored)}" if stored else "none"
        raise DataError(
            f"{store} has no episodes of iteration {missing[0] if missing else last}; it holds {known}."
            " A replay needs every iteration up to its own, or --model with the weights that played it"
        )


def _make_parts(config: TrainConfig, learner: Learner, episodes: _Stored) -> TrainerParts:
    return TrainerParts(
        source=episodes,
        algorithm=Algorithm(
            resolve_packing(config), seed=config.run.seed, max_tokens=config.rollout.max_tokens
        ),
        learner=learner,
        publisher=episodes,
        evaluator=episodes,
        observer=episodes,
    )


class _Stored:
    """What surrounds a trainer that replays: the episodes of a store, and nobody to publish to."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._iteration = 0
        self._groups: list[Group] = []
        self.metrics: dict[str, Number] = {}

    def begin(self, iteration: int) -> None:
        """Take the episodes of an iteration next."""
        episodes = read_trajectories(self._store, iterations={iteration})
        self._iteration = iteration
        self._groups = [
            Group(group_id, tuple(members)) for group_id, members in groupby(episodes, lambda t: t.group_id)
        ]

    @property
    def version(self) -> int:
        """The policy version that played the iteration."""
        turns = (turn for group in self._groups for episode in group for turn in episode.turns)
        return max((int(turn.policy_versions.max()) for turn in turns if turn.sampled), default=0)

    def next_batch(self, *, version: int, size: int) -> Sequence[Group]:  # noqa: ARG002  # of the protocol
        """Return the next ``size`` groups of the iteration. Raises DataError where it has no more."""
        batch, self._groups = self._groups[:size], self._groups[size:]
        if not batch:
            raise DataError(
                f"iteration {self._iteration} of {self._store} has no further group to learn from;"
                " this config asks for more than the run played"
            )
        return batch

    def publish(self, version: int, named_tensors: Mapping[str, Any]) -> None:
        """Tell nobody."""

    def evaluate(self, *, version: int, iteration: int) -> Evaluation:
        """Refuse: a replay plays nothing."""
        raise InvariantError(f"a replay cannot evaluate version {version} after iteration {iteration}")

    def on_batch(self, iteration: int, groups: Sequence[Group]) -> None:
        """Keep nothing: they are stored."""

    def on_iteration(self, iteration: int, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        """Keep the metrics of the iteration, as the run's file would."""
        self.metrics = _repeated((name, float(value)) for name, value in metrics.items())

    def on_evaluation(self, iteration: int, evaluation: Evaluation, *, seconds: float) -> None:
        """Keep nothing: there is none."""


def _repeated(metrics: Iterable[tuple[str, Number]]) -> dict[str, Number]:
    return {
        name: None if value is None or not math.isfinite(value) else value
        for name, value in metrics
        if name != "step" and not name.startswith(UNREPEATED)
    }


def _read_metrics(path: Path, iteration: int) -> dict[str, Number] | None:
    """Return what the run logged of an iteration; ``None`` where it logged nothing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # a line torn by a power cut
            continue
        if row.get("step") == iteration and "training/global_step" in row:
            return _repeated(row.items())
    return None


def _compare_weights(job: ReplayJob, config: TrainConfig, learner: Learner) -> bool | None:
    """Compare with the run's final model, where the iteration was its last."""
    try:
        summary = json.loads((job.run_dir / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if summary.get("iterations") != job.iteration or not (job.run_dir / "model").is_dir():
        return None
    kept = load_model(
        job.run_dir / "model",
        dtype=resolve_dtype(config.model.dtype),
        device=resolve_device(config.model.device),
        attention=config.model.attention,
    )
    return equal_weights(learner.model, kept)
