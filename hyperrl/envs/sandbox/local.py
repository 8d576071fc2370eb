"""Level ``limited``: full CPython in a confined process with limits. Linux only, needs nothing installed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hyperrl.envs.sandbox.base import PROGRAM_NAME, SandboxLevel, SandboxLimits, SandboxResult, check_files
from hyperrl.envs.sandbox.confinement import Confinement, list_confinements
from hyperrl.envs.sandbox.landlock import landlock_abi
from hyperrl.envs.sandbox.process import (
    PYTHON_ENVIRONMENT,
    Command,
    Control,
    run_command,
    run_in_thread,
    write_files,
)
from hyperrl.envs.sandbox.seccomp import can_filter
from hyperrl.envs.sandbox.users import draw_private_uid, give_away
from hyperrl.errors import ConfigError

__all__ = ["LocalSandbox", "find_confinement"]

logger = logging.getLogger(__name__)

_WRAPPERS = 2  # of a namespace: outside, and process 1 inside
_PROBE_LIMITS = SandboxLimits(wall_s=60.0, cpu_s=20.0)
_PROBE = """
import os, sys
found = []
for folder in sys.path:
    if os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK):
        found += [entry.name for entry in os.scandir(folder) if os.access(entry.path, os.R_OK)]
print("reads", hash(tuple(sorted(found))))
"""


class LocalSandbox:
    """Runs code with this process's own interpreter and packages, under limits and a confinement.

    It bounds accidents: time, memory, processes, output, what is left behind. Where the kernel has what it
    takes, code cannot end other processes, look into them, or write elsewhere. It does **not** hide files
    or the network from code that looks for them; docs/sandboxes.md lists both.

    Args:
        limits: what one run may use.
        confinement: what holds the code beside the limits; None: the strongest that works here.

    Attributes:
        contains_signals: whether code in it can end no process but its own. Where it cannot be held
            to that, a warning is logged, once a process.

    Raises:
        ConfigError: this is not Linux, or no process can be started here at all.
    """

    level: SandboxLevel = "limited"

    def __init__(
        self, limits: SandboxLimits | None = None, *, confinement: Confinement | None = None
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError(f"a sandbox of level 'limited' needs Linux; this is {sys.platform}")
        self.limits = limits or SandboxLimits()
        folder = tempfile.gettempdir()  # as it is now: for this one the confinement is found to work
        self.confinement = confinement or find_confinement(sys.executable, folder)
        self._place = _Place(limits=self.limits, confinement=self.confinement, folder=folder)
        if not self.contains_signals:
            _warn_once()

    @property
    def contains_signals(self) -> bool:
        return self.confinement.contains_signals

    async def run_python(
        self, code: str, *, stdin: str = "", files: Mapping[str, str | bytes] | None = None
    ) -> SandboxResult:
        checked = check_files(files)
        return await run_in_thread(lambda control: self._place.run(code, stdin, checked, control))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where code runs: under which limits and confinement, and where its working directory is made."""

    limits: SandboxLimits
    confinement: Confinement
    folder: str

    def run(self, code: str, stdin: str, files: Mapping[str, bytes], control: Control) -> SandboxResult:
        uid = draw_private_uid() if self.confinement.own_user else None
        with tempfile.TemporaryDirectory(
            prefix="hyperrl-sandbox-", dir=self.folder, ignore_cleanup_errors=True
        ) as folder:
            write_files(Path(folder), code, files)
            if uid is not None:
                give_away(Path(folder), uid)
            command = Command(
                words=(sys.executable, PROGRAM_NAME),
                env={**PYTHON_ENVIRONMENT, "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder},
                cwd=Path(folder),
                limits=self.limits,
                stdin=stdin,
                uid=uid,
                confinement=self.confinement,
                extra_tasks=_WRAPPERS if self.confinement.pid_namespace else 0,
            )
            result = run_command(command, control)
        # The folder's random name would make equal runs differ, in every traceback.
        return dataclasses.replace(
            result, stdout=result.stdout.replace(folder, "/tmp"), stderr=result.stderr.replace(folder, "/tmp")
        )


@functools.cache
def find_confinement(executable: str, folder: str) -> Confinement:
    """Return the strongest confinement that works here; each is really run, once a process.

    One is not taken in which the interpreter would read less of its packages than without.

    Args:
        executable: the interpreter.
        folder: where working directories are made.

    Raises:
        ConfigError: the interpreter does not even run without any.
    """
    expected = _probe(Confinement(capabilities="kept"), folder)
    if not expected.ok:
        raise ConfigError(
            f"a sandbox of level 'limited' cannot be had: {executable} does not run in {folder}:"
            f" {expected.stderr.strip()[-300:] or f'exit code {expected.exit_code}'}"
        )
    root = os.getuid() == 0
    for confinement in list_confinements(abi=landlock_abi(), filters=can_filter(), root=root):
        found = _probe(confinement, folder)
        if found.ok and found.stdout == expected.stdout:
            return confinement
    return Confinement(capabilities="kept")


def _probe(confinement: Confinement, folder: str) -> SandboxResult:
    place = _Place(limits=_PROBE_LIMITS, confinement=confinement, folder=folder)
    with contextlib.closing(Control()) as control:
        return place.run(_PROBE, "", {}, control)


@functools.cache
def _warn_once() -> None:
    logger.warning(
        "a sandbox of level 'limited' cannot keep code here from ending this user's other processes, this"
        " one included: the kernel has neither Landlock with signals (Linux 6.12) nor namespaces to offer."
        " For code that nobody has read, install bubblewrap or use interpreter='monty'; see docs/sandboxes.md"
    )
