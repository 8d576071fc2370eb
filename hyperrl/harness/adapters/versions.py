"""Which version of a program is installed, and whether it is one that is known to work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hyperrl.errors import ConfigError

__all__ = ["KnownVersions"]

_LIMIT_S = 60.0
_NUMBER = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVersions:
    """The versions of a program that are known to work.

    Attributes:
        title: what people call the program.
        first: the first of them.
        beyond: the first that nobody has tried.
        install: the command that installs one.
    """

    title: str
    first: tuple[int, int]
    beyond: tuple[int, int]
    install: str

    async def check(self, binary: str, *, any_version: bool, env: Mapping[str, str] | None = None) -> None:
        """Ask a program for its version.

        Args:
            binary: its path.
            any_version: any will do.
            env: its environment; by default that of this process.

        Raises:
            ConfigError: it tells none, or one that is not known.
        """
        said = await _ask(binary, env)
        found = _NUMBER.search(said)
        if found is None:
            raise ConfigError(
                f"{binary} does not tell its version, so it is no {self.title}. Install one: {self.install}"
            )
        version = tuple(map(int, found.groups()))
        if self.first <= version < self.beyond or any_version:
            return
        first, beyond = (".".join(map(str, bound)) for bound in (self.first, self.beyond))
        raise ConfigError(
            f"{binary} is {self.title} {found[0]}; hyperrl knows {first} and newer below {beyond}."
            f" Install one: {self.install}. Or try it with any_version=True in the settings of the program"
        )


async def _ask(binary: str, env: Mapping[str, str] | None) -> str:
    process = await asyncio.create_subprocess_exec(
        binary,
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=None if env is None else dict(env),
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
