"""Playing one episode: reset, run the program within its limits, seal what happened."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import operator
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field, fields
from functools import lru_cache
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hyperrl.agents.base import AgentProgram, EpisodeContext, Steps, program_name
from hyperrl.agents.faults import EpisodeError
from hyperrl.agents.limits import LimitReached, RolloutLimits
from hyperrl.agents.recorder import PolicySeat, Recorder, Seat
from hyperrl.agents.scorers import Scorer
from hyperrl.agents.sealing import Gathered, compute_metrics, seal_events, seal_reward_terms, seal_turns
from hyperrl.agents.session import Host, Session
from hyperrl.agents.turn_loop import TurnLoop
from hyperrl.drafts import TrajectoryDraft, finish_trajectory
from hyperrl.envs.driving import being_cancelled
from hyperrl.errors import (
    ConfigError,
    InvariantError,
    MissingExtraError,
    SamplerClosedError,
    TrajectoryError,
)
from hyperrl.sampling import EpisodeKey
from hyperrl.trajectory import Failure, RewardTerm, StopReason, Trajectory, TruncationReason

if TYPE_CHECKING:
    from hyperrl.envs.core import TextEnv
    from hyperrl.envs.taskset import Task

__all__ = ["FATAL", "Episode", "EpisodePlan", "RolloutSettings", "reset_seed"]

FATAL = (ConfigError, InvariantError, MissingExtraError, SamplerClosedError)
"""What no single episode can be blamed for: these end the whole rollout instead of one episode."""

SCORING_GRACE_S = 10.0
_LENGTH = StopReason.LENGTH
_FROM_TURNS = {"turns", "final_context_ids", "events", "reward_terms", "failure"}
_SURE = {part.name for part in fields(Trajectory)} - _FROM_TURNS  # is known even where no turns can be kept
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePlan:
    """An episode that is to be played.

    Attributes:
        key: group and place in it; episodes of one group play the same instance of the task.
        env_id, env_kwargs: the environment.
        task: the task, as ``reset`` takes it in its options: an index or a task id; ``None`` leaves
            the choice to the environment and the seed.
    """

    key: EpisodeKey
    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    task: int | str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.task is not None and hasattr(self.task, "__index__"):  # such as a NumPy integer
            object.__setattr__(self, "task", operator.index(self.task))

    @property
    def reset_options(self) -> dict[str, Any]:
        """The ``options`` given to ``reset``."""
        return {} if self.task is None else {"task": self.task}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """What the episodes of a rollout share.

    Attributes:
        run_id: the run that they belong to.
        run_seed: what every reset and every request draws its seed from.
        seats: who answers, by name; the built-in loop asks ``main``, or the only one.
        program: what plays.
        limits: limits of one episode.
        gateway: serves the policies to programs that speak HTTP; needed where one asks for ``ctx.base_url``.
        scorers: what gives further reward terms when all episodes of a group have ended, in this order,
            after the environment's own rewards of groups.
        scorer_timeout_s: seconds that one scorer may take for a group.
        single_root: whether the program promises to only extend its conversation; read from it.
    """

    run_id: str
    run_seed: int
    seats: Mapping[str, Seat]
    program: AgentProgram = field(default_factory=TurnLoop)
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    gateway: Host | None = None
    scorers: Sequence[Scorer] = ()
    scorer_timeout_s: float = 300.0
    single_root: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.seats:
            raise ConfigError("a rollout needs at least one seat with a policy, such as 'main'")
        limit = self.limits.max_tokens
        seats = {
            name: seat.with_max_tokens(limit) if isinstance(seat, PolicySeat) else seat
            for name, seat in self.seats.items()
        }
        object.__setattr__(self, "seats", MappingProxyType(seats))
        object.__setattr__(self, "single_root", bool(getattr(self.program, "single_root", False)))


@lru_cache(maxsize=1024)  # one entry serves a group
def reset_seed(run_seed: int, group_id: tuple[int, int]) -> int:
    """Return the 63-bit seed of ``reset``: the same for every member of a group."""
    text = f"reset|{run_seed}|{group_id[0]}|{group_id[1]}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


class Episode:
    """One episode while it is played: ``async with episode as ctx`` around the program, then ``seal()``.

    Attributes:
        task: the task that is played; ``None`` before the reset.
        error: the exception that made it a failure.
        clean: the environment may be used again.
    """

    __slots__ = (
        "_clock",
        "_ctx",
        "_env",
        "_failure",
        "_limits",
        "_plan",
        "_recorder",
        "_reset_s",
        "_seed",
        "_settings",
        "_started",
        "_task_id",
        "_total_s",
        "_unready",
        "_within",
        "clean",
        "error",
        "task",
    )

    def __init__(self, plan: EpisodePlan, settings: RolloutSettings, env: TextEnv) -> None:
        self._plan = plan
        self._settings = settings
        self._env = env
        most = env.max_episode_steps
        self._limits = settings.limits if most is None else settings.limits.with_max_turns(most)
        self._recorder = Recorder(
            plan.key, settings.run_seed, settings.seats, self._limits, settings.single_root
        )
        self._seed = reset_seed(settings.run_seed, plan.key.group_id)
        self._ctx: EpisodeContext | None = None
        self._clock: asyncio.Timeout | None = None
        self._within: AsyncExitStack | None = None
        self._unready: BaseException | None = None
        self._started = self._reset_s = self._total_s = 0.0
        self._task_id = "" if plan.task is None else str(plan.task)
        self._failure: Failure | None = None
        self.task: Task | None = None
        self.error: BaseException | None = None
        self.clean = False

    async def __aenter__(self) -> EpisodeContext | None:
        """Reset the environment; return what a program plays with, ``None`` where that failed."""
        self._started = perf_counter()
        try:
            if self._limits.wall_clock_s is not None:
                self._within = AsyncExitStack()
                self._clock = asyncio.timeout(self._limits.wall_clock_s)
                await self._within.enter_async_context(self._clock)
            await self._reset(None if self._clock is None else self._clock.when())
        except BaseException as error:  # noqa: BLE001  # treated at the exit, as what a program raises
            self._unready = error
        return self._ctx

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> bool:
        """Record how the program ended, have an episode that was cut scored, and close what is open.

        Raises:
            ConfigError, InvariantError, MissingExtraError, SamplerClosedError: the rollout cannot go on.
        """
        ctx, error, self._unready = self._ctx, error or self._unready, None
        try:
            if error is not None or self._within is not None or ctx is None or ctx.session is not None:
                await self._settle(error)
            if self._failure is None and self._is_to_be_scored():
                await self._score()
            self.clean = self._failure is None and ctx is not None and not ctx.stepping
        finally:
            await self.aclose()
        return True

    async def _settle(self, error: BaseException | None) -> None:
        """Leave the time limit, and record what the program raised."""
        try:
            async with self._within or nullcontext():
                try:
                    if error is not None:
                        raise error
                finally:
                    if self._session is not None:
                        await self._session.aclose()
        except LimitReached:
            pass
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001  # a record, not a crash
            self._note(raised, expired=self._expired)
            self._heed_served(expired=self._expired)
        else:
            self._heed_served(expired=self._expired)
        finally:
            del error  # its traceback holds this frame

    @property
    def _expired(self) -> bool:
        return self._clock is not None and self._clock.expired()

    async def aclose(self) -> None:
        """Refuse later requests, and close what the episode had opened."""
        self._recorder.close()
        if self._ctx is not None:
            self._ctx.close()
        await self._env.aclose_episode()
        self._total_s = perf_counter() - self._started

    def _note(self, error: BaseException, *, expired: bool) -> None:
        """Record an exception as a failure, unless a limit was behind it; raise what ends the rollout."""
        if isinstance(error, FATAL):
            raise error
        if isinstance(error, asyncio.CancelledError):
            if being_cancelled():
                raise error
            self._fail(error)  # of something that was waited for, not of this episode
            return
        timed_out = isinstance(error, TimeoutError) and expired
        if not timed_out and not _only_limits(error) and not self._cut_while_served():
            self._fail(self._served_error() or error)

    def _heed_served(self, *, expired: bool) -> None:
        """Raise what a served policy raised, if it ends the rollout; note that time is up."""
        if isinstance(fatal := self._served_error(), FATAL):
            raise fatal
        if expired:
            self._recorder.budget.refuse(TruncationReason.WALL_CLOCK, "out of time")

    async def _reset(self, deadline: float | None) -> None:
        started, settings = perf_counter(), self._settings
        try:
            outcome = await self._env.areset(seed=self._seed, options=self._plan.reset_options)
            self._task_id = outcome.task_id
            ctx = self._ctx = EpisodeContext(
                self._env, self._recorder, outcome, settings.seats, deadline, settings.gateway
            )
            self.task = ctx.task
        except (Exception, asyncio.CancelledError) as error:
            self._recorder.faults.note(error, "reset")
            raise
        finally:
            self._reset_s = perf_counter() - started

    def _is_to_be_scored(self) -> bool:
        """Whether the environment is to score a cut episode; note what else kept it from an end."""
        ctx = self._ctx
        if ctx is not None and ctx.session is not None and self._was_never_asked():
            text = "the program was given a base_url, but no request that a policy answered ever came"
            self._fail(EpisodeError("no_requests", text))
            return False
        if ctx is not None and ctx.terminated:
            return False
        if self._recorder.budget.reached is None and not self._cut_by_length():
            self._fail(
                self._served_error()
                or EpisodeError(
                    "unfinished",
                    "the program returned before the environment ended the episode and before any limit;"
                    " it must hand in an answer with ctx.step, or call ctx.finish()",
                )
            )
            return False
        return ctx is not None and not ctx.stepping  # the cut did not fall into a step

    def _was_never_asked(self) -> bool:
        recorder = self._recorder
        return not recorder.forest.turns and recorder.budget.reached is None and self._served_error() is None

    async def _score(self) -> None:
        try:
            async with asyncio.timeout(SCORING_GRACE_S):
                if self._ctx is not None:
                    await self._ctx.score()
        except Exception as error:  # noqa: BLE001  (an environment that cannot score is one failing episode)
            self._fail(error)

    def seal(self) -> Trajectory:
        """Return the record of the episode."""
        ctx = self._ctx
        gathered = Gathered(self._recorder.forest, Steps() if ctx is None else ctx.steps)
        plan, settings, env = self._plan, self._settings, self._env
        reason = self._truncation()
        draft: Any = TrajectoryDraft()
        draft.run_id, draft.seed = settings.run_id, self._seed
        draft.group_id, draft.sample_index = plan.key.group_id, plan.key.sample_index
        draft.task_id, draft.reset_options = self._task_id, plan.reset_options
        draft.env_id, draft.env_kwargs, draft.env_version = plan.env_id, plan.env_kwargs, str(env.version)
        draft.program = program_name(settings.program)
        draft.sandbox_level = "none" if env.sandbox is None else env.sandbox.level
        draft.terminated = ctx is not None and ctx.terminated
        draft.truncated, draft.truncation_reason = reason is not None, reason
        draft.metrics = compute_metrics(gathered, self._recorder.roots)
        if ctx is not None and ctx.session is not None:
            draft.metrics.update(ctx.session.metrics)
        draft.timings = self._all_timings()
        try:
            draft.failure, draft.reward_terms = self._failure, self._reward_terms(gathered)
            columns = seal_turns(gathered, self._final_context_ids(gathered))
            return finish_trajectory(draft, columns, seal_events(gathered))
        except (TrajectoryError, OverflowError, TypeError) as error:
            self.error = error
            failure = Failure(
                kind="invalid_trajectory", stage="policy", reason=f"{type(error).__name__}: {error}"
            )
            return Trajectory(failure=failure, **{name: getattr(draft, name) for name in _SURE})

    def _reward_terms(self, gathered: Gathered) -> tuple[RewardTerm, ...]:
        ctx = self._ctx
        if ctx is None or not ctx.late_terms:
            return seal_reward_terms(gathered)
        last = ctx.steps.turns[-1] if ctx.steps else self._recorder.forest.last_train_turn()
        return seal_reward_terms(gathered, [(last, term) for term in ctx.late_terms])

    @property
    def _session(self) -> Session | None:
        return None if self._ctx is None else self._ctx.session

    def _served_error(self) -> BaseException | None:
        """Return what went wrong behind an HTTP request: the program saw no more than a status of it."""
        return None if self._session is None else self._session.error

    def _cut_while_served(self) -> bool:
        """Whether a program that was asking over HTTP failed because it was cut, which is no failure."""
        cut = self._recorder.budget.reached is not None or self._cut_by_length()
        return self._session is not None and cut

    def _truncation(self) -> TruncationReason | None:
        if self._ctx is None:
            return self._recorder.budget.reached
        if self._cut_by_length():
            steps = self._ctx.steps
            turn = steps.turns[-1] if steps else self._recorder.forest.last_train_turn()
            return TruncationReason.MAX_TOKENS if turn is None else self._recorder.forest.turns[turn].bound
        return None if self._ctx.terminated else self._recorder.budget.reached

    def _cut_by_length(self) -> bool:
        """Whether the last action was cut: the one that was stepped, or that a served program was sent."""
        steps = Steps() if self._ctx is None else self._ctx.steps
        if steps.parts and steps.parts[-1] is _LENGTH:
            return True
        if self._session is None:
            return False
        last = self._recorder.forest.last_train_turn()
        if last is None or (steps and steps.turns[-1] != last):
            return False
        return self._recorder.forest.turns[last].stop_reason is _LENGTH

    def _final_context_ids(self, gathered: Gathered) -> tuple[int, ...]:
        """Return the ids of what the last action led to, if nobody was asked after it."""
        turns, stepped = self._recorder.forest.turns, gathered.step_turns
        if not stepped or not turns or stepped[-1] != turns[-1].index:
            return ()
        messages = gathered.outcomes[-1].observation.messages
        return self._recorder.bridge_after(turns[-1], messages) if messages else ()

    def _all_timings(self) -> dict[str, float]:
        step_s = self._ctx.step_s if self._ctx is not None else 0.0
        return {
            "reset_s": self._reset_s,
            "total_s": self._total_s,
            "policy_s": self._recorder.policy_s,
            "step_s": step_s,
        }

    def _fail(self, error: BaseException) -> None:
        self._failure = self._recorder.faults.failure(error)
        self.error = error
        logger.debug("episode %s failed", self._plan.key, exc_info=error)


def _only_limits(error: BaseException) -> bool:
    """Whether ``error`` is a group of nothing but reached limits, as a program's task group raises it."""
    return isinstance(error, ExceptionGroup) and error.split(LimitReached)[1] is None
