"""Agent programs that are commands: what runs one on an episode, whatever command it is."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hyperrl.agents.base import EpisodeContext
from hyperrl.agents.faults import EpisodeError
from hyperrl.envs.messages import Action, message_text
from hyperrl.errors import ConfigError
from hyperrl.harness.mcp import EnvTools, serve_env_tools
from hyperrl.harness.process import Ended, ProgramCommand, run_program
from hyperrl.trajectory import StopReason

__all__ = ["CliAdapter", "CliProgram", "CliSettings", "Launch", "Place"]

_LIMIT_WATCH_S = 1.0
_HOMES = "/var/tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What an adapter is told of one episode.

    Attributes:
        home: an empty directory of its own, outside the workspace; removed at the end.
        workspace: where the program works.
        base_url: where it reaches the policy, in any of the gateway's wire formats; ends in ``/v1``.
        api_key: the secret that it has to show there, and at ``mcp_url``.
        model: the model that it asks for.
        system: what the environment says first, to be put before or behind the program's own instructions.
        prompt: the task.
        mcp_url: the environment's tools over streamable HTTP; empty where it has none.
    """

    home: Path
    workspace: Path
    base_url: str
    api_key: str
    model: str
    system: str
    prompt: str
    mcp_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How an adapter wants its program to be started.

    Attributes:
        words: the program's absolute path and its arguments.
        env: what it finds in its environment beside PATH, LANG, HOME and TMPDIR.
        stdin: what it reads.
        files: what to write first, by path below ``home``.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


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
        system, prompt = _prompt(ctx)
        async with AsyncExitStack() as stack:
            tools: EnvTools | None = None
            mcp_url = ""
            if ctx.tools:
                tools, mcp_url = await stack.enter_async_context(serve_env_tools(ctx))
            home = Path(stack.enter_context(_home(self.settings.homes)))
            place = Place(
                home=home,
                workspace=ctx.workspace,
                base_url=ctx.base_url,
                api_key=ctx.api_key,
                model="main" if "main" in ctx.policies else next(iter(ctx.policies)),
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
        while ctx.recorder.budget.reached is None:  # noqa: ASYNC110  # it is plain data
            await asyncio.sleep(_LIMIT_WATCH_S)
        await asyncio.sleep(self.settings.closing_s)
        stop.set()

    def _command(self, place: Place) -> ProgramCommand:
        launch = self.adapter.launch(place)
        for name, text in launch.files.items():
            path = place.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        temporary = place.home / "tmp"
        temporary.mkdir(exist_ok=True)
        base = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(place.home),
            "TMPDIR": str(temporary),
        }
        return ProgramCommand(
            words=launch.words,
            env={**base, **launch.env},
            cwd=place.workspace,
            stdin=launch.stdin,
            timeout_s=self.settings.timeout_s,
            interrupt_s=self.settings.interrupt_s,
        )

    async def _finish(
        self, ctx: EpisodeContext, tools: EnvTools | None, ended: Ended, answer: str | None
    ) -> None:
        if tools is not None and tools.error is not None:
            raise tools.error
        if ctx.terminated:
            return
        if (cut := _cut_action(ctx)) is not None:
            await ctx.step(cut)
            return
        if ended.exit_code != 0 or ended.stopped_by is not None:
            raise _failure(self.name, ended, self.settings)
        if answer is not None and answer.strip():
            await ctx.step(_final_action(ctx, answer))
        elif self.settings.needs_answer:
            raise EpisodeError("no_answer", f"{self.name} ended without an answer{_said(ended)}")
        else:
            await ctx.finish()
        if not ctx.terminated:
            text = "the environment answered the final answer, but the program had ended; play it in turns"
            raise EpisodeError("program_over", text)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _home(base: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Make a home, by default outside the temporary directory."""
    if base is None and os.path.isdir(_HOMES) and os.access(_HOMES, os.W_OK):
        base = Path(_HOMES)
    return tempfile.TemporaryDirectory(prefix="hyperrl-home-", dir=base, ignore_cleanup_errors=True)


def _prompt(ctx: EpisodeContext) -> tuple[str, str]:
    """Return what the environment says as the system, and as the user."""
    said: dict[str, list[str]] = {"system": [], "user": []}
    for message in ctx.observation.messages:
        role = {"developer": "system"}.get(message["role"], message["role"])
        if role not in said:
            raise ConfigError(
                f"the environment begins with a message of the role {message['role']!r}; a command can be"
                " told system and user messages only"
            )
        said[role].append(message_text(message))
    return "\n\n".join(said["system"]), "\n\n".join(said["user"])


def _cut_action(ctx: EpisodeContext) -> Action | None:
    """Return what the policy wrote last, where its limit of tokens cut it: there is no other answer."""
    forest = ctx.recorder.forest
    last = forest.last_train_turn()
    if last is None or forest.turns[last].stop_reason is not StopReason.LENGTH:
        return None
    turn = forest.turns[last]
    content = str(turn.reply_message.get("content") or "")
    return Action(turn.text, tool_calls=turn.tool_calls, stop_reason=StopReason.LENGTH, content=content)


def _final_action(ctx: EpisodeContext, answer: str) -> Action | str:
    """Return the answer as the action that the policy wrote, reasoning included, where it is that."""
    forest = ctx.recorder.forest
    last = forest.last_train_turn()
    if last is None or answer.strip() not in forest.turns[last].text:
        return answer
    turn = forest.turns[last]
    return Action(turn.text, tool_calls=(), stop_reason=StopReason.STOP, content=answer)


def _failure(name: str, ended: Ended, settings: CliSettings) -> EpisodeError:
    if ended.stopped_by == "timeout":
        text = f"{name} did not end within {settings.timeout_s:g} s"
        return EpisodeError("program_timeout", text + _said(ended))
    if ended.exit_code < 0:
        return EpisodeError("program_signal", f"{name} was ended by signal {-ended.exit_code}{_said(ended)}")
    return EpisodeError("program_exit", f"{name} ended with exit code {ended.exit_code}{_said(ended)}")


def _said(ended: Ended) -> str:
    return f"; it said last: {ended.tail}" if ended.tail else " and said nothing"
