"""Everything that can be known to be wrong before a run starts, and is said then."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyperrl.agents.base import load_program
from hyperrl.agents.rendering import Renderer, TemplateRenderer, load_renderer
from hyperrl.agents.scorers import load_scorer
from hyperrl.envs.core import TextEnv
from hyperrl.envs.registration import load_entry_points, make_env
from hyperrl.errors import ConfigError, DataError
from hyperrl.train.config import TrainConfig
from hyperrl.train.device import resolve_device
from hyperrl.train.models import ModelInfo, load_model_info
from hyperrl.wiring.run_directory import RUN_FILES, refuse_unavailable

__all__ = ["Checked", "Playable", "check_playable", "check_run", "count_tasks"]

COMPARED_TASKS = 16
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Playable:
    """What the checks of a policy and the tasks that it will play have read on their way.

    Attributes:
        renderer: of the model's tokenizer and chat template, its bridge proved.
        model: facts of the model directory.
        tasks: size of the split.
    """

    renderer: TemplateRenderer
    model: ModelInfo
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checks of a training run have read on their way.

    Attributes:
        renderer: of the model's tokenizer and chat template, its bridge proved.
        train_tasks: size of the training split.
        held_out_tasks: size of the held-out split.
    """

    renderer: TemplateRenderer
    train_tasks: int
    held_out_tasks: int


def check_run(config: TrainConfig) -> Checked:
    """Check model, tokenizer, environment, data, limits and the run's folder; nothing is written.

    Raises:
        ConfigError: a value does not fit the model or the environment.
        DataError: data of the environment is missing or empty.
        ModelError: the model directory or its chat template cannot be used.
        RunDirectoryError: the folder is in use, holds an earlier run or cannot be written.
    """
    _check_start_outlives(config)
    refuse_unavailable(config.run.dir, overwrite=config.run.overwrite)
    played = check_playable(config, model=config.model.path, split=config.env.train_split)
    held_out_tasks = count_tasks(config, config.evaluation.split)
    _check_context(config, config.evaluation.split, played.model, played.renderer)
    _warn_of_same_tasks(config)
    return Checked(renderer=played.renderer, train_tasks=played.tasks, held_out_tasks=held_out_tasks)


def check_playable(config: TrainConfig, *, model: Path, split: str) -> Playable:
    """Check that ``model`` can play the tasks of ``split`` within the config's limits.

    Raises:
        ConfigError, DataError, ModelError: as for :func:`check_run`.
    """
    load_entry_points()
    _check_program(config.env.program)
    for path in config.env.scorers:
        load_scorer(path)
    resolve_device(config.model.device)
    info = load_model_info(model)
    renderer = load_renderer(model)
    tasks = count_tasks(config, split)
    _check_context(config, split, info, renderer)
    return Playable(renderer=renderer, model=info, tasks=tasks)


def _check_program(name: str) -> None:
    """Load the program, and let it say whether it can play here."""
    check = getattr(load_program(name), "check", None)
    if inspect.iscoroutinefunction(check):
        asyncio.run(check())


def count_tasks(config: TrainConfig, split: str) -> int:
    """Return how many tasks a split of the config's environment has.

    Raises:
        DataError: it has none.
    """
    with _open_env(config, split) as env:
        count = len(env.taskset)
    if not count:
        raise DataError(f"{config.env.id} has no task in its split {split!r}")
    return count


@contextmanager
def _open_env(config: TrainConfig, split: str) -> Iterator[TextEnv]:
    env = make_env(config.env.id, **{**config.env.kwargs, "split": split})
    try:
        yield env
    finally:
        env.close()


def _warn_of_same_tasks(config: TrainConfig) -> None:
    """One file for both splits is an easy mistake, and its result looks like success."""
    with (
        _open_env(config, config.env.train_split) as train,
        _open_env(config, config.evaluation.split) as test,
    ):
        if len(train.taskset) != len(test.taskset):
            return
        first = range(min(len(test.taskset), COMPARED_TASKS))
        if all(repr(train.taskset[i].data) == repr(test.taskset[i].data) for i in first):
            logger.warning(
                "the splits %r and %r of %s seem to hold the same tasks: what is called held-out success"
                " is measured on tasks that were trained on",
                config.env.train_split,
                config.evaluation.split,
                config.env.id,
            )


def _check_start_outlives(config: TrainConfig) -> None:
    """The folder's old files are removed before the model is read, and the new model is written there."""
    start = config.model.path.resolve()
    for name in RUN_FILES:
        if start.is_relative_to((config.run.dir / name).resolve()):
            raise ConfigError(
                f"model.path is {config.model.path}, which this run would replace: it lies in its own"
                " run.dir. Give the run another folder with --set run.dir=PATH"
            )


def _check_context(config: TrainConfig, split: str, model: ModelInfo, renderer: Renderer) -> None:
    """The first prompt of the first task and a full answer must fit into the model's context.

    Rendering it also shows that the template can offer the environment's tools. A program may refuse it.
    """
    with _open_env(config, split) as env:
        observation, _ = env.reset(seed=config.run.seed, options={"task": 0})
        if (check_env := getattr(load_program(config.env.program), "check_env", None)) is not None:
            check_env(env)
        prompt = len(renderer.first(observation.messages, env.tools))
        if env.tools:
            renderer.prove(("tool",))
    option, answer = "rollout.max_tokens", config.rollout.max_tokens
    if split == config.evaluation.split and config.evaluation.max_tokens is not None:
        option, answer = "evaluation.max_tokens", config.evaluation.max_tokens
    if prompt >= config.rollout.max_episode_tokens:
        raise ConfigError(
            f"rollout.max_episode_tokens is {config.rollout.max_episode_tokens}, and the first prompt alone"
            f" has {prompt} tokens. Give at least {prompt + answer}"
        )
    needed = prompt + answer
    if needed > model.context_length:
        raise ConfigError(
            f"{option} is {answer}, and the first prompt has {prompt} tokens: together {needed},"
            f" beyond the model's context of {model.context_length}."
            f" Give at most {max(0, model.context_length - prompt)}"
        )
