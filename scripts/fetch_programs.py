"""Install the real agent programs that the tests play with, once, into .cache/programs.

    python scripts/fetch_programs.py [codex] [deepseek]

Versions are pinned. What is there already is left alone, so a second run does nothing. Both come at the same
time. Where one cannot be had, the other is installed all the same, a line says which tests will be
skipped, and the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / ".cache" / "programs"
TIMEOUT_S = 300


class ProgramError(Exception):
    """A program could not be installed; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program and where its native binary lies.

    Attributes:
        package: as the package's own client names it, version pinned.
        command: what installs it, but for the folder and the package.
        binary: pattern of the program's path below that folder.
    """

    package: str
    command: tuple[str, ...]
    binary: str


# Its optional dependencies stay in: one of them holds the native program.
_NPM = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--no-save", "--prefix")
_PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target")

PROGRAMS = {
    "codex": Program(
        package="@openai/codex@0.171.0",
        command=_NPM,
        binary="node_modules/@openai/codex-*/vendor/*/bin/codex",
    ),
    "deepseek": Program(
        package="deepseek-harness-runtime-bin==0.2.1rc2",
        command=_PIP,
        binary="deepseek_harness_runtime/runtime/*-runtime-*-*",
    ),
}


def installed(name: str, root: Path = ROOT) -> Path | None:
    """Return the native program, or nothing where it is not installed in the version that is pinned."""
    program = PROGRAMS[name]
    found = [path for path in _folder(name, root).glob(program.binary) if path.is_file()]
    return found[0] if found else None


def fetch(name: str, root: Path = ROOT) -> Path:
    """Return the native program, installing it if it is not there. Raises ProgramError."""
    if (found := installed(name, root)) is not None:
        return found
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        new, folder = Path(scratch) / "new", _folder(name, root)
        new.mkdir()
        _install(PROGRAMS[name], new)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(new, folder)
    found = installed(name, root)
    if found is None:
        raise ProgramError(f"{PROGRAMS[name].package} comes without {PROGRAMS[name].binary}")
    return found


def _folder(name: str, root: Path) -> Path:
    """Return the folder of a program in the version that is pinned."""
    return root / PROGRAMS[name].package.replace("/", "-").lstrip("@")


def _install(program: Program, folder: Path) -> None:
    command = [*program.command, str(folder), program.package]
    if shutil.which(command[0]) is None:
        raise ProgramError(f"{command[0]} is not there to install {program.package}")
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{program.package}: not installed within {TIMEOUT_S} s") from error
    if done.returncode:
        raise ProgramError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr[-500:].strip()}")


def _report(name: str, root: Path) -> bool:
    """Install one program and say so; return whether it is there."""
    try:
        print(f"{name}: {fetch(name, root)}", flush=True)
    except ProgramError as error:
        print(f"{name}: {error}; tests that play with it are skipped", file=sys.stderr, flush=True)
        return False
    return True


def main(names: Sequence[str], root: Path = ROOT) -> int:
    """Install the named programs, or both."""
    if unknown := [name for name in names if name not in PROGRAMS]:
        print(f"unknown program {unknown[0]!r}; there are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor() as pool:
        return int(not all(list(pool.map(lambda name: _report(name, root), names or PROGRAMS))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
