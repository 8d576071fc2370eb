"""A whole training run: from a config to a folder with a trained model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyperrl.agents.rendering import Renderer
from hyperrl.errors import LearningError, NonFiniteError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import TrainConfig, dump_config
from hyperrl.train.device import resolve_device, resolve_dtype, set_threads
from hyperrl.train.models import save_model
from hyperrl.train.profiling import IterationProfiler
from hyperrl.train.publication import Publisher
from hyperrl.train.samplers import TorchSampler
from hyperrl.train.trainer import Trainer, TrainerParts, TrainResult
from hyperrl.wiring.display import Display
from hyperrl.wiring.failure_record import keep_failure
from hyperrl.wiring.held_out import HeldOut
from hyperrl.wiring.learner import make_learner, resolve_packing
from hyperrl.wiring.observer import RunObserver
from hyperrl.wiring.player import Player
from hyperrl.wiring.preflight import check_run
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.run_directory import RunDirectory
from hyperrl.wiring.source import EnvSource

__all__ = ["RunOutcome", "make_sampler", "open_player", "run_training"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run and where it lies."""

    result: TrainResult
    directory: Path


def run_training(config: TrainConfig, display: Display) -> RunOutcome:
    """Check everything, train, and leave config, metrics, trajectories, curve, model and summary.

    Raises:
        ConfigError, DataError, ModelError, RunDirectoryError: before anything starts.
        InvariantError, NonFiniteError, PublicationError, RolloutError: while it runs; what was written stays.
        LearningError: it ended without what ``require`` demands; all files are there.
    """
    checked = check_run(config)
    # Reading the weights first shows what is wrong with them before anything is written.
    learner = make_learner(config)
    with RunDirectory(config.run.dir, overwrite=config.run.overwrite) as run, ExitStack() as stack:
        sampler = make_sampler(config)
        player = stack.enter_context(open_player(config, sampler, checked.renderer))
        run.write_config(dump_config(config))
        observer = RunObserver(run, display, config, tokenizer=checked.renderer.tokenizer.vocabulary_digest)
        stack.callback(observer.close)
        parts = TrainerParts(
            source=EnvSource(
                config,
                player=player,
                tasks=checked.train_tasks,
                served_version=lambda: sampler.policy_version,
                on_episode=observer.on_episode,
            ),
            algorithm=Algorithm(
                resolve_packing(config), seed=config.run.seed, max_tokens=config.rollout.max_tokens
            ),
            learner=learner,
            publisher=Publisher([sampler], bucket_bytes=config.sampler.bucket_bytes),
            evaluator=HeldOut(
                config,
                player=player,
                tasks=checked.held_out_tasks,
                on_start=lambda episodes: display.start("held-out evaluation", episodes),
                on_episode=lambda _trajectory: display.advance(),
                keep=observer.keep_evaluation,
            ),
            observer=observer,
            profile=IterationProfiler(run.profile, config.run.profile),
        )
        trainer = Trainer(config, parts)
        with keep_failure(run, trainer, display), _evidence_kept(run):
            result = trainer.run()
        display.stop()
        save_model(learner.model, run.model, tokenizer_from=config.model.path)
        run.write_summary(result.summary())
    if result.unmet:
        raise LearningError(
            f"the run did not show what its config requires: {'; '.join(result.unmet)}. {config.run.dir}"
            " holds everything it did"
        )
    return RunOutcome(result, config.run.dir)


@contextmanager
def _evidence_kept(run: RunDirectory) -> Iterator[None]:
    """Write down what updates that were not finite were made of, and let the error say where."""
    try:
        yield
    except NonFiniteError as error:
        path = run.write_evidence(error.evidence)
        raise NonFiniteError(
            f"{error}. Evidence: {path}, with the episodes in {run.trajectories}", evidence=error.evidence
        ) from error


@contextmanager
def open_player(config: TrainConfig, sampler: TorchSampler, renderer: Renderer) -> Iterator[Player]:
    """Yield a player of ``config``; ends the thread, the environments and the sampler, in this order."""
    with ExitStack() as stack:
        stack.callback(sampler.close)
        thread = RolloutThread()
        player = Player(
            config,
            thread=thread,
            sampler=sampler,
            renderer=renderer,
            context_length=sampler.context_length,
        )
        stack.enter_context(player)  # its environments are closed when no episode can be playing any more
        stack.enter_context(thread)
        yield player


def make_sampler(config: TrainConfig) -> TorchSampler:
    """Return the in-process sampler of a config; it serves nothing before a publication."""
    set_threads(config.model.threads)
    return TorchSampler(
        config.model.path,
        dtype=resolve_dtype(config.model.dtype),
        device=resolve_device(config.model.device),
        attention=config.model.attention,
        max_batch=config.sampler.max_batch,
        admission="waves",
    )
