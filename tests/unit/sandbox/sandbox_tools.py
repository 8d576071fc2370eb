"""What the tests of the sandboxes share."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path

from hyperrl.envs.sandbox import Sandbox, SandboxLimits, SandboxResult

SMALL = SandboxLimits(
    wall_s=20, cpu_s=10, memory_bytes=256 << 20, processes=12, file_bytes=1 << 20, output_bytes=2000
)


def run(sandbox: Sandbox, code: str, **options) -> SandboxResult:
    return asyncio.run(sandbox.run_python(code, **options))


def new_mark() -> str:
    """A word for a command line, by which its process is found."""
    return f"mark-{uuid.uuid4().hex}"


def marked(mark: str) -> list[int]:
    """The processes that have a word in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(folder.name))
    return found


def wait_for_mark(mark: str) -> list[int]:
    """Wait until a marked process is there; the test's own timeout bounds it."""
    while not (found := marked(mark)):
        time.sleep(0.01)
    return found
