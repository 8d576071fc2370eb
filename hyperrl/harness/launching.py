"""How the process of a program is started: what it is told, its home and its environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyperrl.harness.process import ProgramCommand

__all__ = ["HUGE_CONTEXT", "KEY", "PROVIDER", "Launch", "Place", "command_for", "program_home"]

KEY = "HYPERRL_KEY"
"""The variable in which a program finds its secret."""

PROVIDER = "hyperrl"
"""What a program's configuration calls its model vendor."""

HUGE_CONTEXT = 1_000_000_000
"""The context that a program is told, so that it compacts nothing; the real one holds at the gateway."""

_HOMES = "/var/tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What an adapter is told of one episode.

    Attributes:
        home: an empty directory of its own, outside the workspace; removed at the end.
        workspace: where the program works.
        base_url: where it reaches the policy, in any of the gateway's wire formats; ends in ``/v1``.
        api_key: the secret that it has to show there, and at ``mcp_url``.
        model: the model that it asks for.
        system: what the environment says first, to be put before or behind the program's own instructions.
        prompt: the task.
        mcp_url: the environment's tools over streamable HTTP; empty where it has none.
    """

    home: Path
    workspace: Path
    base_url: str
    api_key: str
    model: str
    system: str
    prompt: str
    mcp_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How an adapter wants its program to be started.

    Attributes:
        words: the program's absolute path and its arguments.
        env: what it finds in its environment beside PATH, LANG, HOME and TMPDIR.
        stdin: what it reads.
        files: what to write first, by path below ``home``.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def program_home(base: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Make a home, by default outside the temporary directory."""
    if base is None and os.path.isdir(_HOMES) and os.access(_HOMES, os.W_OK):
        base = Path(_HOMES)
    return tempfile.TemporaryDirectory(prefix="hyperrl-home-", dir=base, ignore_cleanup_errors=True)


def command_for(
    launch: Launch, *, home: Path, cwd: Path, timeout_s: float, interrupt_s: float
) -> ProgramCommand:
    """Write the files of a launch below ``home``, and return the command."""
    for name, text in launch.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    base = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(temporary),
    }
    return ProgramCommand(
        words=launch.words,
        env={**base, **launch.env},
        cwd=cwd,
        stdin=launch.stdin,
        timeout_s=timeout_s,
        interrupt_s=interrupt_s,
    )
