"""Level ``limited``: full CPython in a plain process with limits. Linux only, needs nothing installed."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hyperrl.envs.sandbox.base import PROGRAM_NAME, SandboxLevel, SandboxLimits, SandboxResult, check_files
from hyperrl.envs.sandbox.process import (
    PYTHON_ENVIRONMENT,
    Command,
    Control,
    run_command,
    run_in_thread,
    write_files,
)
from hyperrl.errors import ConfigError

__all__ = ["LocalSandbox"]


class LocalSandbox:
    """Runs code with this process's own interpreter and packages, under limits.

    It bounds accidents: time, memory, processes, output, what is left behind. It does **not** hide files
    or the network from code that looks for them; docs/sandboxes.md lists both.

    Args:
        limits: what one run may use.

    Raises:
        ConfigError: this is not Linux.
    """

    level: SandboxLevel = "limited"

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        if sys.platform != "linux":
            raise ConfigError(f"a sandbox of level 'limited' needs Linux; this is {sys.platform}")
        self.limits = limits or SandboxLimits()

    async def run_python(
        self, code: str, *, stdin: str = "", files: Mapping[str, str | bytes] | None = None
    ) -> SandboxResult:
        checked = check_files(files)
        return await run_in_thread(lambda control: self._run(code, stdin, checked, control))

    def _run(self, code: str, stdin: str, files: Mapping[str, bytes], control: Control) -> SandboxResult:
        with tempfile.TemporaryDirectory(prefix="hyperrl-sandbox-", ignore_cleanup_errors=True) as folder:
            write_files(Path(folder), code, files)
            command = Command(
                words=(sys.executable, PROGRAM_NAME),
                env={**PYTHON_ENVIRONMENT, "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder},
                cwd=Path(folder),
                limits=self.limits,
                stdin=stdin,
            )
            result = run_command(command, control)
        # The folder's random name would make equal runs differ, in every traceback.
        return dataclasses.replace(
            result, stdout=result.stdout.replace(folder, "/tmp"), stderr=result.stderr.replace(folder, "/tmp")
        )
