"""Running one agent program: its output, its end, and nothing of it that survives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import hyperrl
from hyperrl.errors import ConfigError

__all__ = ["OUTPUT_TAIL", "Ended", "ProgramCommand", "Talk", "run_program"]

OUTPUT_TAIL = 2_000
"""Characters of a program's output that are kept for the record of a failure."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What speaks with a program over its standard streams, until they end; it raises nothing."""

_TAIL_BYTES = 4 * OUTPUT_TAIL
_END_S = 15.0  # for the keeper to end what it started, beside the program's own time after an interrupt
_PACKAGES = ("hyperrl", "hyperrl.envs", "hyperrl.envs.sandbox", "hyperrl.harness")
_ROOT = Path(hyperrl.__file__).parent
_FOLDERS = {name: str(_ROOT.joinpath(*name.split(".")[1:])) for name in _PACKAGES}
_KEEPER = f"""
import sys, types
for name, folder in {_FOLDERS!r}.items():
    sys.modules[name] = types.ModuleType(name)  # bare, so that nothing else is loaded
    sys.modules[name].__path__ = [folder]
from hyperrl.harness.keeper import main
main(sys.argv[1:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCommand:
    """What to run, and within what.

    Attributes:
        words: the program's absolute path and its arguments.
        env: its whole environment.
        cwd: where it starts.
        stdin: what it reads.
        timeout_s: seconds until it is ended.
        interrupt_s: seconds that it has to end by itself after SIGINT; then it and all that it
            started get SIGKILL.
        keep_bytes: most bytes of its standard output that are kept; the end of a longer one.

    Raises:
        ConfigError: a number is out of range, or the path is not absolute.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stdin: str = ""
    timeout_s: float = 3600.0
    interrupt_s: float = 3.0
    keep_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not self.words or not os.path.isabs(self.words[0]):
            raise ConfigError(f"a program is run by its absolute path, got {list(self.words)[:1]}")
        if not 0 < self.timeout_s < float("inf") or not 0 <= self.interrupt_s < float("inf"):
            raise ConfigError(
                "timeout_s must be a number of seconds above 0 and interrupt_s at least 0,"
                f" got {self.timeout_s} and {self.interrupt_s}"
            )

    def as_json(self) -> str:
        """Return what the keeper reads."""
        return json.dumps(
            {
                "command": self.words,
                "env": dict(self.env),
                "timeout_s": self.timeout_s,
                "interrupt_s": self.interrupt_s,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        exit_code: as ``subprocess`` has it: below 0 is the signal that ended it.
        stopped_by: ``timeout``, ``stopped`` (somebody asked), ``keeper`` (what watches it was killed), or
            ``None``: it ended by itself.
        stdout: its standard output, the end of a long one.
        tail: the last ``OUTPUT_TAIL`` characters of standard output and error, as they came.
        cpu_s: CPU seconds of it and of all that it started.
        duration_s: seconds from start to end.
    """

    exit_code: int
    stopped_by: Literal["timeout", "stopped", "keeper"] | None
    stdout: str
    tail: str
    cpu_s: float
    duration_s: float


async def run_program(
    command: ProgramCommand, *, stop: asyncio.Event | None = None, talk: Talk | None = None
) -> Ended:
    """Run a program to its end, and everything that it starts.

    It gets a session and a process group of its own. When it ends, is stopped, or this call is cancelled,
    whatever it left running is ended as well, also what detached itself; this returns, or raises, after that.

    Args:
        command: what to run.
        stop: ends the program when it is set.
        talk: speaks with it; then ``command.stdin`` is not read, and ``stdout`` is not kept.
    """
    started = time.monotonic()
    ours, theirs = socket.socketpair()
    with contextlib.closing(ours):
        with contextlib.closing(theirs):
            starting = asyncio.create_task(_start_keeper(command, theirs))
            cancelled = await _done(starting)
        process = starting.result()
        output = _Output(command.keep_bytes)
        work = asyncio.create_task(_communicate(process, command, output, talk))
        try:
            if cancelled is not None:
                raise cancelled
            await _wait(work, stop)
        finally:
            await _end(process, work, ours, command.interrupt_s)
        return _result(ours, output, time.monotonic() - started)


async def _start_keeper(command: ProgramCommand, control: socket.socket) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *[sys.executable, "-I", "-S", "-c", _KEEPER, str(control.fileno()), command.as_json()],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(control.fileno(),),
        start_new_session=True,
        env={},
        cwd=command.cwd,
    )


async def _done(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait for a start also when this is cancelled; return the cancellation.

    Left to asyncio, a cancelled start kills the keeper, and what it runs by then goes on without one.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class _Output:
    """What a program writes: the end of its standard output, and the end of both streams together."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self.stdout = bytearray()
        self.tail = bytearray()

    async def take(self, stream: asyncio.StreamReader, *, keep: bool) -> None:
        while data := await stream.read(65_536):
            self.tail += data
            del self.tail[:-_TAIL_BYTES]
            if keep:
                self.stdout += data
                del self.stdout[: -self._keep_bytes]


async def _communicate(
    process: asyncio.subprocess.Process, command: ProgramCommand, output: _Output, talk: Talk | None
) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    work: list[Awaitable[object]] = [output.take(process.stderr, keep=False), process.wait()]
    if talk is not None:
        work.append(talk(process.stdout, process.stdin))
    else:
        work.append(_feed(process.stdin, command.stdin.encode("utf-8", errors="backslashreplace")))
        work.append(output.take(process.stdout, keep=True))
    await asyncio.gather(*work)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        stream.write(data)
        await stream.drain()
        stream.close()


async def _wait(work: asyncio.Task[None], stop: asyncio.Event | None) -> None:
    asked = asyncio.create_task(stop.wait()) if stop is not None else None
    try:
        await asyncio.wait({work, asked} if asked else {work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if asked is not None:
            asked.cancel()


async def _end(
    process: asyncio.subprocess.Process, work: asyncio.Task[None], line: socket.socket, interrupt_s: float
) -> None:
    """Tell the keeper to end everything, and wait for that, however often this is cancelled."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_WR)
    cancelled: asyncio.CancelledError | None = None
    deadline = time.monotonic() + interrupt_s + _END_S
    while not work.done():
        try:
            await asyncio.wait([work], timeout=max(0.0, deadline - time.monotonic()))
        except asyncio.CancelledError as error:
            cancelled = error
        if time.monotonic() >= deadline:
            break
    if not work.done():
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        work.cancel()
    if cancelled is not None:
        raise cancelled


def _result(line: socket.socket, output: _Output, duration_s: float) -> Ended:
    line.setblocking(False)
    said: dict[str, Any] = {"exit_code": -9, "stopped_by": "keeper", "cpu_s": 0.0}
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(line.recv(4096))
    return Ended(
        stdout=output.stdout.decode("utf-8", "replace"),
        tail=output.tail.decode("utf-8", "replace").strip()[-OUTPUT_TAIL:],
        duration_s=duration_s,
        **said,
    )
