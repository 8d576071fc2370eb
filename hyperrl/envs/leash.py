"""The program that runs a server of tools, ends all its processes with it, and never outlives its caller.

It is run as a script and imports the standard library only. The first argument is the process id of
the caller; the rest is the command, which gets the standard input and output. Of what the command writes
to its standard error, the end is kept and passed on when it ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO

__all__ = ["main"]

_WATCH_S = 0.5
_KEPT_BYTES = 8_000


def main(arguments: list[str]) -> None:
    """Run a command as the leader of this process's group: ``[parent, program, argument, ...]``."""
    parent, command = int(arguments[0]), arguments[1:]
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: None)  # the command has it too; this one stays to see its end
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    try:
        child = subprocess.Popen(command, stderr=subprocess.PIPE)
    except OSError as error:
        os.write(2, f"{command[0]!r} cannot be started: {error.strerror}\n".encode())
        return
    os.close(0)
    os.close(1)  # whoever reads the command's output sees its end when the command is gone
    tail = bytearray()
    assert child.stderr is not None
    reader = threading.Thread(target=_keep_tail, args=(child.stderr, tail), daemon=True)
    reader.start()
    child.wait()
    reader.join(timeout=0.2)
    os.write(2, bytes(tail))
    _end_group()


def _keep_tail(stream: IO[bytes], tail: bytearray) -> None:
    while chunk := os.read(stream.fileno(), 65_536):
        tail += chunk
        del tail[:-_KEPT_BYTES]


def _end_group() -> None:
    """End this process and its group by the group's own number: 0 would mean whatever group it is in."""
    os.killpg(os.getpid(), signal.SIGKILL)


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    _end_group()


if __name__ == "__main__":
    main(sys.argv[1:])
