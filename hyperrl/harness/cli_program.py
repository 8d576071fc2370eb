"""Agent programs that are commands: what runs one on an episode, whatever command it is."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hyperrl.agents.base import EpisodeContext
from hyperrl.agents.faults import EpisodeError
from hyperrl.harness.answers import closing_time, hand_in, hand_in_cut, opening
from hyperrl.harness.launching import Launch, Place, command_for, program_home
from hyperrl.harness.mcp import EnvTools, serve_env_tools
from hyperrl.harness.process import Ended, ProgramCommand, run_program

__all__ = ["CliAdapter", "CliProgram", "CliSettings", "Launch", "Place", "failure_of", "model_of"]


class CliAdapter(Protocol):
    """What is particular to one program."""

    @property
    def name(self) -> str:
        """What trajectories record as their program."""
        ...

    async def check(self) -> None:
        """Find the program; called before every episode.

        Raises:
            ConfigError: it is not installed, or of a version that is not known to work.
        """
        ...

    def launch(self, place: Place) -> Launch:
        """Return how to start it on one episode."""
        ...

    def answer(self, place: Place, ended: Ended) -> str | None:
        """Return the final answer of a program that exited with code 0; ``None`` if it gave none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """Limits of the process of one episode; those of the episode are ``RolloutLimits``.

    Attributes:
        timeout_s: seconds until it is ended, which is the failure ``program_timeout``. The wall clock of the
            rollout, where it is shorter, cuts the episode instead and has it scored.
        closing_s: seconds that it has to end by itself once a limit of the episode was reached.
        interrupt_s: seconds that it has after SIGINT before it is killed.
        needs_answer: a program that gives no answer has failed. Where it is false, such an episode ends
            with ``ctx.finish()``: the environment scores what was done.
        homes: directory in which homes are made; by default ``/var/tmp`` where that can be written, since
            sandboxes of programs leave the temporary directory writable.
    """

    timeout_s: float = 3600.0
    closing_s: float = 10.0
    interrupt_s: float = 3.0
    needs_answer: bool = True
    homes: Path | None = None


class CliProgram:
    """Plays an episode by running a command that asks the gateway as if it were its model vendor.

    The command gets a home directory, an environment and a process session of its own. The environment's
    tools reach it through an MCP server. What it says last is handed to the environment; rewards are
    computed here, out of its reach.

    Args:
        adapter: what is particular to the program.
        settings: limits of its process.
    """

    def __init__(self, adapter: CliAdapter, settings: CliSettings | None = None) -> None:
        self.adapter = adapter
        self.settings = settings or CliSettings()

    @property
    def name(self) -> str:
        """What trajectories record."""
        return self.adapter.name

    async def check(self) -> None:
        """Find the program, before a run that would be in vain without it.

        Raises:
            ConfigError: it is not installed, or of a version that is not known to work.
        """
        await self.adapter.check()

    async def run(self, ctx: EpisodeContext) -> None:
        """Run the command on the episode.

        Raises:
            ConfigError: the program cannot be used here.
            EpisodeError: it failed (``program_exit``), was ended by a signal (``program_signal``) or by its
                clock (``program_timeout``), gave no answer (``no_answer``), or the environment answered
                what it said last (``program_over``).
        """
        await self.check()
        system, prompt = opening(ctx)
        async with AsyncExitStack() as stack:
            tools: EnvTools | None = None
            mcp_url = ""
            if ctx.tools:
                tools, mcp_url = await stack.enter_async_context(serve_env_tools(ctx))
            home = Path(stack.enter_context(program_home(self.settings.homes)))
            place = Place(
                home=home,
                workspace=ctx.workspace,
                base_url=ctx.base_url,
                api_key=ctx.api_key,
                model=model_of(ctx),
                system=system,
                prompt=prompt,
                mcp_url=mcp_url,
            )
            stop = tools.over if tools is not None else asyncio.Event()
            stack.push_async_callback(_ended, asyncio.create_task(self._stop_after_limit(ctx, stop)))
            ended = await run_program(self._command(place), stop=stop)
            answer = self.adapter.answer(place, ended) if ended.exit_code == 0 else None
        await self._finish(ctx, tools, ended, answer)

    async def _stop_after_limit(self, ctx: EpisodeContext, stop: asyncio.Event) -> None:
        """Stop a program that goes on asking although the episode has reached a limit."""
        await closing_time(ctx, self.settings.closing_s)
        stop.set()

    def _command(self, place: Place) -> ProgramCommand:
        return command_for(
            self.adapter.launch(place),
            home=place.home,
            cwd=place.workspace,
            timeout_s=self.settings.timeout_s,
            interrupt_s=self.settings.interrupt_s,
        )

    async def _finish(
        self, ctx: EpisodeContext, tools: EnvTools | None, ended: Ended, answer: str | None
    ) -> None:
        if tools is not None and tools.error is not None:
            raise tools.error
        if ctx.terminated or await hand_in_cut(ctx):
            return
        if ended.exit_code != 0 or ended.stopped_by is not None:
            raise failure_of(self.name, ended, self.settings.timeout_s)
        needed = self.settings.needs_answer
        await hand_in(ctx, answer, name=self.name, needed=needed, said=_said(ended))


def model_of(ctx: EpisodeContext) -> str:
    """Return the model that a program asks for: the seat ``main``, or the first."""
    return "main" if "main" in ctx.policies else next(iter(ctx.policies))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def failure_of(name: str, ended: Ended, timeout_s: float) -> EpisodeError:
    """Return the failure of an episode whose program ended so."""
    if ended.stopped_by == "timeout":
        text = f"{name} did not end within {timeout_s:g} s"
        return EpisodeError("program_timeout", text + _said(ended))
    if ended.exit_code < 0:
        return EpisodeError("program_signal", f"{name} was ended by signal {-ended.exit_code}{_said(ended)}")
    return EpisodeError("program_exit", f"{name} ended with exit code {ended.exit_code}{_said(ended)}")


def _said(ended: Ended) -> str:
    return f"; it said last: {ended.tail}" if ended.tail else " and said nothing"
