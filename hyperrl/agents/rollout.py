"""Playing many episodes at once: groups of them, in one loop, with one result for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice

from hyperrl.agents.collector import patient_collector
from hyperrl.agents.env_pool import EnvPool
from hyperrl.agents.episode import Episode, EpisodePlan, RolloutSettings
from hyperrl.agents.limits import RolloutLimits
from hyperrl.agents.recorder import PolicySeat, Seat
from hyperrl.agents.scorers import EnvScorer, score_group
from hyperrl.envs.taskset import Task
from hyperrl.errors import ConfigError, RolloutError
from hyperrl.sampling import Attendance, EpisodeKey
from hyperrl.trajectory import Group, GroupId, Trajectory

__all__ = ["EnvPool", "EpisodePlan", "RolloutLimits", "RolloutSettings", "play_episode", "play_groups"]

OnEpisode = Callable[[Trajectory], None]


async def play_episode(
    plan: EpisodePlan, settings: RolloutSettings, *, envs: EnvPool | None = None
) -> Trajectory:
    """Play one episode. What goes wrong in it is recorded as the trajectory's failure.

    Args:
        plan: what to play.
        settings: who plays, and within what limits.
        envs: where the environment is borrowed; by default it is made, and closed at the end.

    Raises:
        ConfigError, InvariantError, MissingExtraError, SamplerClosedError: no episode could be played so.
    """
    rollout = _Rollout([plan], settings, envs, None)
    await rollout.run(1)
    return rollout.results[plan.key]


async def play_groups(
    plans: Sequence[EpisodePlan],
    settings: RolloutSettings,
    *,
    envs: EnvPool | None = None,
    max_concurrent: int = 0,
    on_episode: OnEpisode | None = None,
) -> list[Group]:
    """Play all ``plans`` concurrently and return their groups.

    A sampler with an ``attend`` (of several, that of the first seat that is not frozen) is told who is live:
    the first episodes before any of them starts, each later one before the one whose place it takes has left.
    When this is cancelled, every episode is cancelled and waited for, and the environments are closed.

    Args:
        plans: what to play; keys must differ.
        settings: who plays, and within what limits.
        envs: where environments are borrowed; by default they are made, and closed at the end.
        max_concurrent: most episodes played at the same time; 0 plays all.
        on_episode: called with each trajectory when it is complete, in the order in which they are: as it
            ends, or, where scorers or rewards of groups act, when its group has been scored.

    Returns:
        The groups in the order in which the plans first name them, the members in the plans' order.
        An episode that went wrong is a member with a ``failure``.

    Raises:
        ConfigError: two plans have the same key.
        RolloutError: every episode failed in the same way, so that the cause is not in an episode.
        ConfigError, InvariantError, MissingExtraError, SamplerClosedError: no episode could be played so.
    """
    rollout = _Rollout(plans, settings, envs, on_episode)
    await rollout.run(max_concurrent or len(plans))
    rollout.check_not_all_failed()
    members: dict[tuple[int, int], list[Trajectory]] = {}
    for plan in plans:
        members.setdefault(plan.key.group_id, []).append(rollout.results[plan.key])
    return [Group(group_id, tuple(trajectories)) for group_id, trajectories in members.items()]


def _attended(seats: Iterable[Seat]) -> Sequence[Attendance]:
    """Return the sampler that is told who is live: one at most, of a seat that is not frozen.

    Of two, each would wait for episodes that wait for the other.
    """
    samplers = [seat.sampler for seat in seats if isinstance(seat, PolicySeat) and not seat.frozen]
    return [sampler for sampler in samplers if isinstance(sampler, Attendance)][:1]


@dataclass(slots=True)
class _GroupInPlay:
    """A group while its members are played: their keys, how many have ended, what they play.

    ``has_rewards`` says whether the environment scores groups; ``None`` while nobody has looked.
    """

    keys: list[EpisodeKey] = field(default_factory=list)
    ended: int = 0
    task: Task | None = None
    has_rewards: bool | None = None


class _Rollout:
    """The episodes of one call: places that play one episode after the other."""

    def __init__(
        self,
        plans: Sequence[EpisodePlan],
        settings: RolloutSettings,
        envs: EnvPool | None,
        on_episode: OnEpisode | None,
    ) -> None:
        keys = {plan.key for plan in plans}
        if len(keys) < len(plans):
            raise ConfigError(
                f"{len(plans)} episodes have only {len(keys)} different keys; each needs its own"
            )
        self.results: dict[EpisodeKey, Trajectory] = {}
        self._errors: list[BaseException] = []
        self._plans = plans
        self._waiting: Iterator[EpisodePlan] = iter(plans)
        self._settings = settings
        self._envs = envs if envs is not None else EnvPool()
        self._owns_envs = envs is None
        self._on_episode = on_episode
        self._attendances = _attended(settings.seats.values())
        self._attending: dict[EpisodeKey, AsyncExitStack] = {}
        self._groups: dict[GroupId, _GroupInPlay] = {}
        for plan in plans:
            group = self._groups.get(plan.key.group_id)
            if group is None:
                group = self._groups[plan.key.group_id] = _GroupInPlay()
            group.keys.append(plan.key)

    async def run(self, places: int) -> None:
        """Play all plans, at most ``places`` at the same time."""
        try:
            first = list(islice(self._waiting, places))
            for plan in first if self._attendances else ():
                await self._attend(plan)
            with patient_collector(len(first)):
                await self._play_all(first)
        except BaseExceptionGroup as group:
            first_error = group.exceptions[0]
            raise first_error from first_error.__cause__
        finally:
            for key in list(self._attending):
                await self._leave(key)
            if self._owns_envs:
                self._envs.close()

    async def _play_all(self, first: Sequence[EpisodePlan]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for plan in first:
                tasks.create_task(self._play_on(plan, tasks))

    async def _play_on(self, plan: EpisodePlan | None, tasks: asyncio.TaskGroup) -> None:
        """Play ``plan``, then whatever waits, one after the other."""
        while plan is not None:
            env = self._envs.borrow(plan.env_id, plan.env_kwargs)
            group, clean = self._groups[plan.key.group_id], False
            if group.has_rewards is None:
                group.has_rewards = env.scores_groups
            try:
                episode = Episode(plan, self._settings, env)
                async with episode as ctx:
                    if ctx is not None:
                        await self._settings.program.run(ctx)
                trajectory = episode.seal()
                clean = episode.clean
            finally:
                self._envs.give_back(env, plan.env_id, plan.env_kwargs, clean=clean)
            group.task = episode.task or group.task
            if episode.error is not None:
                self._errors.append(episode.error)
            following = next(self._waiting, None)
            if following is not None and self._attendances:
                await self._attend(following)
            if self._attending:
                await self._leave(plan.key)
            self.results[plan.key] = trajectory
            self._ended(plan, group, trajectory, tasks)
            plan = following

    def _ended(
        self, plan: EpisodePlan, group: _GroupInPlay, trajectory: Trajectory, tasks: asyncio.TaskGroup
    ) -> None:
        """Report an episode, or have its group scored if this was the last of it."""
        group.ended += 1
        if not self._settings.scorers and not group.has_rewards:
            self._report(trajectory)
        elif group.ended == len(group.keys):
            tasks.create_task(self._score(group, plan))

    async def _score(self, group: _GroupInPlay, plan: EpisodePlan) -> None:
        """Give the members of a group the terms of all scorers, then report them."""
        members = [self.results[key] for key in group.keys]
        own = [EnvScorer(self._envs, plan.env_id, plan.env_kwargs)] if group.has_rewards else []
        scorers = [*own, *self._settings.scorers]
        timeout_s = self._settings.scorer_timeout_s
        scored = await score_group(scorers, group.task, members, timeout_s=timeout_s)
        for key, trajectory in zip(group.keys, scored, strict=True):
            self.results[key] = trajectory
            self._report(trajectory)

    def _report(self, trajectory: Trajectory) -> None:
        if self._on_episode is not None:
            self._on_episode(trajectory)

    async def _attend(self, plan: EpisodePlan) -> None:
        if self._attendances:
            stack = self._attending[plan.key] = AsyncExitStack()
            for sampler in self._attendances:
                await stack.enter_async_context(sampler.attend(plan.key))

    async def _leave(self, key: EpisodeKey) -> None:
        if key in self._attending:
            await self._attending.pop(key).aclose()

    def check_not_all_failed(self) -> None:
        failures = [trajectory.failure for trajectory in self.results.values()]
        if not failures or any(failure is None for failure in failures):
            return
        found = {(failure.kind, failure.stage) for failure in failures if failure is not None}
        if len(found) == 1 and failures[0] is not None:
            kind, stage = found.pop()
            raise RolloutError(
                f"all {len(failures)} episodes failed with {kind} at stage {stage}, so nothing can be"
                f" learned from them. The first: {failures[0].reason}"
            ) from self._errors[0]
