"""The program that starts, watches and ends one sandboxed command, with all that the command starts.

It is run in a process of its own with one thread, so that forking and giving up rights between fork and
exec are safe whatever the trainer's threads do. It imports the standard library only, and neighbours that do.

It is a *subreaper*: a descendant that detaches itself becomes its child and is ended like the others.
It ends everything when the command ends, the wall clock runs out, there are too many processes, or the
other end of its control socket closes (the call was cancelled, or the trainer died).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any

from hyperrl.envs.sandbox.landlock import enter_domain
from hyperrl.envs.sandbox.privileges import drop_capabilities, enter_pid_namespace, set_flag
from hyperrl.envs.sandbox.seccomp import filter_calls

__all__ = ["end_and_tell", "main"]

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_WATCH_S = 0.02  # between two looks at the number of processes
_DRAIN_LIMIT_S = 10.0
_START_FAILED = 126


def main(arguments: list[str]) -> None:
    """Run the job that the arguments describe: a control socket's number and JSON; see ``process.py``."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    job = json.loads(arguments[1])
    set_flag(_PR_SET_CHILD_SUBREAPER)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(job)
    stopped_by = _watch(control, child, job, deadline=started + job["wall_s"])
    end_and_tell(control, child, stopped_by)


def _become(job: dict[str, Any]) -> None:
    """In the child: give up what it must not have, then become the command."""
    try:
        most_processes = _processes(job)
        confinement = job["confinement"] or {}
        if confinement.get("pid_namespace"):
            enter_pid_namespace()
        _set_limits(job["rlimits"])
        if job["uid"] is not None:
            os.setgroups([])
            os.setgid(job["uid"])
            os.setuid(job["uid"])
        # After the change of user: as root the number of processes would not be limited.
        resource.setrlimit(resource.RLIMIT_NPROC, most_processes)
        set_flag(_PR_SET_NO_NEW_PRIVS)
        if confinement:
            _confine(confinement)
        os.execve(job["command"][0], job["command"], job["env"])
    except BaseException as error:  # noqa: BLE001  # a forked child must never return into its parent's code
        os.write(2, f"the sandbox could not start {job['command'][0]}: {error}\n".encode())
    os._exit(_START_FAILED)


def _confine(confinement: dict[str, Any]) -> None:
    """Give up what a ``Confinement`` says, but for the namespace and the user."""
    if confinement["landlock"]:
        enter_domain(confinement["landlock"], confinement["writable"])
    if confinement["capabilities"] != "kept":
        drop_capabilities(reads_all=confinement["capabilities"] == "read")
    if confinement["filtered"]:
        filter_calls()


def _set_limits(limits: dict[str, list[int]]) -> None:
    for name, (soft, hard) in limits.items():
        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)  # noqa: PLW2901
        resource.setrlimit(kind, (soft, hard))


def _processes(job: dict[str, Any]) -> tuple[int, int]:
    """The limit for a user of its own, or on top of what its shared user runs already."""
    most: int = job["most_tasks"]
    if job["uid"] is None:
        most += job["shared_slack"] + _tasks_of_user(os.getuid())
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return most, most


def _tasks_of_user(uid: int) -> int:
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _watch(control: socket.socket, child: int, job: dict[str, Any], *, deadline: float) -> str | None:
    """Wait for the end of the child; return what ended it before, if anything did."""
    ended, line = os.pidfd_open(child), control.fileno()
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([line, ended], [], [], max(0.0, min(_WATCH_S, left)))
        if ended in ready:
            return None
        if line in ready:
            return "cancelled"
        if left <= 0:
            return "wall"
        if _survey()[1] > job["most_tasks"]:
            return "processes"


def _survey() -> tuple[list[int], int]:
    """Return the ids of all descendants and the number of their threads."""
    found, tasks = _children(os.getpid())[0], 0
    for process in found:  # grows while it is walked
        children, threads = _children(process)
        found += children
        tasks += threads
    return found, tasks


def _children(process: int) -> tuple[list[int], int]:
    """Return the ids of the children of a process and the number of its threads."""
    found, threads = [], 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            threads += 1
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as listing,
            ):
                found += [int(child) for child in listing.read().split()]
    return found, threads


def end_and_tell(control: socket.socket, child: int, stopped_by: str | None) -> None:
    """End every descendant, and send how ``child`` ended, as JSON."""
    status, cpu_s = _drain(child)
    verdict = {"exit_code": os.waitstatus_to_exitcode(status), "cpu_s": cpu_s, "stopped_by": stopped_by}
    with contextlib.suppress(OSError):  # nobody listens any more
        control.sendall(json.dumps(verdict).encode())


def _drain(child: int) -> tuple[int, float]:
    """End every descendant; return the wait status of ``child`` and the CPU seconds of all of them.

    Orphans of those that end become ours and are ended in the next round.
    """
    status, cpu_s, deadline = 0, 0.0, time.monotonic() + _DRAIN_LIMIT_S
    reaped = _reap()
    while reaped is not None and time.monotonic() < deadline:
        if reaped:
            for process, its_status, its_cpu_s in reaped:
                status = its_status if process == child else status
                cpu_s += its_cpu_s
        else:
            for process in _survey()[0]:
                _kill_descendant(process)
            time.sleep(0.001)
        reaped = _reap()
    return status, cpu_s


def _kill_descendant(process: int) -> None:
    """Kill a process, if it is still the one that was found: ids of those that ended are given out again."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(process)  # from here on it means this process, and no later one
        try:
            if _descends(process):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _descends(process: int) -> bool:
    """Whether a process is a descendant of this one. Raises OSError where the line is breaking off."""
    ours = os.getpid()
    while process not in (ours, 0, 1):
        with open(f"/proc/{process}/stat", "rb") as stat:
            process = int(stat.read().rpartition(b")")[2].split()[1])  # a name may hold anything
    return process == ours


def _reap() -> list[tuple[int, int, float]] | None:
    """Collect children that have ended: id, status and CPU seconds. None: there are no children left."""
    ended: list[tuple[int, int, float]] = []
    while True:
        try:
            process, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended or None
        if process == 0:
            return ended
        ended.append((process, status, usage.ru_utime + usage.ru_stime))
