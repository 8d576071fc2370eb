"""What every sandbox promises: levels, limits, results and the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from hyperrl.errors import ConfigError, nearest

__all__ = [
    "LEVELS",
    "PROGRAM_NAME",
    "Sandbox",
    "SandboxLevel",
    "SandboxLimits",
    "SandboxResult",
    "check_files",
    "check_level",
    "reaches",
]

SandboxLevel = Literal["none", "limited", "isolated"]
LEVELS: tuple[SandboxLevel, ...] = get_args(SandboxLevel)
"""From the weakest to the strongest. docs/sandboxes.md lists what each stops and what it does not."""

PROGRAM_NAME = "program.py"
"""The file that the code of ``run_python`` becomes, in the working directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """How much one run may use.

    Attributes:
        wall_s: seconds from start to end.
        cpu_s: CPU seconds of each process, rounded up to whole ones.
        memory_bytes: address space of each process.
        processes: processes and threads alive at one time.
        file_bytes: size of one file; where the level is ``isolated``, of all files together too.
        output_bytes: bytes kept of each of stdout and stderr, half from the start, half from the end.

    Raises:
        ConfigError: a limit is not a finite number above 0.
    """

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_bytes: int = 1 << 30
    processes: int = 64
    file_bytes: int = 64 << 20
    output_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{limit.name} of a sandbox is {value!r}; give a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """What a run left behind.

    Attributes:
        stdout: what was printed, with a notice in the middle where bytes were left out.
        stderr: the same for errors; a last line in brackets says why the sandbox ended the run.
        exit_code: 0 after success; -N or 128 + N where signal N ended the run.
        timed_out: the wall or the CPU clock ended it.
        truncated_bytes: bytes left out of ``stdout`` and ``stderr`` together.
        out_of_memory: it ended because memory was refused to it.
        duration_s: seconds it took. Never show it to a policy: it differs from run to run.
        value: the value of the last expression, where the interpreter gives one (Monty).
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool = False
    truncated_bytes: int = 0
    out_of_memory: bool = False
    duration_s: float = 0.0
    value: Any = None

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end without an error."""
        return self.exit_code == 0 and not self.timed_out


@runtime_checkable
class Sandbox(Protocol):
    """A place where code that nobody has read may run."""

    @property
    def level(self) -> SandboxLevel:
        """How strong it is; see :data:`LEVELS`."""
        ...

    @property
    def contains_signals(self) -> bool:
        """Whether code in it can end no process but its own. Not every machine has that for ``limited``."""
        ...

    async def run_python(
        self, code: str, *, stdin: str = "", files: Mapping[str, str | bytes] | None = None
    ) -> SandboxResult:
        """Run code in a fresh interpreter and say how it went.

        Errors, overruns and floods of the code are part of the result, never exceptions. Whatever it
        started has ended when this returns, also when the call is cancelled.

        Args:
            code: Python source.
            stdin: what it reads from standard input.
            files: contents by relative path, placed in the working directory. ``str`` is written as UTF-8.

        Raises:
            ConfigError: a path in ``files`` is absolute, leads outside, or is the program's own.
        """
        ...


def check_level(name: str) -> SandboxLevel:
    """Return ``name`` as a level.

    Raises:
        ConfigError: there is no such level.
    """
    for level in LEVELS:
        if level == name:
            return level
    known = ", ".join(LEVELS)
    raise ConfigError(f"there is no sandbox level {name!r}; the levels are {known}.{nearest(name, LEVELS)}")


def reaches(level: str, minimum: str) -> bool:
    """Whether ``level`` is at least as strong as ``minimum``.

    Raises:
        ConfigError: one of them is no level.
    """
    return LEVELS.index(check_level(level)) >= LEVELS.index(check_level(minimum))


def check_files(files: Mapping[str, str | bytes] | None) -> dict[str, bytes]:
    """Return the contents as bytes.

    Raises:
        ConfigError: a path is absolute, leads outside, or is the program's own.
    """
    checked: dict[str, bytes] = {}
    for name, content in (files or {}).items():
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
            raise ConfigError(f"{name!r} is no path for a file of a sandbox; give one below its folder")
        if str(path) == PROGRAM_NAME:
            raise ConfigError(f"{PROGRAM_NAME!r} is where the code itself goes; give that file another name")
        checked[str(path)] = content if isinstance(content, bytes) else _encode(content)
    return checked


def _encode(text: str) -> bytes:
    return text.encode("utf-8", errors="backslashreplace")
