"""The program that starts one agent program, interrupts it when asked, and ends all that it started.

It is run in a process of its own with one thread, so that forking is safe whatever the trainer's threads do.
It imports the standard library only, and modules that do. It leads a session of its own, so a Ctrl-C at
the terminal reaches the trainer alone, which then asks. It is a *subreaper*: descendants that detach
themselves become its children and are ended like the others. Where the other end of its control socket
closes, since the trainer is gone, it ends everything too. Where it is killed itself, the program is as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any

from hyperrl.envs.sandbox.privileges import set_flag
from hyperrl.envs.sandbox.supervisor import end_and_tell

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_START_FAILED = 126


def main(arguments: list[str]) -> None:
    """Run the job that the arguments describe: a control socket's number and JSON; see ``process.py``."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    job = json.loads(arguments[1])
    set_flag(_PR_SET_CHILD_SUBREAPER)
    deadline = time.monotonic() + job["timeout_s"]
    child = os.fork()
    if child == 0:
        _become(job)
    ended = os.pidfd_open(child)
    stopped_by = _watch(control, ended, deadline)
    if stopped_by is not None:
        _interrupt(child, ended, job["interrupt_s"])
    end_and_tell(control, child, stopped_by)


def _become(job: dict[str, Any]) -> None:
    """In the child: become the command, in a session of its own."""
    try:
        os.setsid()
        set_flag(_PR_SET_NO_NEW_PRIVS)
        set_flag(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execve(job["command"][0], job["command"], job["env"])
    except BaseException as error:  # noqa: BLE001  # a forked child must never return into its parent's code
        os.write(2, f"{job['command'][0]} cannot be started: {error}\n".encode())
    os._exit(_START_FAILED)


def _watch(control: socket.socket, ended: int, deadline: float) -> str | None:
    """Wait for the end of the child; return what ends it before, if anything does."""
    line = control.fileno()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout"
        ready, _, _ = select.select([line, ended], [], [], min(left, 3600.0))
        if ended in ready:
            return None
        if line in ready:
            return "stopped"


def _interrupt(child: int, ended: int, patience_s: float) -> None:
    """Ask the child and its group to end, as Ctrl-C would, and wait a while."""
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGINT)
    select.select([ended], [], [], patience_s)
