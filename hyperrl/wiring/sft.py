"""The supervised warm start: from a model directory and gold answers to a model that starts well."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from hyperrl.agents.episode import reset_seed
from hyperrl.envs.registration import make_env
from hyperrl.errors import RolloutError
from hyperrl.sampling import SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.train.device import resolve_device, resolve_dtype, set_threads
from hyperrl.train.models import load_model, save_model
from hyperrl.train.sft import run_sft
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.display import Display
from hyperrl.wiring.gold import as_gold, make_gold_sampler
from hyperrl.wiring.player import Player
from hyperrl.wiring.preflight import Playable, check_playable, check_trainable
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.run_directory import refuse_existing
from hyperrl.wiring.task_order import TaskOrder, derive_seed

__all__ = ["play_gold", "run_warm_start"]


def run_warm_start(config: TrainConfig, display: Display) -> Path:
    """Train ``sft.start`` on gold answers of the training split and write ``model.path``.

    Raises:
        ConfigError, DataError, ModelError, RunDirectoryError: before anything starts.
        RolloutError: the gold of a task does not score.
    """
    check_trainable(config)
    refuse_existing(config.model.path, overwrite=config.run.overwrite, how="--set run.overwrite=true")
    checked = check_playable(config, model=config.sft.start, split=config.env.train_split)
    set_threads(config.model.threads)
    model = load_model(
        config.sft.start,
        dtype=resolve_dtype(config.model.dtype),
        device=resolve_device(config.model.device),
        attention=config.model.attention,
    )
    conversations = play_gold(config, checked, display)
    display.start("supervised warm start", config.sft.steps)
    run_sft(
        model,
        conversations,
        config.sft,
        seed=config.run.seed,
        microbatch_tokens=config.algorithm.microbatch_tokens,
        on_step=lambda _step, metrics: display.advance(1, f"loss {metrics['sft/loss']:.3f}"),
    )
    display.stop()
    return save_model(model, config.model.path, tokenizer_from=config.sft.start)


def play_gold(config: TrainConfig, checked: Playable, display: Display) -> list[Trajectory]:
    """Play the gold answers of ``sft.examples`` training tasks, or of all if there are fewer.

    Raises:
        RolloutError: the gold of a task failed or cannot be scored.
    """
    wanted = min(checked.tasks, config.sft.examples)
    seed = derive_seed(config.run.seed, "warm start")
    picks = TaskOrder(checked.tasks, seed=seed).take(wanted)
    display.start("gold answers", wanted)
    with ExitStack() as stack:
        env_kwargs = {**config.env.kwargs, "split": config.env.train_split}
        env = make_env(config.env.id, **env_kwargs)
        stack.callback(env.close)
        sampler = make_gold_sampler(
            checked.renderer, env, dict(picks), seed_of=lambda group_id: reset_seed(seed, group_id)
        )
        thread = RolloutThread()
        player = Player(
            config,
            thread=thread,
            sampler=sampler,
            renderer=checked.renderer,
            context_length=checked.model.context_length,
        )
        stack.enter_context(player)
        stack.enter_context(thread)
        groups = player.play(
            picks,
            SamplingParams(max_tokens=config.rollout.max_tokens),
            split=config.env.train_split,
            seed=seed,
            on_episode=lambda _trajectory: display.advance(),
        )
    episodes = [trajectory for group in groups for trajectory in group]
    _check_gold(episodes)
    return [as_gold(trajectory) for trajectory in episodes]


def _check_gold(episodes: list[Trajectory]) -> None:
    for trajectory in episodes:
        if not trajectory.usable or trajectory.truncated:
            why = trajectory.failure.reason if trajectory.failure else trajectory.truncation_reason
            raise RolloutError(
                f"the gold of task {trajectory.task_id} cannot be learned from: {why or 'it is unscored'};"
                " check it with 'hyperrl check', and rollout.max_tokens"
            )
