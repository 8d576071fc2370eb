"""Plays tasks of one environment with the policy that a sampler serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from hyperrl.agents.base import load_program
from hyperrl.agents.recorder import PolicySeat
from hyperrl.agents.rendering import Renderer
from hyperrl.agents.rollout import EnvPool, EpisodePlan, RolloutLimits, RolloutSettings
from hyperrl.agents.scorers import load_scorer
from hyperrl.sampling import EpisodeKey, Sampler, SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.trajectory import Group, GroupId, Trajectory
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.served import play_served_groups

__all__ = ["Player"]

Pick = tuple[GroupId, int]
"""A group id and the index of the task that the group plays."""


class Player:
    """Plays groups of episodes as a config says, in the rollout thread.

    Used as a context manager; leaving it closes the environments.

    Args:
        config: environment, program and limits.
        thread: where the episodes live.
        sampler: answers as the policy ``main``.
        renderer: of the sampler's model.
        context_length: most tokens of a prompt and its answer.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        thread: RolloutThread,
        sampler: Sampler,
        renderer: Renderer,
        context_length: int,
    ) -> None:
        self._config = config
        self._thread = thread
        self._sampler = sampler
        self._renderer = renderer
        self._program = load_program(config.env.program)
        self._scorers = [load_scorer(path) for path in config.env.scorers]
        self._envs = EnvPool()
        self._limits = RolloutLimits(
            max_turns=config.rollout.max_turns,
            max_episode_tokens=config.rollout.max_episode_tokens,
            max_context=context_length,
            wall_clock_s=config.rollout.wall_clock_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._envs.close()

    def play(
        self,
        picks: Sequence[Pick],
        params: SamplingParams,
        *,
        split: str,
        seed: int,
        copies: int = 1,
        on_episode: Callable[[Trajectory], None] | None = None,
    ) -> list[Group]:
        """Play ``copies`` episodes of every picked task and return the groups in the same order.

        Raises:
            RolloutError: every episode failed in the same way.
        """
        kwargs = {**self._config.env.kwargs, "split": split}
        plans = [
            EpisodePlan(
                key=EpisodeKey(group_id, sample),
                env_id=self._config.env.id,
                env_kwargs=kwargs,
                task=task,
            )
            for group_id, task in picks
            for sample in range(copies)
        ]
        settings = RolloutSettings(
            run_id=self._config.run.name,
            run_seed=seed,
            seats={"main": PolicySeat(sampler=self._sampler, renderer=self._renderer, params=params)},
            program=self._program,
            limits=self._limits,
            scorers=self._scorers,
            scorer_timeout_s=self._config.env.scorer_timeout_s,
        )
        work = play_served_groups(
            plans,
            settings,
            learn_from=self._config.env.learn_from,
            envs=self._envs,
            max_concurrent=self._config.rollout.max_concurrent,
            on_episode=on_episode,
        )
        return self._thread.run(work)
