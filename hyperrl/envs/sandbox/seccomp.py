"""A filter of system calls for what Landlock leaves open: reaching others by limits and by local services.

``prlimit`` on another process of the user ends it as surely as a signal does (a CPU limit of 0 s), and a
service of the user (D-Bus, Docker, an agent) does on request what the process itself may not. Standard
library only; used by the supervisor between fork and exec.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from dataclasses import dataclass

__all__ = ["can_filter", "filter_calls", "make_filter"]

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_IO_URING_SETUP = 425  # would make sockets behind the filter's back
_X32 = 0x40000000  # numbers from here on are a second set of the same calls


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    architecture: int
    prlimit: int
    socket: int


_KNOWN = {
    "x86_64": _Numbers(architecture=0xC000003E, prlimit=302, socket=41),
    "aarch64": _Numbers(architecture=0xC00000B7, prlimit=261, socket=198),
}


def can_filter(machine: str | None = None) -> bool:
    """Whether the numbers of system calls are known for a machine; None: for this one."""
    return (machine or os.uname().machine) in _KNOWN


def make_filter(machine: str) -> bytes:
    """Return the program for the kernel: ``struct sock_filter`` after ``struct sock_filter``.

    Refused are ``prlimit`` with any process but 0 (the caller), sockets of the family Unix (pairs are
    not), ``io_uring``, and calls by the numbers of another architecture.

    Raises:
        KeyError: the machine is none of :func:`can_filter`.
    """
    numbers = _KNOWN[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, numbers.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 8, 0, _X32),
        (_JUMP_EQUAL, 7, 0, _IO_URING_SETUP),
        (_JUMP_EQUAL, 2, 0, numbers.prlimit),
        (_JUMP_EQUAL, 3, 0, numbers.socket),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),  # of prlimit: a process
        (_JUMP_EQUAL, 3, 2, 0),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),  # of socket: a family
        (_JUMP_EQUAL, 0, 1, socket.AF_UNIX),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def filter_calls() -> None:
    """Put this process and all that it will start under the filter; it must have no new rights to gain.

    Raises:
        OSError: the kernel refuses it.
    """
    program = make_filter(os.uname().machine)
    steps = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), described, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"seccomp is refused: {os.strerror(ctypes.get_errno())}")
