"""Level ``isolated`` for a subset of Python: Monty, an interpreter that has no files, network or processes.

The quickest sandbox (below a millisecond a run) and the one that works on any system without rights.
It suits calculators and Python tools: a session keeps its variables, and equal runs give equal results,
since clock and random numbers start at fixed values.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from hyperrl.envs.sandbox.base import SandboxLevel, SandboxLimits, SandboxResult, check_files
from hyperrl.envs.sandbox.capture import OutputCapture
from hyperrl.envs.sandbox.process import sandbox_threads
from hyperrl.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import pydantic_monty

__all__ = ["MontySandbox", "MontySession"]

T = TypeVar("T")

_FROZEN_TIME = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
_GRACE_S = 5.0
_RESTARTED = "[the session was restarted: its variables are gone]"


class MontySandbox:
    """Runs a subset of Python 3 in worker processes of ``pydantic-monty``.

    Missing are, among others, ``input``, ``sys.exit``, and most of the standard library; numpy too.
    Of the limits, ``processes`` and ``file_bytes`` have no use here: there is nothing to limit. Sleeping
    takes no time, so the smaller of ``wall_s`` and ``cpu_s`` bounds a run.

    Args:
        limits: what one run may use; ``memory_bytes`` bounds a session's objects.

    Raises:
        MissingExtraError: pydantic-monty is not installed.
    """

    level: SandboxLevel = "isolated"
    contains_signals = True

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        _import_monty()
        self.limits = limits or SandboxLimits()

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[MontySession]:
        """A session with a worker process of its own, for one episode: variables last until it ends."""
        session = self.open_session()
        try:
            yield session
        finally:
            await session.aclose()

    def open_session(self) -> MontySession:
        """A session that the caller closes, for an owner that outlives a block of code."""
        return MontySession(self.limits)

    async def run_python(
        self, code: str, *, stdin: str = "", files: Mapping[str, str | bytes] | None = None
    ) -> SandboxResult:
        """Run code in a fresh session.

        Raises:
            ConfigError: there are ``stdin`` or ``files``; Monty has neither.
        """
        if stdin or check_files(files):
            raise ConfigError(
                "Monty has no standard input and no files; put the data into the code, or use a sandbox for"
                " full CPython: make_sandbox(interpreter='cpython')"
            )
        async with self.session() as session:
            return await session.run(code)


class MontySession:
    """Snippets that share their variables. Made by a :class:`MontySandbox`.

    The worker process starts with the first snippet, and ends with the session.
    """

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._turn = asyncio.Lock()
        self._open = contextlib.ExitStack()
        self._session: pydantic_monty.MontySession | None = None

    async def run(self, code: str, *, inputs: Mapping[str, Any] | None = None) -> SandboxResult:
        """Run a snippet; ``value`` is that of its last line where that is an expression.

        After an overrun the variables are gone, and a line in ``stderr`` says so.

        Args:
            code: the snippet.
            inputs: variables to set before it runs: numbers, texts, lists and the like.
        """
        async with self._turn:
            return await _on_thread(lambda: self._run(code, dict(inputs or {})))

    async def aclose(self) -> None:
        """End the worker process."""
        async with self._turn:
            await _on_thread(self._close)

    def close(self) -> None:
        """End the worker process at once, where nothing can be awaited; no snippet may be running."""
        self._close()

    def _close(self) -> None:
        self._session = None
        self._open.close()

    def _start(self) -> pydantic_monty.MontySession:
        monty = _import_monty()
        limits = self._limits
        # Synchronous, on our threads: after callbacks of the asynchronous pool a process may abort at exit.
        pool = self._open.enter_context(
            monty.Monty(min_processes=1, max_processes=1, request_timeout=self._seconds + _GRACE_S)
        )
        checkout = pool.checkout(
            script_name="program.py",
            limits={"max_feed_duration_secs": self._seconds, "max_memory": limits.memory_bytes},
            os_policy={"datetime": _FROZEN_TIME, "sleep": "zero", "random_start": {"seed": 0}},
        )
        session: pydantic_monty.MontySession = self._open.enter_context(checkout)
        return session

    @property
    def _seconds(self) -> float:
        return min(self._limits.wall_s, self._limits.cpu_s)

    def _run(self, code: str, inputs: dict[str, Any]) -> SandboxResult:
        monty = _import_monty()
        started = time.monotonic()
        outputs = {name: OutputCapture(self._limits.output_bytes) for name in ("stdout", "stderr")}

        def take(stream: str, text: str) -> None:
            outputs[stream].feed(text.encode("utf-8", errors="backslashreplace"))

        self._session = self._session or self._start()
        value, failure = None, None
        try:
            value = self._session.feed_run(_clean(code), inputs=inputs, print_callback=take)
        except monty.MontyError as error:
            failure = error
        return self._result(failure, outputs, value=value, duration_s=time.monotonic() - started)

    def _result(
        self, failure: Exception | None, outputs: dict[str, OutputCapture], *, value: Any, duration_s: float
    ) -> SandboxResult:
        message = "" if failure is None else str(failure)
        crashed = isinstance(failure, _import_monty().MontyCrashedError)
        timed_out = message.startswith("TimeoutError: feed time limit") or bool(
            crashed and getattr(failure, "timed_out", False)
        )
        if failure is not None:
            shown = message if crashed else _display(failure)
            outputs["stderr"].feed(f"{shown.rstrip()}\n".encode(errors="backslashreplace"))
        stderr = outputs["stderr"].text()
        if crashed or timed_out:  # what an interrupted interpreter holds is not to be relied upon
            self._close()
            stderr += f"{_RESTARTED}\n"
        return SandboxResult(
            stdout=outputs["stdout"].text(),
            stderr=stderr,
            exit_code=0 if failure is None else 1,
            timed_out=timed_out,
            truncated_bytes=sum(output.dropped for output in outputs.values()),
            out_of_memory=message.startswith("MemoryError: memory limit"),
            duration_s=duration_s,
            value=value,
        )


def _import_monty() -> Any:
    try:
        import pydantic_monty  # noqa: PLC0415  # optional
    except ImportError as error:
        raise MissingExtraError("pydantic-monty", "sandbox") from error
    return pydantic_monty


def _clean(code: str) -> str:
    """Lone surrogates cannot be sent to the worker."""
    return code.encode("utf-8", errors="backslashreplace").decode("utf-8")


def _display(failure: Any) -> str:
    return str(failure.display("traceback"))


async def _on_thread(work: Callable[[], T]) -> T:
    """Do blocking work; when cancelled, wait for its end, which the time limit bounds."""
    job = asyncio.get_running_loop().run_in_executor(sandbox_threads(), work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        raise
