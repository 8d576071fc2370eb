"""Playing with a model directory as it is: evaluation and rollouts without training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hyperrl.errors import RunDirectoryError
from hyperrl.store import TrajectoryWriter
from hyperrl.train.config import TrainConfig
from hyperrl.train.device import resolve_device, resolve_dtype
from hyperrl.train.evaluation import Evaluation
from hyperrl.train.models import load_model, named_weights
from hyperrl.train.publication import Publisher
from hyperrl.train.samplers import TorchSampler
from hyperrl.trajectory import Group, Trajectory
from hyperrl.wiring.display import Display
from hyperrl.wiring.held_out import HeldOut
from hyperrl.wiring.player import Player
from hyperrl.wiring.preflight import Playable, check_playable
from hyperrl.wiring.run_directory import refuse_unwritable
from hyperrl.wiring.source import sampling_params
from hyperrl.wiring.task_order import TaskOrder
from hyperrl.wiring.training import make_sampler, open_player

__all__ = ["evaluate_model", "roll_out", "serve_saved"]


def evaluate_model(config: TrainConfig, display: Display) -> Evaluation:
    """Play the held-out split with ``model.path``, sampled and greedy.

    Raises:
        ConfigError, DataError, ModelError: before anything is played.
        RolloutError: every episode failed in the same way.
    """
    checked = check_playable(config, model=config.model.path, split=config.evaluation.split)
    with _saved_policy(config, checked) as player:
        held_out = HeldOut(
            config,
            player=player,
            tasks=checked.tasks,
            on_start=lambda episodes: display.start("held-out evaluation", episodes),
            on_episode=lambda _trajectory: display.advance(),
        )
        return held_out.evaluate(version=0)


def roll_out(config: TrainConfig, display: Display, *, out: Path | None) -> list[Group]:
    """Play ``rollout.groups`` training tasks with ``model.path``; keep them in ``out``.

    If it is interrupted, the episodes that have ended are kept.

    Raises:
        ConfigError, DataError, ModelError, RunDirectoryError: before anything is played.
        RolloutError: every episode failed in the same way.
    """
    if out is not None:
        refuse_unwritable(out)
        if out.exists() and any(out.iterdir()):
            raise RunDirectoryError(f"{out} is not empty; choose another folder with --out")
    checked = check_playable(config, model=config.model.path, split=config.env.train_split)
    rollout = config.rollout
    ended: list[Trajectory] = []

    def on_episode(trajectory: Trajectory) -> None:
        ended.append(trajectory)
        display.advance()

    with _saved_policy(config, checked) as player:
        display.start("rollout", rollout.groups * rollout.group_size)
        try:
            return player.play(
                TaskOrder(checked.tasks, seed=config.run.seed).take(rollout.groups),
                sampling_params(config),
                split=config.env.train_split,
                seed=config.run.seed,
                copies=rollout.group_size,
                on_episode=on_episode,
            )
        finally:
            if out is not None and ended:
                order = sorted(ended, key=lambda t: (t.group_id, t.sample_index))
                digest = checked.renderer.tokenizer.vocabulary_digest
                TrajectoryWriter(out, tokenizer=digest).write_part(order, iteration=0)


@contextmanager
def _saved_policy(config: TrainConfig, checked: Playable) -> Iterator[Player]:
    """Yield a player whose sampler serves ``model.path`` as version 0."""
    sampler = make_sampler(config)
    with open_player(config, sampler, checked.renderer) as player:
        serve_saved(config, sampler)
        yield player


def serve_saved(config: TrainConfig, sampler: TorchSampler) -> None:
    """Publish the weights of ``model.path`` as version 0."""
    model = load_model(
        config.model.path,
        dtype=resolve_dtype(config.model.dtype),
        device=resolve_device(config.model.device),
        attention=config.model.attention,
    )
    Publisher([sampler], bucket_bytes=config.sampler.bucket_bytes).publish(0, named_weights(model))
