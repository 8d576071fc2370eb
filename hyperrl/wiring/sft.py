"""The supervised warm start: from a model directory and conversations to a model that starts well."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from hyperrl.agents.episode import reset_seed
from hyperrl.envs.registration import make_env
from hyperrl.errors import RolloutError
from hyperrl.sampling import SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.train.device import resolve_device, set_threads
from hyperrl.train.models import save_model
from hyperrl.train.sft import count_steps, run_sft
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.display import Display
from hyperrl.wiring.distillation import read_episodes
from hyperrl.wiring.gold import as_gold, make_gold_sampler
from hyperrl.wiring.learner import load_learned
from hyperrl.wiring.lessons import Lessons, read_lessons
from hyperrl.wiring.player import Player
from hyperrl.wiring.preflight import Playable, check_playable
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.run_directory import refuse_existing
from hyperrl.wiring.sft_record import SftRecord
from hyperrl.wiring.task_order import TaskOrder, derive_seed

__all__ = ["play_gold", "run_warm_start"]


def run_warm_start(config: TrainConfig, display: Display) -> Path:
    """Train ``sft.start`` on ``sft.data``, ``sft.from_store`` or gold answers, and write ``model.path``.

    Beside the weights lie ``sft-metrics.jsonl`` and ``sft-summary.json``.

    Raises:
        ConfigError, DataError, ModelError, RunDirectoryError: before anything starts.
        RolloutError: the gold of a task does not score.
        NonFiniteError: ``algorithm.skip_limit`` steps in a row had a loss or gradient that was not finite.
    """
    refuse_existing(config.model.path, overwrite=config.run.overwrite, how="--set run.overwrite=true")
    set_threads(config.model.threads)
    resolve_device(config.model.device)
    lessons = _gather(config, display)
    display.note(f"learning from {lessons.describe()}")
    model = load_learned(config.model, config.sft.start)
    config.model.path.parent.mkdir(parents=True, exist_ok=True)
    with SftRecord(config.model.path, display) as record:
        display.start("supervised learning", count_steps(len(lessons.trajectories), config.sft))
        with record.evidence_kept():
            run_sft(
                model,
                lessons.trajectories,
                config.sft,
                seed=config.run.seed,
                algorithm=config.algorithm,
                on_step=record.on_step,
            )
        display.stop()
        path = save_model(model, config.model.path, tokenizer_from=config.sft.start)
        record.finish(
            {
                "source": lessons.source,
                "conversations": len(lessons.trajectories),
                "left_out": dict(lessons.left_out),
            }
        )
    return path


def _gather(config: TrainConfig, display: Display) -> Lessons:
    if config.sft.data is not None:
        return read_lessons(config, display)
    if config.sft.from_store is not None:
        return read_episodes(config)
    checked = check_playable(config, model=config.sft.start, split=config.env.train_split)
    return Lessons(
        source=f"gold answers of {config.env.id}", trajectories=play_gold(config, checked, display)
    )


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
