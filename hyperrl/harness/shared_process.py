"""One process of a program for many episodes: started by the first of them, ended with the gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from hyperrl.agents.faults import EpisodeError
from hyperrl.harness.cli_program import failure_of
from hyperrl.harness.gateway import Gateway, SharedAddress
from hyperrl.harness.json_rpc import JsonRpc, RpcClosedError, RpcError
from hyperrl.harness.launching import Launch, command_for, program_home
from hyperrl.harness.process import Ended, run_program

__all__ = ["SharedAdapter", "SharedProcess", "SharedProcesses"]

START_S = 120.0
_FOREVER_S = 1e9


class SharedAdapter(Protocol):
    """What is particular to one program that plays many episodes in one process."""

    @property
    def name(self) -> str:
        """What trajectories record as their program."""
        ...

    def launch(self, home: Path, address: SharedAddress) -> Launch:
        """Return how to start it; it works in ``home / "sessions"``."""
        ...

    async def greet(self, rpc: JsonRpc, home: Path) -> None:
        """Say what has to be said before it takes sessions."""
        ...


class SharedProcess:
    """A running program that plays episodes, each in a session of its own, over JSON-RPC.

    Its tasks are its own: it outlives the episode that started it.

    Args:
        adapter: what is particular to the program.
        address: what it asks; every session is a thread there.
        homes: directory in which its home is made; see ``CliSettings``.

    Attributes:
        address: as given.
        begun: sessions that it has been given.
        live: those of them that have not ended.
        over: it has ended, or is about to.
    """

    def __init__(self, adapter: SharedAdapter, address: SharedAddress, homes: Path | None) -> None:
        self.address = address
        self.begun = 0
        self.live = 0
        self.over = False
        self._adapter = adapter
        self._home = program_home(homes)
        self._rpc = JsonRpc(self._notified)
        self._listeners: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        self._stop = asyncio.Event()
        self._work = asyncio.create_task(self._run(), name=f"hyperrl-{adapter.name}")
        self._ready = asyncio.create_task(self._greet())
        for task in (self._work, self._ready):
            task.add_done_callback(_retrieved)

    @property
    def workspace(self) -> Path:
        """Where the sessions work."""
        return Path(self._home.name) / "sessions"

    async def started(self) -> None:
        """Wait until it takes sessions.

        Raises:
            EpisodeError: as for :meth:`call`.
        """
        await asyncio.wait([self._ready, self._work], return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done() or self._ready.cancelled():
            raise await self._failure()
        try:
            self._ready.result()
        except RpcError as error:
            raise EpisodeError("program_error", f"{self._adapter.name} does not start: {error}") from error
        except RpcClosedError as error:
            raise await self._failure() from error

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call a method of the program.

        Raises:
            EpisodeError: it has ended, or does so before it answers (``program_exit``, ``program_signal``),
                or it answers with an error (``program_error``).
        """
        try:
            return await self._rpc.call(method, params)
        except RpcError as error:
            text = f"{self._adapter.name} answers {method!r} with an error: {error}"
            raise EpisodeError("program_error", text) from error
        except RpcClosedError as error:
            raise await self._failure() from error

    @contextlib.contextmanager
    def listening(self, thread: str, hear: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
        """While entered, ``hear`` gets the events of a session."""
        self._listeners[thread] = hear
        try:
            yield
        finally:
            del self._listeners[thread]

    async def aclose(self) -> None:
        """End it and all that it started, and wait for that."""
        self.over = True
        self._stop.set()
        await asyncio.wait([self._work])

    async def _run(self) -> Ended:
        try:
            with self._home as home:
                self.workspace.mkdir()
                command = command_for(
                    self._adapter.launch(Path(home), self.address),
                    home=Path(home),
                    cwd=self.workspace,
                    timeout_s=_FOREVER_S,
                    interrupt_s=0.0,  # nothing of it is kept
                )
                return await run_program(command, stop=self._stop, talk=self._talk)
        finally:
            self.over = True
            self.address.close()
            self._ready.cancel()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._rpc.serve(reader, writer)
        finally:
            self._stop.set()

    async def _greet(self) -> None:
        greeted = False
        try:
            async with asyncio.timeout(START_S):
                await self._rpc.opened.wait()
                await self._adapter.greet(self._rpc, Path(self._home.name))
            greeted = True
        except TimeoutError as error:
            raise RpcError(f"it takes no sessions {START_S:g} s after its start") from error
        finally:
            self.over = self.over or not greeted

    async def _failure(self) -> EpisodeError:
        """Return why it ended, once it has; an exception for each episode that asks."""
        await asyncio.wait([self._work])
        if self._work.cancelled():
            return EpisodeError("program_exit", f"{self._adapter.name} was ended with its rollout")
        return failure_of(self._adapter.name, self._work.result(), _FOREVER_S)

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        hear = self._listeners.get(str(params.get("sessionId")))
        event = params.get("event")
        if method == "session.event" and hear is not None and isinstance(event, dict):
            hear(event)


class SharedProcesses:
    """The processes of one program. Each lives as long as the gateway that serves it.

    One of them takes new sessions. One that has had its share ends with its last session.

    Args:
        homes: directory in which their homes are made; see ``CliSettings``.
        sessions: how many sessions a process is given in its life.
    """

    def __init__(self, *, homes: Path | None, sessions: int) -> None:
        self._homes = homes
        self._sessions = sessions
        self._processes: dict[SharedProcess, Gateway] = {}

    @asynccontextmanager
    async def session(self, adapter: SharedAdapter, gateway: Gateway) -> AsyncIterator[SharedProcess]:
        """Yield a process that plays one more session while entered; start one where none has room."""
        for ended in [process for process in self._processes if process.over]:
            del self._processes[ended]
        found = [process for process, host in self._processes.items() if host is gateway]
        process = next(filter(self._has_room, found), None)
        if process is None:
            process = SharedProcess(adapter, gateway.share(), self._homes)
            gateway.before_close(process.aclose)
            self._processes[process] = gateway
        process.begun += 1
        process.live += 1
        try:
            yield process
        finally:
            process.live -= 1
            if not process.live and not self._has_room(process):
                await process.aclose()

    def _has_room(self, process: SharedProcess) -> bool:
        return process.begun < self._sessions and not process.over


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # read here: where no episode waits for it, nobody else does
