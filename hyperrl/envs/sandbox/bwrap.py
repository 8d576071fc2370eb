"""Level ``isolated``: full CPython in namespaces of its own, through bubblewrap."""

from __future__ import annotations

import functools
import shutil
import subprocess
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
from hyperrl.envs.sandbox.users import draw_private_uid, give_away
from hyperrl.errors import ConfigError

__all__ = ["BubblewrapSandbox", "why_not_isolated"]

_PYTHON = "/usr/bin/python3"
_STAGED = "/run/files"
_COPY_THEN_RUN = f'cp -r {_STAGED}/. /tmp/ && exec "$@"'
_WRAPPERS = 2  # bubblewrap outside and as process 1 inside
_PROBE_LIMIT_S = 20.0


class BubblewrapSandbox:
    """Runs code with the system's ``python3``: no network, no files but ``/usr``, processes of its own.

    Args:
        limits: what one run may use.

    Raises:
        ConfigError: bubblewrap does not work here; the message says why and what to install.
    """

    level: SandboxLevel = "isolated"
    contains_signals = True

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        reason = why_not_isolated()
        if reason is not None:
            raise ConfigError(f"a sandbox of level 'isolated' cannot be had: {reason}")
        self.limits = limits or SandboxLimits()

    async def run_python(
        self, code: str, *, stdin: str = "", files: Mapping[str, str | bytes] | None = None
    ) -> SandboxResult:
        checked = check_files(files)
        return await run_in_thread(lambda control: self._run(code, stdin, checked, control))

    def _run(self, code: str, stdin: str, files: Mapping[str, bytes], control: Control) -> SandboxResult:
        uid = draw_private_uid()
        with tempfile.TemporaryDirectory(prefix="hyperrl-sandbox-", ignore_cleanup_errors=True) as folder:
            write_files(Path(folder), code, files)
            if uid is not None:
                give_away(Path(folder), uid)
            command = Command(
                words=_words(folder, self.limits.file_bytes),
                env={"PATH": "/usr/bin"},  # bubblewrap's own can be read inside, as that of process 1
                cwd=Path("/"),
                limits=self.limits,
                stdin=stdin,
                uid=uid,
                extra_tasks=_WRAPPERS,
            )
            return run_command(command, control)


def _words(folder: str, file_bytes: int) -> tuple[str, ...]:
    """The command line of a run; all that code sees is read-only, but for /tmp and /dev/shm."""
    environment = {**PYTHON_ENVIRONMENT, "PATH": "/usr/bin", "HOME": "/tmp", "TMPDIR": "/tmp"}
    size = str(file_bytes)
    words = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
    words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    words += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).exists():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm"]
    words += ["--ro-bind", folder, _STAGED, "--size", size, "--tmpfs", "/tmp", "--chdir", "/tmp"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/"]  # both are file systems in memory without a bound
    return (*words, "/bin/sh", "-c", _COPY_THEN_RUN, "sh", _PYTHON, PROGRAM_NAME)


@functools.cache
def why_not_isolated() -> str | None:
    """Return why bubblewrap cannot be used here, or None where it can: it is really run, once a process."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux; this is {sys.platform}"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed. Run: apt-get install bubblewrap (or your system's equivalent)"
    if not Path(_PYTHON).exists():
        return f"there is no {_PYTHON}. Run: apt-get install python3"
    return _try_it()


def _try_it() -> str | None:
    uid = draw_private_uid()
    with tempfile.TemporaryDirectory(prefix="hyperrl-sandbox-") as folder:
        write_files(Path(folder), "print('inside')", {})
        if uid is not None:
            give_away(Path(folder), uid)
        try:
            done = subprocess.run(
                _words(folder, 1 << 20),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={"PATH": "/usr/bin"},
                cwd="/",
                timeout=_PROBE_LIMIT_S,
                check=False,
                user=uid,
                group=uid,
                extra_groups=None if uid is None else [],
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"bubblewrap did not start: {error}"
    if done.stdout.strip() == b"inside":
        return None
    said = done.stderr.decode("utf-8", errors="replace").strip()
    return (
        f"bubblewrap is installed but does not work here: {said or f'exit code {done.returncode}'}."
        " It needs user namespaces: sysctl user.max_user_namespaces, and a container that permits them"
    )
