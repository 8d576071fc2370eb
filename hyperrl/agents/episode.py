"""Playing one episode: reset, run the program within its limits, seal what happened."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
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
    """

    run_id: str
    run_seed: int
    seats: Mapping[str, Seat]
    program: AgentProgram = field(default_factory=TurnLoop)
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    gateway: Host | None = None
    scorers: Sequence[Scorer] = ()
    scorer_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if not self.seats:
            raise ConfigError("a rollout needs at least one seat with a policy, such as 'main'")
        limit = self.limits.max_tokens
        seats = {
            name: seat.with_max_tokens(limit) if isinstance(seat, PolicySeat) else seat
            for name, seat in self.seats.items()
        }
        object.__setattr__(self, "seats", MappingProxyType(seats))


def reset_seed(run_seed: int, group_id: tuple[int, int]) -> int:
    """Return the 63-bit seed of ``reset``: the same for every member of a group."""
    text = f"reset|{run_seed}|{group_id[0]}|{group_id[1]}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


class _Unlimited:
    """Stands where another episode has a timeout."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass

    def when(self) -> None:
        return None

    def expired(self) -> bool:
        return False


_UNLIMITED = _Unlimited()


class Episode:
    """One episode while it is played. ``await play()``, ``await aclose()``, then ``seal()``.

    Attributes:
        error: the exception that made it a failure.
        clean: the environment may be used again.
    """

    def __init__(self, plan: EpisodePlan, settings: RolloutSettings, env: TextEnv) -> None:
        self._plan = plan
        self._settings = settings
        self._env = env
        self._limits = settings.limits.with_max_turns(env.max_episode_steps)
        self._recorder = Recorder(
            key=plan.key,
            run_seed=settings.run_seed,
            seats=settings.seats,
            limits=self._limits,
            single_root=getattr(settings.program, "single_root", False),
        )
        self._seed = reset_seed(settings.run_seed, plan.key.group_id)
        self._ctx: EpisodeContext | None = None
        self._started = 0.0
        self._task_id = "" if plan.task is None else str(plan.task)
        self._failure: Failure | None = None
        self._timings = {"reset_s": 0.0, "total_s": 0.0}
        self.error: BaseException | None = None
        self.clean = False

    @property
    def task(self) -> Task | None:
        """The task that is played; ``None`` before the reset."""
        return None if self._ctx is None else self._ctx.task

    async def play(self) -> None:
        """Play to the end, a limit or a failure.

        Raises:
            ConfigError, InvariantError, MissingExtraError, SamplerClosedError: the rollout cannot go on.
        """
        self._started = perf_counter()
        limit_s = self._limits.wall_clock_s
        clock = _UNLIMITED if limit_s is None else asyncio.timeout(limit_s)
        try:
            async with clock:
                ctx = await self._reset(clock.when())
                try:
                    await self._settings.program.run(ctx)
                finally:
                    if ctx.session is not None:
                        await ctx.session.aclose()
        except LimitReached:
            pass
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # a record, not a crash
            self._note(error, expired=clock.expired())
            self._heed_served(expired=clock.expired())
        else:
            self._heed_served(expired=clock.expired())
        if self._failure is None:
            await self._finish()
        self.clean = self._failure is None and self._ctx is not None and not self._ctx.stepping

    async def aclose(self) -> None:
        """Refuse later requests, and close what the episode had opened. Called once, however it went."""
        self._recorder.close()
        if self._ctx is not None:
            self._ctx.close()
        await self._env.aclose_episode()
        self._timings["total_s"] = perf_counter() - self._started

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

    async def _reset(self, deadline: float | None) -> EpisodeContext:
        started = perf_counter()
        try:
            outcome = await self._env.areset(seed=self._seed, options=self._plan.reset_options)
            self._task_id = outcome.task_id
            self._ctx = EpisodeContext(
                env=self._env,
                recorder=self._recorder,
                reset=outcome,
                seats=tuple(self._settings.seats),
                deadline=deadline,
                host=self._settings.gateway,
            )
        except (Exception, asyncio.CancelledError) as error:
            self._recorder.faults.note(error, "reset")
            raise
        finally:
            self._timings["reset_s"] = perf_counter() - started
        return self._ctx

    async def _finish(self) -> None:
        """Let the environment score an episode that was cut, unless the cut fell into a step."""
        ctx = self._ctx
        unasked = not self._recorder.forest.turns and self._recorder.budget.reached is None
        if self._session is not None and unasked and self._served_error() is None:
            text = "the program was given a base_url, but no request that a policy answered ever came"
            self._fail(EpisodeError("no_requests", text))
            return
        if ctx is not None and ctx.terminated:
            return
        if self._recorder.budget.reached is None and not self._cut_by_length():
            self._fail(
                self._served_error()
                or EpisodeError(
                    "unfinished",
                    "the program returned before the environment ended the episode and before any limit;"
                    " it must hand in an answer with ctx.step, or call ctx.finish()",
                )
            )
        elif ctx is not None and not ctx.stepping:
            try:
                async with asyncio.timeout(SCORING_GRACE_S):
                    await ctx.score()
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
        draft.metrics = compute_metrics(gathered, self._recorder.roots) | self._served_metrics()
        draft.timings = self._all_timings()
        try:
            draft.failure, draft.reward_terms = self._failure, self._reward_terms(gathered)
            columns = seal_turns(gathered, self._final_context_ids())
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

    def _served_metrics(self) -> dict[str, float]:
        return {} if self._session is None else dict(self._session.metrics)

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
        if steps.parts and steps.parts[-1] is StopReason.LENGTH:
            return True
        if self._session is None:
            return False
        last = self._recorder.forest.last_train_turn()
        if last is None or (steps and steps.turns[-1] != last):
            return False
        return self._recorder.forest.turns[last].stop_reason is StopReason.LENGTH

    def _final_context_ids(self) -> tuple[int, ...]:
        """Return the ids of what the last action led to, if nobody was asked after it."""
        turns, ctx = self._recorder.forest.turns, self._ctx
        if ctx is None or not ctx.steps or not turns or ctx.steps.turns[-1] != turns[-1].index:
            return ()
        return self._recorder.bridge_after(turns[-1], ctx.steps.outcomes[-1].observation.messages)

    def _all_timings(self) -> dict[str, float]:
        step_s = self._ctx.step_s if self._ctx is not None else 0.0
        return {**self._timings, "policy_s": self._recorder.policy_s, "step_s": step_s}

    def _fail(self, error: BaseException) -> None:
        self._failure = self._recorder.faults.failure(error)
        self.error = error
        logger.debug("episode %s failed", self._plan.key, exc_info=error)


def _only_limits(error: BaseException) -> bool:
    """Whether ``error`` is a group of nothing but reached limits, as a program's task group raises it."""
    return isinstance(error, ExceptionGroup) and error.split(LimitReached)[1] is None
