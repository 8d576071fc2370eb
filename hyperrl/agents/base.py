"""Agent programs: what plays an episode, and what it is given to play with."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload, runtime_checkable

from hyperrl.agents.dotted_path import load_object
from hyperrl.envs.messages import Action, Observation, new_text
from hyperrl.errors import ConfigError
from hyperrl.sampling import Reply, ToolSchema
from hyperrl.trajectory import RewardTerm, StopReason

if TYPE_CHECKING:
    from hyperrl.agents.recorder import RecordedPolicy, Recorder
    from hyperrl.agents.session import Host, Session
    from hyperrl.envs.core import TextEnv
    from hyperrl.envs.outcome import Outcome

__all__ = [
    "AgentProgram",
    "EpisodeContext",
    "FunctionProgram",
    "StepRecord",
    "Steps",
    "load_program",
    "program_name",
]

PROGRAMS = {
    "turn_loop": "hyperrl.agents.turn_loop:TurnLoop",
    "codex": "hyperrl.harness.adapters.codex:CodexProgram",
    "deepseek": "hyperrl.harness.adapters.deepseek:DeepSeekProgram",
    "deepseek_shared": "hyperrl.harness.adapters.deepseek_shared:SharedDeepSeekProgram",
}
"""Dotted paths of the programs that go by a name; imported when one is asked for."""


@runtime_checkable
class AgentProgram(Protocol):
    """Plays an episode: asks policies, and hands actions to the environment.

    A program may have four more attributes: ``name``, recorded in the trajectory (else the name of its
    class), ``single_root = True``, a promise to only ever extend its conversation, which is enforced,
    ``async def check()``, called before a run to raise ConfigError where it cannot play, and
    ``check_env(env)``, called then with an environment that was reset, where it cannot play that.
    """

    async def run(self, ctx: EpisodeContext) -> None:
        """Play the episode of ``ctx`` until the environment has ended it, or end it with ``ctx.finish()``.

        Returning earlier leaves the episode without an end, which is recorded as a failure.
        """
        ...


ProgramFunction = Callable[["EpisodeContext"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FunctionProgram:
    """A plain ``async def run(ctx)`` as a program."""

    name: str
    function: ProgramFunction

    async def run(self, ctx: EpisodeContext) -> None:
        await self.function(ctx)


class StepRecord(NamedTuple):
    """One action that reached the environment."""

    turn: int | None
    outcome: Outcome
    stop_reason: StopReason


class Steps(Sequence[StepRecord]):
    """The actions that reached the environment, in order; each record is made when it is looked at.

    Attributes:
        parts: turn, outcome and stop reason of each step, one after the other.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Any] = []

    @property
    def turns(self) -> list[int | None]:
        """The turn of each step."""
        return self.parts[::3]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each step."""
        return self.parts[1::3]

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | list[StepRecord]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(0, len(self.parts), 3)[index]
        return StepRecord(*self.parts[place : place + 3])

    def __len__(self) -> int:
        return len(self.parts) // 3


class EpisodeContext:
    """What a program is given.

    Attributes:
        env: the environment, already reset. Use :meth:`step` so that what happens is recorded.
        task: the task that is played.
        observation: what the reset gave; its ``messages`` begin the conversation.
        tools: schemas of the environment's tools.
        deadline: time of the running loop's clock at which the episode is cut; ``None`` is never.
        session: where the policies are served over HTTP, once ``base_url`` or ``api_key`` was asked for.
        recorder: for more: side requests are ``recorder.policy(seat, use="side")``.
        steps: what reached the environment, in order.
        late_terms: what the environment was asked to score without a step.
        stepping: a step was begun and has not returned, or it raised.
        step_s: seconds spent in the environment's steps.
    """

    def __init__(
        self,
        env: TextEnv,
        recorder: Recorder,
        reset: Outcome,
        seats: Collection[str],
        deadline: float | None = None,
        host: Host | None = None,
    ) -> None:
        self.env = env
        self.task = env.task
        self.observation: Observation = reset.observation
        self.tools: tuple[ToolSchema, ...] = env.tools
        self.deadline = deadline
        self.recorder = recorder
        self.steps = Steps()
        self.late_terms: tuple[RewardTerm, ...] = ()
        self.stepping = False
        self.step_s = 0.0
        self.session: Session | None = None
        self._seats = seats
        self._policy: RecordedPolicy | None = None
        self._host = host
        self._finished = False
        self._workspace: Path | None = None

    @property
    def policy(self) -> RecordedPolicy:
        """The policy in seat ``main``, or the only one.

        Raises:
            ConfigError: there are several seats and none is ``main``.
        """
        if self._policy is None:
            if "main" not in self._seats and len(self._seats) != 1:
                raise ConfigError(
                    f"no seat is called 'main'; choose among ctx.policies: {sorted(self._seats)}"
                )
            seat = "main" if "main" in self._seats else next(iter(self._seats))
            self._policy = self.recorder.policy(seat)
        return self._policy

    @property
    def policies(self) -> Mapping[str, RecordedPolicy]:
        """The policies by seat."""
        return {seat: self.recorder.policy(seat) for seat in self._seats}

    @property
    def base_url(self) -> str:
        """Where a program reaches the policies of this episode as if they were its model vendor.

        An OpenAI or Anthropic client takes it as it is, with :attr:`api_key`. The model's name chooses the
        seat; a name that is none asks :attr:`policy`.

        Raises:
            ConfigError: the rollout has no gateway.
            MissingExtraError: what serves is not installed.
        """
        return self.served().base_url

    @property
    def api_key(self) -> str:
        """The secret of this episode's session; see :attr:`base_url`."""
        return self.served().api_key

    def served(self) -> Session:
        """Open the episode's session with the gateway, or return it; for more than its address.

        Raises:
            ConfigError: the rollout has no gateway.
            MissingExtraError: what serves is not installed.
        """
        if self.session is None:
            self.session = self.host.open(self.recorder)
        return self.session

    @property
    def host(self) -> Host:
        """What serves the policies of this rollout: its gateway.

        Raises:
            ConfigError: the rollout has none.
        """
        if self._host is None:
            raise ConfigError(
                "this rollout has no gateway, so its policies have no base_url: give one with"
                " RolloutSettings(gateway=hyperrl.harness.gateway.Gateway())"
            )
        return self._host

    @property
    def terminated(self) -> bool:
        """Whether the episode has ended: by the environment, or by :meth:`finish`."""
        parts = self.steps.parts
        return self._finished or (bool(parts) and parts[-2].terminated)

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline; ``None`` if there is none."""
        return None if self.deadline is None else self.deadline - asyncio.get_running_loop().time()

    @property
    def workspace(self) -> Path:
        """Where a program works on files: the environment's own ``workspace`` where it has one.

        Else an empty directory of this episode, made when it is first asked for and removed at its end.
        """
        if self.env.workspace is not None:
            return self.env.workspace
        if self._workspace is None:
            self._workspace = Path(tempfile.mkdtemp(prefix="hyperrl-episode-"))
        return self._workspace

    async def step(self, action: Reply | str) -> Outcome:
        """Hand an action to the environment and record what comes back.

        A :class:`Reply` belongs to its own turn; a text belongs to the ``train`` turn that was answered last.
        """
        if isinstance(action, Reply):
            message, text, calls, stop_reason, action_ids, turn, _ = action
            action = new_text(Action, text)
            action.token_ids, action.tool_calls, action.stop_reason = action_ids, calls, stop_reason
            action.content = message.get("content") or ""
        else:
            turn, stop_reason = self.recorder.forest.last_train_turn(), StopReason.STOP
        started = perf_counter()
        self.stepping = True
        try:
            outcome = await self.env.astep(action)
        except (Exception, asyncio.CancelledError) as error:
            self.step_s += perf_counter() - started
            self.recorder.faults.note(error, "step")
            raise
        self.step_s += perf_counter() - started
        self.stepping = False
        parts = self.steps.parts
        parts.append(turn)
        parts.append(outcome)
        parts.append(stop_reason)
        return outcome

    async def finish(self) -> None:
        """End the episode and let the environment score it as it stands.

        For programs whose work is not a final answer, such as files in a workspace. Does nothing where the
        environment has ended the episode already.
        """
        if self.terminated:
            return
        await self.score()
        self._finished = True

    async def score(self) -> None:
        """Let the environment score the episode as it stands; nothing can follow."""
        try:
            self.late_terms = await self.env.ascore()
        except (Exception, asyncio.CancelledError) as error:
            self.recorder.faults.note(error, "reward")
            raise

    def close(self) -> None:
        """Remove the workspace, if there is one."""
        if self._workspace is not None:
            shutil.rmtree(self._workspace, ignore_errors=True)
            self._workspace = None


def load_program(name: str) -> AgentProgram:
    """Return the program that a config names.

    Args:
        name: one of ``PROGRAMS``, or the dotted path (``package.module:name`` or ``package.module.name``)
            of an ``async def run(ctx)``, of an object with such a method, or of a class of such objects.

    Raises:
        ConfigError: nothing is found there, or what is found cannot play.
    """
    found = load_object(
        PROGRAMS.get(name, name), what="agent program", example="package.module:run", known=PROGRAMS
    )
    return _as_program(found, name)


def program_name(program: AgentProgram) -> str:
    """Return the name that trajectories record for ``program``."""
    return str(getattr(program, "name", type(program).__name__))


def _as_program(found: Any, name: str) -> AgentProgram:
    if inspect.iscoroutinefunction(found):
        return FunctionProgram(name, found)
    if inspect.isclass(found):
        try:
            found = found()
        except TypeError as error:
            raise ConfigError(
                f"agent program {name!r}: the class cannot be made without arguments ({error});"
                " name an instance or an async function instead"
            ) from error
    if inspect.iscoroutinefunction(getattr(found, "run", None)):
        return found  # type: ignore[no-any-return]
    raise ConfigError(
        f"agent program {name!r} must be an 'async def run(ctx)' or have such a method,"
        f" got {type(found).__name__}"
    )
