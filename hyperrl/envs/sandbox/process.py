"""Running one command under the supervisor: its output, its end, and what is made of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hyperrl.envs.sandbox import supervisor
from hyperrl.envs.sandbox.base import PROGRAM_NAME, SandboxLimits, SandboxResult
from hyperrl.envs.sandbox.capture import OutputCapture
from hyperrl.envs.sandbox.confinement import Confinement

__all__ = [
    "PYTHON_ENVIRONMENT",
    "Command",
    "Control",
    "run_command",
    "run_in_thread",
    "sandbox_threads",
    "write_files",
]

PYTHON_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUTF8": "1",
}
"""All that sandboxed code finds in its environment, beside PATH, HOME and TMPDIR."""

_SUPERVISOR = f"""
import sys, types
for name in ("hyperrl", "hyperrl.envs", "hyperrl.envs.sandbox"):  # bare, so that nothing else is loaded
    sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = [{str(Path(supervisor.__file__).parent)!r}]
from hyperrl.envs.sandbox.supervisor import main
main(sys.argv[1:])
"""
_GRACE_S = 5.0  # for the supervisor to end what it started
_GROUP_GRACE_S = 1.0
_FLOOD_BYTES = 64 << 20  # output after which a run is ended
_OPEN_FILES = 256
_NOTES = {
    "wall": "more than {limits.wall_s:g} s",
    "cpu": "more than {limits.cpu_s:g} s of CPU",
    "processes": "more than {limits.processes} processes",
    "flood": "too much output",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run, and how.

    Attributes:
        words: the program's absolute path and its arguments.
        env: its whole environment.
        cwd: where it starts.
        limits: what it may use.
        stdin: what it reads.
        uid: user and group to become first; only root can. None: stay.
        confinement: what to give up first beside new rights. None: nothing; a wrapper sees to it.
        extra_tasks: processes that are not the code's own (a wrapper's).
        shared_slack: how many more processes the user may start meanwhile, where it is not ``uid``.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    limits: SandboxLimits
    stdin: str = ""
    uid: int | None = None
    confinement: Confinement | None = None
    extra_tasks: int = 0
    shared_slack: int = 256

    def as_json(self) -> str:
        """Return what the supervisor reads."""
        limits = self.limits
        cpu_s = math.ceil(limits.cpu_s)
        rlimits = {
            "RLIMIT_AS": (limits.memory_bytes, limits.memory_bytes),
            "RLIMIT_CPU": (cpu_s, cpu_s + 1),
            "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
            "RLIMIT_NOFILE": (_OPEN_FILES, _OPEN_FILES),
            "RLIMIT_CORE": (0, 0),
        }
        return json.dumps(
            {
                "command": self.words,
                "env": dict(self.env),
                "rlimits": rlimits,
                "wall_s": limits.wall_s,
                "most_tasks": limits.processes + self.extra_tasks,
                "shared_slack": self.shared_slack,
                "uid": self.uid,
                "confinement": self.confinement and self.confinement.as_job(self.cwd),
            }
        )


def write_files(folder: Path, code: str, files: Mapping[str, bytes]) -> None:
    """Lay out the working directory of a run."""
    program = code.encode("utf-8", errors="backslashreplace")
    for name, content in {**files, PROGRAM_NAME: program}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Control:
    """The line to a supervisor: stopping it ends everything that the supervisor started."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def verdict(self) -> dict[str, Any] | None:
        """What an ended supervisor said; None where it was killed."""
        self._ours.setblocking(False)
        with contextlib.suppress(OSError, ValueError):
            said: dict[str, Any] = json.loads(self._ours.recv(4096))
            return said
        return None

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()


_threads: ThreadPoolExecutor | None = None
_making = threading.Lock()


def sandbox_threads() -> ThreadPoolExecutor:
    """The threads that wait for sandboxes; their number bounds how many run at once."""
    global _threads  # noqa: PLW0603  # one set a process
    with _making:
        if _threads is None:
            _threads = ThreadPoolExecutor(4 + 2 * (os.cpu_count() or 1), thread_name_prefix="hyperrl-sandbox")
        return _threads


def _forget_after_fork() -> None:
    global _threads, _making  # the parent's threads are not the child's
    _threads, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


async def run_in_thread(run: Callable[[Control], SandboxResult]) -> SandboxResult:
    """Call ``run(control)`` on a thread; when cancelled, end what it runs and wait for that."""
    with contextlib.closing(Control()) as control:
        job = asyncio.get_running_loop().run_in_executor(sandbox_threads(), run, control)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            control.stop()
            await asyncio.wait([job])
            raise


