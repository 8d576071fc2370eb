"""Landlock: what a process gives up for itself and all that it starts, without rights and for good.

It works for any user, root included, on Linux 5.13 and later; what it can take away grows with the *ABI* of
the kernel. Standard library only, so that it can be imported by the programs that run inside a sandbox.
https://docs.kernel.org/userspace-api/landlock.html has the numbers.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

__all__ = ["SIGNALS_ABI", "WRITES_ABI", "compute_write_rights", "enter_domain", "landlock_abi"]

SIGNALS_ABI = 6
"""From here on (Linux 6.12) signals and abstract Unix sockets outside the domain can be refused."""

WRITES_ABI = 3
"""From here on (Linux 6.2) every way to change a file's content is covered, truncation too."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _MAKE_CHAR, _MAKE_BLOCK = 1 << 1, 1 << 6, 1 << 11
_ALWAYS = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # removing and making of files of all kinds
_LATER = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # refer, truncate, ioctl of devices, by the first ABI
_TRUNCATE, _IOCTL = _LATER[3], _LATER[5]
_SCOPES = 1 << 0 | 1 << 1  # abstract Unix sockets, signals


def landlock_abi() -> int:
    """Return the kernel's version of Landlock; 0 where it has none or it is switched off."""
    abi: int = _libc().syscall(_CREATE_RULESET, None, _word(0), _word(_CREATE_RULESET_VERSION))
    return max(0, abi)


def enter_domain(abi: int, writable: Iterable[str] | None = None) -> None:
    """Put this process, of one thread, and all that it will start into a domain of their own.

    Processes of the domain cannot trace or read the memory, environment and open files of others outside
    it, nor, from :data:`SIGNALS_ABI`, send them signals. Those outside may do so into it. The process
    must have given up to gain rights (``PR_SET_NO_NEW_PRIVS``).

    Args:
        abi: what :func:`landlock_abi` returned, at least 1.
        writable: the only files, and folders with all below, that may be changed; None: as before.

    Raises:
        OSError: the kernel refuses it.
    """
    rights = _MAKE_BLOCK if writable is None else compute_write_rights(abi)
    scopes = (_SCOPES,) if abi >= SIGNALS_ABI else ()
    words = (rights, *(0 for _ in scopes), *scopes)  # files, network, scopes
    attributes = struct.pack(f"={len(words)}Q", *words)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in writable or ():
            _allow(ruleset, path, rights & ~(_MAKE_CHAR | _MAKE_BLOCK))
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def compute_write_rights(abi: int) -> int:
    """Return the rights of that ABI that change files: a mask of ``LANDLOCK_ACCESS_FS_*``."""
    return _ALWAYS | sum(right for first, right in _LATER.items() if abi >= first)


def _allow(ruleset: int, path: str, rights: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _WRITE_FILE | _TRUNCATE | _IOCTL
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _call(number: int, *arguments: int | bytes) -> int:
    words = [argument if isinstance(argument, bytes) else _word(argument) for argument in arguments]
    result: int = _libc().syscall(number, *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock is refused: {os.strerror(ctypes.get_errno())}")
    return result


def _word(value: int) -> ctypes.c_long:
    return ctypes.c_long(value)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
