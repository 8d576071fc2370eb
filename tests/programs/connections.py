"""Every address that a program and all that it starts connect or send to, as the kernel tells it.

A seccomp filter of the *notifying* kind stops each connect, sendto, sendmsg and sendmmsg until a thread of
ours has read the address out of the caller's memory. It needs no privilege and no strace, and misses nothing
however short it is. Run as a script, with the name of a socket and a command, this file sets the
filter, hands its descriptor over and becomes the command.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import os
import platform
import select
import socket
import struct
import sys
import threading
import uuid
from contextlib import ExitStack, closing, suppress
from types import TracebackType

_X86 = platform.machine() == "x86_64"
_CONNECT, _SENDTO, _SENDMSG, _SENDMMSG = (42, 44, 46, 307) if _X86 else (203, 206, 211, 269)
_SECCOMP = 317 if _X86 else 277
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _STILL_THERE = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_CONTINUE = 1


class Connections:
    """Notes addresses while it is open, of any number of programs.

    Attributes:
        words: what to put before the words of a program.
        seen: address and port of each call with an internet address, in order; ``("unreadable", 0)`` where
            the caller's memory cannot be read.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self._name = f"hyperrl-{uuid.uuid4().hex}"
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(f"\0{self._name}")
        self._server.listen(64)
        self._over, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.words = (sys.executable, "-I", "-S", __file__, self._name)

    def __enter__(self) -> Connections:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._tell)
        self._thread.join()
        self._server.close()
        os.close(self._over)

    def _watch(self) -> None:
        with ExitStack() as stack, closing(select.epoll()) as ready:
            ready.register(self._server, select.EPOLLIN)
            ready.register(self._over, select.EPOLLIN)
            while True:
                for number, event in ready.poll():
                    if number == self._over:
                        return
                    if number == self._server.fileno():
                        listener = self._accept()
                        stack.callback(os.close, listener)
                        ready.register(listener, select.EPOLLIN)
                    elif event & select.EPOLLIN:
                        self._note(number)
                    else:
                        ready.unregister(number)  # the last process with this filter has ended

    def _accept(self) -> int:
        line, _ = self._server.accept()
        with closing(line):
            _, [listener], _, _ = socket.recv_fds(line, 1, 1)
        return listener

    def _note(self, listener: int) -> None:
        """Note the address of one call, then let it go on."""
        notification = bytearray(_NOTIFICATION.size)
        with suppress(OSError):  # the caller was killed
            fcntl.ioctl(listener, _RECEIVE, notification)
            ticket, caller, _, call, _, _, *arguments = _NOTIFICATION.unpack(notification)
            try:
                address = _address(caller, call, arguments)
            except OSError:
                fcntl.ioctl(listener, _STILL_THERE, struct.pack("Q", ticket))
                address = ("unreadable", 0)
            if address is not None:
                self.seen.append(address)
            fcntl.ioctl(listener, _SEND, struct.pack("QqiI", ticket, 0, 0, _CONTINUE))


def _address(caller: int, call: int, arguments: list[int]) -> tuple[str, int] | None:
    """Return where a call goes; nothing where it names no address, or none of the internet."""
    if call in (_SENDMSG, _SENDMMSG):  # of many messages the first, which is what resolvers send
        place, length = struct.unpack("QI", _read(caller, arguments[1], 12))
    else:
        place, length = arguments[1:3] if call == _CONNECT else arguments[4:6]
    raw = _read(caller, place, min(length, 28)) if place else b""
    family = int.from_bytes(raw[:2], sys.byteorder)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    packed = raw[4:8] if family == socket.AF_INET else raw[8:24]
    return str(ipaddress.ip_address(packed)), int.from_bytes(raw[2:4], "big")


def _read(process: int, place: int, length: int) -> bytes:
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        memory.seek(place)
        return memory.read(length)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _listen() -> int:
    """Set the filter for this thread and what comes of it; return where its notifications are read."""
    calls = (_CONNECT, _SENDTO, _SENDMSG, _SENDMMSG)
    steps = [(_LOAD, 0, 0, 0), *((_EQUAL, len(calls) - i, 0, call) for i, call in enumerate(calls))]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    wanted = _Filter(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(wanted))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp gives no listener")
    return int(listener)


def _become(name: str, command: list[str]) -> None:
    """Set the filter, hand its listener over and become the command."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(f"\0{name}")
    handed: list[int] = []
    there = threading.Event()

    def hand_over() -> None:  # in a thread without the filter: sending is what it stops
        there.wait()
        socket.send_fds(line, [b"."], handed)

    thread = threading.Thread(target=hand_over)
    thread.start()
    handed.append(_listen())
    there.set()
    thread.join()
    line.close()
    os.close(handed[0])
    os.execv(command[0], command)


if __name__ == "__main__":
    _become(sys.argv[1], sys.argv[2:])
