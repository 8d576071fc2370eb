"""Everything that can be known to be wrong before a run starts, and is said then."""

from __future__ import annotations

from dataclasses import dataclass

from hyperrl.agents.base import load_program
from hyperrl.agents.rendering import Renderer, load_renderer
from hyperrl.envs.registration import load_entry_points, make_env
from hyperrl.errors import ConfigError, DataError
from hyperrl.train.config import TrainConfig
from hyperrl.train.device import resolve_device
from hyperrl.train.models import ModelInfo, load_model_info

__all__ = ["Checked", "check_run", "count_tasks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checks have read on their way.

    Attributes:
        renderer: of the model's tokenizer and chat template, its bridge proved.
        model: facts of the model directory.
        train_tasks: size of the training split.
        held_out_tasks: size of the held-out split.
    """

    renderer: Renderer
    model: ModelInfo
    train_tasks: int
    held_out_tasks: int


def check_run(config: TrainConfig) -> Checked:
    """Check model, tokenizer, environment, data and limits; nothing is written.

    Raises:
        ConfigError: a value does not fit the model or the environment.
        DataError: data of the environment is missing or empty.
        ModelError: the model directory or its chat template cannot be used.
    """
    load_entry_points()
    load_program(config.env.program)
    if config.model.dtype == "bfloat16":
        raise ConfigError(
            "model.dtype bfloat16 is for evaluation and rollouts: small updates of bfloat16 weights round"
            " to nothing. Train with float32"
        )
    resolve_device(config.model.device)
    model = load_model_info(config.model.path)
    renderer = load_renderer(config.model.path)
    train_tasks = count_tasks(config, config.env.train_split)
    held_out_tasks = count_tasks(config, config.evaluation.split)
    _check_context(config, model, renderer)
    return Checked(renderer=renderer, model=model, train_tasks=train_tasks, held_out_tasks=held_out_tasks)


def count_tasks(config: TrainConfig, split: str) -> int:
    """Return how many tasks a split of the config's environment has.

    Raises:
        DataError: it has none.
    """
    env = make_env(config.env.id, **{**config.env.kwargs, "split": split})
    try:
        count = len(env.taskset)
    finally:
        env.close()
    if not count:
        raise DataError(f"{config.env.id} has no task in its split {split!r}")
    return count


def _check_context(config: TrainConfig, model: ModelInfo, renderer: Renderer) -> None:
    """The first prompt of the first task and a full answer must fit into the model's context.

    Rendering it also shows that the template can offer the environment's tools.
    """
    env = make_env(config.env.id, **{**config.env.kwargs, "split": config.env.train_split})
    try:
        observation, _ = env.reset(seed=config.run.seed, options={"task": 0})
        prompt = len(renderer.first(observation.messages, env.tools))
        if env.tools:
            renderer.prove(("tool",))
    finally:
        env.close()
    needed = prompt + config.rollout.max_tokens
    if needed > model.context_length:
        raise ConfigError(
            f"rollout.max_tokens is {config.rollout.max_tokens}, and the first prompt has {prompt}"
            f" tokens: together {needed}, beyond the model's context of {model.context_length}."
            f" Give at most {max(0, model.context_length - prompt)}"
        )
