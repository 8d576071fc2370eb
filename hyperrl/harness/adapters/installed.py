"""Where a program is, which version it has, and whether that is one that works."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from hyperrl.agents.base import AgentProgram, program_name
from hyperrl.errors import ConfigError
from hyperrl.harness.cli_program import CliAdapter, CliProgram
from hyperrl.harness.self_test import SelfTest, run_self_test

__all__ = ["Installable", "Installed", "KnownAdapter", "KnownProgram", "ProgramSettings", "machine"]

_LIMIT_S = 60.0
_NUMBER = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_TESTS: dict[tuple[str, str, str], asyncio.Task[SelfTest]] = {}
S = TypeVar("S", bound="ProgramSettings")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A program that is there.

    Attributes:
        path: where.
        version: as it says.
        known: whether hyperrl knows that version.
        range: the versions that it knows.
    """

    path: str
    version: str
    known: bool
    range: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProgram:
    """A program that hyperrl knows, and the versions that are known to work.

    Attributes:
        title: what people call it.
        command: its name on the PATH.
        variable: of the environment, that names another place.
        first: the first version.
        beyond: the first that nobody has tried.
        install: the command that installs one.
        native: returns the program itself where what was found is a script around it.
        packaged: returns where a package has put it; asked before the PATH.
        env: what it finds in its environment when it is asked for its version.
    """

    title: str
    command: str
    variable: str
    first: tuple[int, int]
    beyond: tuple[int, int]
    install: str
    native: Callable[[Path], Path | None] = lambda found: found
    packaged: Callable[[], Path | None] = lambda: None
    env: Mapping[str, str] | None = None

    async def find(self, given: str = "") -> Installed:
        """Find the program: the path that is given, the variable's, the package's, or the PATH's.

        Raises:
            ConfigError: there is none, or it does not tell its version.
        """
        path = self._locate(given)
        said = _NUMBER.search(await self._ask(path))
        if said is None:
            raise ConfigError(
                f"{path} does not tell its version, so it is no {self.title}. Install one: {self.install}"
            )
        known = self.first <= tuple(map(int, said.groups())) < self.beyond
        return Installed(path=str(path), version=said[0], known=known, range=self._range())

    async def check(self, given: str, *, any_version: bool, trial: Callable[[str], AgentProgram]) -> str:
        """Find the program and return its path, if it is a version that works.

        One that is not known is tried once, by a self-test; that it passes is logged as a warning.

        Args:
            given: as for :meth:`find`.
            any_version: any will do, without a test.
            trial: makes the program that is tried of its path; it takes any version.

        Raises:
            ConfigError: there is none, or a version that is not known fails the self-test.
        """
        found = await self.find(given)
        if found.known or any_version:
            return found.path
        name = f"{found.path} is {self.title} {found.version}; hyperrl knows {found.range}"
        tested = await _tested_once(found, trial(found.path), name)
        if tested.failed:
            failures = "; ".join([f"{check.name}: {check.detail}" for check in tested.failed])
            raise ConfigError(
                f"{name}, and with this one the self-test failed ({failures}). Install one: {self.install}."
                " Or try it with any_version=True in the settings of the program"
            )
        return found.path

    def _locate(self, given: str) -> Path:
        wanted = given or os.environ.get(self.variable, "")
        packaged = None if wanted else self.packaged()
        found = shutil.which(wanted or self.command) if packaged is None else str(packaged)
        if found is None:
            raise ConfigError(
                f"there is no program {wanted or self.command!r}. Install {self.title}: {self.install};"
                f" or set {self.variable} to its path"
            )
        path = self.native(Path(found).resolve())
        if path is None:
            raise ConfigError(
                f"{found} comes without the program itself. Install {self.title} again: {self.install}"
            )
        return path

    def _range(self) -> str:
        first, beyond = (".".join(map(str, bound)) for bound in (self.first, self.beyond))
        return f"{first} and newer below {beyond}"

    async def _ask(self, path: Path) -> str:
        process = await asyncio.create_subprocess_exec(
            str(path),
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=None if self.env is None else {"PATH": os.environ.get("PATH", os.defpath), **self.env},
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                said, _ = await process.communicate()
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        return said.decode("utf-8", "replace")


class ProgramSettings(Protocol):
    """What every program that is known has among its settings.

    Attributes:
        binary: its path; empty looks for it.
        any_version: run versions outside the known range too, without a self-test.
    """

    @property
    def binary(self) -> str: ...

    @property
    def any_version(self) -> bool: ...


@runtime_checkable
class Installable(Protocol):
    """A program, or its adapter, that is known by its versions.

    Attributes:
        known: what is known of it.
    """

    known: KnownProgram

    @property
    def given(self) -> str:
        """Its path, if one was given."""
        ...

    def trial(self, binary: str) -> AgentProgram:
        """Return one at a path that takes any version, for the self-test."""
        ...


class KnownAdapter(Generic[S]):
    """The part of an adapter that finds its program; ``known`` says which, and ``name`` what is recorded.

    Args:
        settings: how the program is run.

    Attributes:
        settings: as given.
        binary: the program's path, once it was found.
    """

    known: KnownProgram
    name: str

    def __init__(self, settings: S) -> None:
        self.settings = settings
        self.binary = ""

    @property
    def given(self) -> str:
        """Its path, if one was given."""
        return self.settings.binary

    async def check(self) -> None:
        """Find the program; see :meth:`KnownProgram.check`."""
        if not self.binary:
            any_version = self.settings.any_version
            self.binary = await self.known.check(self.given, any_version=any_version, trial=self.trial)

    def trial(self, binary: str) -> AgentProgram:
        """Return the program at a path, with these settings, taking any version: for the self-test."""
        settings: Any = dataclasses.replace(self.settings, binary=binary, any_version=True)  # type: ignore[type-var]
        return CliProgram(cast("CliAdapter", type(self)(settings)))


def machine() -> str:
    """Return what packages of native programs call this kind of machine."""
    return "arm64" if platform.machine() in ("aarch64", "arm64") else "x64"


async def _tested_once(found: Installed, program: AgentProgram, name: str) -> SelfTest:
    """Return the self-test of a version, which is made once, however many episodes wait for it."""
    key = (program_name(program), found.path, found.version)
    task = _TESTS.get(key)
    if task is None or not _usable(task):
        task = _TESTS[key] = asyncio.create_task(_test(program, name))
    return task.result() if task.done() else await asyncio.shield(task)


def _usable(task: asyncio.Task[SelfTest]) -> bool:
    if task.done():
        return not task.cancelled() and task.exception() is None
    return task.get_loop() is asyncio.get_running_loop()


async def _test(program: AgentProgram, name: str) -> SelfTest:
    tested = await run_self_test(program)
    if not tested.failed:
        logger.warning("%s; the self-test passed with this one", name)
    return tested
