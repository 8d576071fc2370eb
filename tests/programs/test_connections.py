"""The watch over connections notes what strace would."""

from __future__ import annotations

import subprocess
import sys

from connections import Connections

REACHES = """
import socket, subprocess, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.2", 53))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("127.0.0.3", 54))
pair = socket.socketpair()
pair[0].send(b"x")
again = "import socket; socket.socket(socket.AF_INET6).connect_ex(('::1', 9))"
raise SystemExit(subprocess.run([sys.executable, "-c", again]).returncode)
"""


def test_every_address_is_noted_that_a_program_or_its_children_reach_for():
    with Connections() as connections:
        command = [*connections.words, sys.executable, "-c", REACHES]
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert connections.seen == [("127.0.0.2", 53), ("127.0.0.3", 54), ("::1", 9)] * 2
