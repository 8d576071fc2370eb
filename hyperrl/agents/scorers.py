"""Scorers: what scores episodes after they have ended, group by group, as further reward terms.

A judge, a reward model, or a comparison of the members of a group acts here: not in ``env.step``, and
not before the last member of the group has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from hyperrl.agents.dotted_path import load_object
from hyperrl.agents.env_pool import EnvPool
from hyperrl.envs.author_code import describe_raised
from hyperrl.envs.driving import being_cancelled
from hyperrl.envs.injection import GROUP_NAMES, PLAYED_NAMES, inject
from hyperrl.envs.played import Played, PlayedGroup
from hyperrl.envs.rewards import Reward
from hyperrl.envs.scoring import score_episode, score_members
from hyperrl.envs.taskset import Task
from hyperrl.errors import (
    ConfigError,
    EndpointError,
    MissingExtraError,
    RewardDefinitionError,
    TrajectoryError,
)
from hyperrl.trajectory import Failure, RewardTerm, Trajectory

__all__ = ["EnvScorer", "RewardScorer", "Scorer", "load_scorer", "score_group"]

MAX_EPISODES = 64
"""Most episodes of a group that one reward scores at the same time."""

logger = logging.getLogger(__name__)


@runtime_checkable
class Scorer(Protocol):
    """Gives episodes of one task further reward terms after they have ended.

    A scorer may have two more attributes: ``name`` and ``weight``, of the unscored term that every member
    gets where it fails (else the name of its class, and 1).
    """

    async def score(self, task: Task, trajectories: Sequence[Trajectory]) -> Sequence[Sequence[RewardTerm]]:
        """Return the terms of each member, in order; an empty sequence for none.

        An exception, another number of members or a deadline leaves every member unscored.
        """
        ...


class RewardScorer:
    """A :class:`~hyperrl.envs.rewards.Reward` on a plain function as a scorer.

    The function may ask for ``task``, ``answer``, ``action``, ``messages``, ``turn``, ``stop_reason``,
    ``tool_records`` and ``trajectory``; with ``at="group"`` for ``task``, ``answers`` and ``trajectories``.

    Args:
        reward: made by ``@reward``, of the moments ``end`` or ``group``.

    Raises:
        RewardDefinitionError: it asks for something else, or is a reward of steps.
    """

    def __init__(self, reward: Reward) -> None:
        if reward.at == "step":
            raise RewardDefinitionError(
                f"reward {reward.name!r} scores steps, and a scorer acts after the episode;"
                " use at='end' or at='group', or make it a method of the environment"
            )
        self.name = reward.name
        self.weight = reward.weight
        self._grouped = reward.at == "group"
        where, names = f"reward {reward.name!r}", GROUP_NAMES if self._grouped else PLAYED_NAMES
        self._rewards = ((reward, inject(reward.function, names, where=where, error=RewardDefinitionError)),)

    async def score(self, task: Task, trajectories: Sequence[Trajectory]) -> Sequence[Sequence[RewardTerm]]:
        if self._grouped:
            group = PlayedGroup(task=task, trajectories=trajectories)
            return await score_members(None, self._rewards, group, len(trajectories), {})
        places = asyncio.Semaphore(MAX_EPISODES)

        async def score_one(trajectory: Trajectory) -> tuple[RewardTerm, ...]:
            async with places:
                played = Played(task=task, trajectory=trajectory)
                return await score_episode(None, self._rewards, played, {})

        async with asyncio.TaskGroup() as tasks:
            scoring = [tasks.create_task(score_one(trajectory)) for trajectory in trajectories]
        return [task.result() for task in scoring]


class EnvScorer:
    """The rewards of groups that an environment defines, as a scorer.

    Args:
        envs: lends the environment.
        env_id, env_kwargs: which one.
    """

    name = "group"

    def __init__(self, envs: EnvPool, env_id: str, env_kwargs: Mapping[str, Any]) -> None:
        self._envs = envs
        self._env_id = env_id
        self._env_kwargs = env_kwargs

    async def score(self, task: Task, trajectories: Sequence[Trajectory]) -> Sequence[Sequence[RewardTerm]]:
        env = self._envs.borrow(self._env_id, self._env_kwargs)
        clean = False
        try:
            terms = await env.ascore_group(task, trajectories)
            clean = True
        finally:
            self._envs.give_back(env, self._env_id, self._env_kwargs, clean=clean)
        return terms


def load_scorer(path: str) -> Scorer:
    """Return the scorer that a config names.

    Args:
        path: the dotted path (``package.module:name``) of a function with ``@reward``, or of an object or
            a class with ``async def score(task, trajectories)``.

    Raises:
        ConfigError: nothing is found there, or what is found cannot score.
    """
    found = load_object(path, what="scorer", example="package.module:my_reward")
    if isinstance(found, Reward):
        return RewardScorer(found)
    if inspect.isclass(found):
        try:
            found = found()
        except TypeError as error:
            raise ConfigError(
                f"scorer {path!r}: the class cannot be made without arguments ({error}); name an instance"
            ) from error
    if inspect.iscoroutinefunction(getattr(found, "score", None)):
        return found  # type: ignore[no-any-return]
    raise ConfigError(
        f"scorer {path!r} must be a function with @reward or have an 'async def score(task, trajectories)',"
        f" got {type(found).__name__}"
    )


async def score_group(
    scorers: Sequence[Scorer], task: Task | None, members: Sequence[Trajectory], *, timeout_s: float
) -> list[Trajectory]:
    """Return the members of a group with the terms of all scorers, which are asked in this order.

    Members with a failure, and those that are excluded, are neither shown to a scorer nor given terms.

    Args:
        scorers: what scores; a later one sees the terms of those before.
        task: what the members played; ``None`` where no member was ever reset.
        members: the group.
        timeout_s: seconds that each scorer may take.

    Raises:
        ConfigError, MissingExtraError: a scorer cannot work at all, such as without its key.
    """
    scored = list(members)
    for scorer in scorers:
        places = [i for i, t in enumerate(scored) if t.failure is None and t.excluded is None]
        if not places or task is None:
            break
        shown = [scored[place] for place in places]
        for place, terms in zip(places, await _ask(scorer, task, shown, timeout_s), strict=True):
            scored[place] = _with_terms(scored[place], scorer, terms)
    return scored


async def _ask(
    scorer: Scorer, task: Task, shown: Sequence[Trajectory], timeout_s: float
) -> Sequence[Sequence[RewardTerm]]:
    try:
        async with asyncio.timeout(timeout_s):
            found = await scorer.score(task, shown)
        if len(found) == len(shown):
            return found
        why = f"it returned the terms of {len(found)} members; expected those of {len(shown)}"
        failed = _failed(scorer, "scorer_error", why)
    except (ConfigError, MissingExtraError):
        raise  # no group can be scored so
    except (Exception, asyncio.CancelledError) as error:  # one failing scorer is unscored terms, no crash
        if isinstance(error, asyncio.CancelledError) and being_cancelled():
            raise
        logger.debug("scorer %s failed", _name(scorer), exc_info=error)
        failed = _failed(scorer, _kind(error), describe_raised(error))
    return [[failed]] * len(shown)


def _with_terms(trajectory: Trajectory, scorer: Scorer, terms: Sequence[RewardTerm]) -> Trajectory:
    try:
        return trajectory.with_terms(*terms)
    except (TrajectoryError, TypeError, AttributeError) as error:  # what a scorer returned is no term
        return trajectory.with_terms(_failed(scorer, "scorer_error", describe_raised(error)))


def _kind(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "scorer_timeout"
    return "judge_failure" if isinstance(error, EndpointError) else "scorer_error"


def _failed(scorer: Scorer, kind: str, reason: str) -> RewardTerm:
    weight: Any = getattr(scorer, "weight", 1.0)
    error = Failure(kind=kind, stage="reward", reason=reason)
    return RewardTerm(name=_name(scorer), score=None, weight=float(weight), error=error)


def _name(scorer: Scorer) -> str:
    return str(getattr(scorer, "name", type(scorer).__name__))
