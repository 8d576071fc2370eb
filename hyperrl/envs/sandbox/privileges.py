"""Giving up rights of a user, and going where others cannot be named: between fork and exec.

Standard library only; used by the supervisor, which has one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

__all__ = ["drop_capabilities", "enter_pid_namespace", "set_flag"]

_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_READ_SEARCH = 2
_MOST_CAPABILITIES = 64
_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_PIDS = 0x20000, 0x8000000, 0x10000000, 0x20000000
_MS_REC_PRIVATE = 1 << 14 | 1 << 18
_MS_NO_SUID_DEV_EXEC = 2 | 4 | 8


def set_flag(option: int, value: int = 1) -> None:
    """Call ``prctl(option, value)``.

    Raises:
        OSError: the kernel refuses it.
    """
    _check(_libc().prctl(option, value, 0, 0, 0), f"prctl({option})")


def drop_capabilities(*, reads_all: bool = False) -> None:
    """Leave no capabilities to this process and to what it becomes, also where it is root.

    Root without them is a user like others that happens to own the system's files.

    Args:
        reads_all: keep the right to read and search everything.

    Raises:
        OSError: the kernel refuses it.
    """
    kept = 1 << _CAP_DAC_READ_SEARCH if reads_all else 0
    for number in range(_MOST_CAPABILITIES):
        if not kept >> number & 1:  # refused to those who have none, and past the last that there is
            _libc().prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    sets = struct.pack("=6I", kept, kept, 0, 0, 0, 0)  # effective, permitted, inheritable; low then high
    _check(_libc().capset(header, sets), "dropping capabilities")


def enter_pid_namespace() -> None:
    """Go on as a process that sees none but its own; returns in it only, the caller waits for it.

    As root alone, or as a user in a user namespace. Process 1 of the namespace stays in between: when the
    one that returned ends, it ends with the same code (128 + N for signal N), and everything else with it.

    Raises:
        OSError: the kernel refuses namespaces here.
    """
    kinds = _NEW_PIDS | _NEW_MOUNTS | _NEW_IPC
    uid, gid = os.getuid(), os.getgid()
    if _libc().unshare(kinds) != 0:
        _check(_libc().unshare(kinds | _NEW_USERS), "unshare")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _stay_behind()
    _libc().mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None)
    # Refused in containers that hide parts of /proc; then numbers there are those of the machine.
    _libc().mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NO_SUID_DEV_EXEC), None)
    _stay_behind()


def _stay_behind() -> None:
    """Fork; return in the child. The parent takes in whoever ends, and ends as the child does."""
    child = os.fork()
    if child == 0:
        return
    code = 1
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.wait()
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                break
    os._exit(code if code >= 0 else 128 - code)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what} is refused: {os.strerror(ctypes.get_errno())}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
