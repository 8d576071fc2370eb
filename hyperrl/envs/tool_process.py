"""The parent's side of worker processes: a few of them, kept warm, killed when a job overruns."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

from hyperrl.envs.tool_text import describe_error
from hyperrl.envs.tool_worker import is_loading
from hyperrl.errors import EnvError

__all__ = ["BlockingFunction", "WorkerPool", "call_blocking", "shared_pool"]

_START_LIMIT_S = 60.0
_END_LIMIT_S = 5.0  # for a worker that has closed its line to end
_FEWEST_WORKERS, _MOST_WORKERS = 4, 16  # tools that wait for a network should overlap even on one core
_PROGRAM = "import sys; sys.path[:] = {path!r}; from hyperrl.envs.tool_worker import serve; serve({handle})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingFunction:
    """A module-level function, by the name under which a worker finds it.

    Attributes:
        module: the module to import.
        name: the function's name in it.
        main_path: the script to run instead, for a function of ``__main__``.
    """

    module: str
    name: str
    main_path: str | None


class _WorkerGoneError(Exception):
    """The worker will not answer any more; the message says why."""


class _OverrunError(Exception):
    """A job took longer than it may."""


class _Worker:
    """One worker process, the leader of its own session so that it dies with its children."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._connection, theirs = Pipe()
        program = _PROGRAM.format(path=sys.path, handle=theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        self.used = False

    @property
    def alive(self) -> bool:
        """Whether it runs. One that has ended keeps its id until :meth:`kill`: nobody else gets it."""
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return self._process.poll() is None
        try:
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, look) is None
        except ChildProcessError:  # collected, or the whole program has children collected unseen
            return self._process.poll() is None

    def call(self, job: bytes, timeout_s: float) -> tuple[str, str]:
        """Run a job. Loading its module is not counted against ``timeout_s``.

        Raises:
            _OverrunError: it took too long; the worker is still busy with it.
            _WorkerGoneError: the process ended, or could not load the module.
        """
        self.used = True
        try:
            self._connection.send_bytes(job)
            if not self._connection.poll(_START_LIMIT_S):
                raise _WorkerGoneError(f"{self._what} could not be loaded within {_START_LIMIT_S:g} s")
            status, text = json.loads(self._connection.recv_bytes())
            if status == "ready":
                if not self._connection.poll(timeout_s):
                    raise _OverrunError
                status, text = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            deadline = time.monotonic() + _END_LIMIT_S
            while self.alive and time.monotonic() < deadline:
                time.sleep(0.005)
            code = self.kill()
            raise _WorkerGoneError(f"{self._what}'s process ended with code {code}") from error
        return status, text

    def kill(self) -> int:
        """End it and its children; return its exit code. Its id is signalled only while it is its own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._connection.close()
        return self._process.wait()


class _Turns:
    """At most ``size`` threads inside, in the order in which they came: a semaphore lets others pass."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:
            self._withdraw(turn)
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    def _withdraw(self, turn: threading.Lock) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.__exit__()


class WorkerPool:
    """Worker processes that are started when needed and kept; a job that overruns takes its worker with it.

    Attributes:
        threads: as many threads as there may be workers, for callers that must not block.
    """

    def __init__(self, what: str, size: int, first_job: bytes | None = None) -> None:
        """Make a pool that runs at most ``size`` jobs at once; ``what`` names a job in messages.

        A new worker does ``first_job`` before any other, on no job's time: to load what jobs need.
        """
        self._what = what
        self._first_job = first_job
        self.threads = ThreadPoolExecutor(size, thread_name_prefix="hyperrl-worker")
        self._slots = _Turns(size)
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def call(self, job: bytes, timeout_s: float) -> tuple[str, str]:
        """Run a job (see ``tool_worker``); return ``ok``, ``error`` or ``timeout``, and a text.

        Any thread may call. The clock runs while the job does: not while it waits for a worker, nor while
        one loads it.
        """
        with self._slots:
            return self._call(self._take(), job, timeout_s)

    def _call(self, worker: _Worker, job: bytes, timeout_s: float) -> tuple[str, str]:
        try:
            if self._first_job is not None and not worker.used:
                worker.call(self._first_job, _START_LIMIT_S)
            reply = worker.call(job, timeout_s)
        except _OverrunError:
            worker.kill()
            return "timeout", f"{self._what} did not finish within {timeout_s:g} s and was stopped"
        except _WorkerGoneError as error:
            worker.kill()
            return "error", str(error)
        except BaseException:
            worker.kill()
            raise
        with self._lock:
            self._idle.append(worker)
        return reply

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.kill()
        return _Worker(self._what)

    def close(self) -> None:
        """Kill the idle workers; the next job starts a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.kill()


_pools: dict[str, WorkerPool] = {}
_making = threading.Lock()


def shared_pool(what: str, size: int, first_job: bytes | None = None) -> WorkerPool:
    """Return this process's pool of that name; if there is none yet, make it as :class:`WorkerPool` does."""
    with _making:
        if what not in _pools:
            _pools[what] = WorkerPool(what, size, first_job)
            atexit.register(_pools[what].close)
        return _pools[what]


def _shared_workers() -> WorkerPool:
    return shared_pool("the tool", max(_FEWEST_WORKERS, min(_MOST_WORKERS, os.cpu_count() or 1)))


def _forget_after_fork() -> None:
    global _making  # noqa: PLW0603  # the parent's workers, threads and locks are not the child's
    for pool in _pools.values():
        atexit.unregister(pool.close)
    _pools.clear()
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


async def call_blocking(
    function: BlockingFunction, arguments: Mapping[str, Any], *, timeout_s: float, limit: int
) -> tuple[str, str]:
    """Run ``function`` in a worker; return a status (``ok``, ``error``, ``timeout``) and a text.

    The clock starts once a worker has loaded the function. After ``timeout_s`` the worker is killed
    with every process that it started.

    Args:
        function: what to call.
        arguments: its keyword arguments; they must be picklable.
        timeout_s: seconds it may take.
        limit: most characters of the text.

    Raises:
        EnvError: called while a worker imports the script that calls it (no ``__main__`` guard).
    """
    if is_loading():
        raise EnvError(
            "a script that runs episodes was started again to load one of its tools;"
            ' put what it does under `if __name__ == "__main__":`'
        )
    try:
        packed = pickle.dumps(dict(arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return "error", f"the arguments cannot be sent to the tool's process: {describe_error(error)}"
    job = pickle.dumps((function.module, function.name, function.main_path, packed, limit))
    workers = _shared_workers()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(workers.threads, workers.call, job, timeout_s)