def run_command(command: Command, control: Control) -> SandboxResult:
    """Run a command to its end, and everything that it starts. Blocks."""
    started = time.monotonic()
    script = [sys.executable, "-I", "-S", "-c", _SUPERVISOR]
    process = subprocess.Popen(
        [*script, str(control.theirs.fileno()), command.as_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(control.theirs.fileno(),),
        start_new_session=True,
        env={},
        cwd=command.cwd,
    )
    control.theirs.close()
    limits = command.limits
    outputs = OutputCapture(limits.output_bytes), OutputCapture(limits.output_bytes)
    try:
        flooded = _pump(process, command, outputs, control)
    finally:
        control.stop()
        verdict = _end(process, control)
    return _result(command, verdict, outputs, flooded=flooded, duration_s=time.monotonic() - started)


def _pump(
    process: subprocess.Popen[bytes],
    command: Command,
    outputs: tuple[OutputCapture, OutputCapture],
    control: Control,
) -> bool:
    """Feed stdin and take in output until both streams end or the supervisor does; say whether it flooded."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + command.limits.wall_s + _GRACE_S
    flooded = False
    with selectors.DefaultSelector() as selector:
        for stream, output in zip((process.stdout, process.stderr), outputs, strict=True):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, output)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, None)
        left = memoryview(command.stdin.encode("utf-8", errors="backslashreplace"))
        while _reading(selector) and time.monotonic() < deadline:
            ready = selector.select(timeout=0.1)
            if not ready and _has_ended(process, within_s=0.0):
                break  # somebody who outlived the supervisor holds the streams open
            for key, _ in ready:
                if key.data is None:
                    left = _write(selector, process.stdin, left)
                else:
                    _read(selector, key)
            if not flooded and sum(output.total for output in outputs) > _FLOOD_BYTES:
                flooded = True
                control.stop()
    return flooded


def _reading(selector: selectors.BaseSelector) -> bool:
    return any(key.data is not None for key in selector.get_map().values())


def _write(selector: selectors.BaseSelector, stream: IO[bytes], left: memoryview) -> memoryview:
    try:
        left = left[os.write(stream.fileno(), left) :] if left else left
    except BlockingIOError:
        return left
    except OSError:  # nobody reads it any more
        left = left[:0]
    if not left:
        selector.unregister(stream)
        stream.close()
    return left


def _read(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    data = os.read(key.fd, 65536)
    key.data.feed(data)
    if not data:
        selector.unregister(key.fileobj)


def _end(process: subprocess.Popen[bytes], control: Control) -> dict[str, Any] | None:
    """Wait for the supervisor; where it does not end, or was killed, end its process group."""
    verdict = control.verdict() if _has_ended(process, within_s=_GRACE_S) else None
    if verdict is None:
        _end_group(process)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    return verdict


def _has_ended(process: subprocess.Popen[bytes], *, within_s: float) -> bool:
    """Wait for the end of a process without collecting it: until then nobody else gets its id."""
    if process.returncode is not None:
        return True
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:  # the whole program has children collected unseen (SIGCHLD is ignored)
        process.wait()
        return True
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(within_s * 1000))
    finally:
        os.close(handle)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what has not left the supervisor's group, and wait a moment until it is gone."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + _GROUP_GRACE_S
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)  # asks only: the id is not ours any more when the group is gone
            time.sleep(0.005)


def _result(
    command: Command,
    verdict: dict[str, Any] | None,
    outputs: tuple[OutputCapture, OutputCapture],
    *,
    flooded: bool,
    duration_s: float,
) -> SandboxResult:
    said = verdict or {"exit_code": -int(signal.SIGKILL), "cpu_s": 0.0, "stopped_by": None}
    exit_code = said["exit_code"]
    stopped_by = "flood" if flooded else said["stopped_by"]
    if stopped_by is None and _killed_by_cpu_clock(exit_code, said["cpu_s"], command.limits):
        stopped_by = "cpu"
    if verdict is None and duration_s >= command.limits.wall_s:
        stopped_by = "wall"
    stdout, stderr = (output.text() for output in outputs)
    if stopped_by is not None:
        note = _NOTES[stopped_by].format(limits=command.limits)
        stderr = f"{stderr}{'' if stderr.endswith(chr(10)) or not stderr else chr(10)}[stopped: {note}]\n"
    return SandboxResult(
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        timed_out=stopped_by in {"wall", "cpu"},
        truncated_bytes=sum(output.dropped for output in outputs),
        out_of_memory=exit_code != 0 and _says_out_of_memory(stderr),
        duration_s=duration_s,
    )


def _killed_by_cpu_clock(exit_code: int, cpu_s: float, limits: SandboxLimits) -> bool:
    """First comes SIGXCPU; code that ignores it is killed a second later.

    The seconds that a process is told it used and those that the kernel's clock counts may differ somewhat.
    """
    ended_by = -exit_code if exit_code < 0 else exit_code - 128
    return ended_by == signal.SIGXCPU or (ended_by == signal.SIGKILL and cpu_s > 0.7 * limits.cpu_s)


def _says_out_of_memory(stderr: str) -> bool:
    lines = stderr.strip().splitlines()
    return bool(lines) and lines[-1].startswith(("MemoryError", "numpy.core._exceptions._ArrayMemoryError"))
