"""What tests know of each real program, and what they look for behind it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repairs import call, repair_script

from hyperrl.harness.adapters.codex import CodexAdapter, CodexSettings
from hyperrl.harness.adapters.deepseek import DeepSeekAdapter, DeepSeekSettings
from hyperrl.harness.cli_program import CliAdapter, CliProgram, CliSettings, Launch, Place
from hyperrl.trajectory import Trajectory


@dataclass(frozen=True)
class RealProgram:
    """One installed program, and how a policy speaks to it.

    Attributes:
        name: what trajectories record.
        binary: its path.
        homes: where its homes are made in this test.
        starts_s: about how long it takes to its first request.
    """

    name: str
    binary: str
    homes: Path
    starts_s: float

    def adapter(self) -> Any:
        if self.name == "codex":
            return CodexAdapter(CodexSettings(binary=self.binary, retries=0))
        return DeepSeekAdapter(DeepSeekSettings(binary=self.binary))

    def program(self, words: Callable[[], tuple[str, ...]] = tuple, *, timeout_s: float = 120) -> CliProgram:
        """Return the program; ``words`` gives what is put before its own, for each start."""
        return CliProgram(Prefixed(self.adapter(), words), CliSettings(timeout_s=timeout_s, homes=self.homes))

    def shell(self, command: str, **more: Any) -> str:
        """Return a call of the program's own shell."""
        if self.name == "codex":
            return call("exec_command", cmd=command, **more)
        return call("bash", description="Work on it", command=command, **more)

    def script(self) -> list[str]:
        """Return the actions that repair the repository."""
        if self.name == "codex":
            return repair_script("exec_command", "cmd", "mcp__env__run_tests")
        return [
            text.replace('"arguments": {"command"', '"arguments": {"description": "Work on it", "command"')
            for text in repair_script("bash", "command", "mcp__env__run_tests")
        ]


class Prefixed:
    """An adapter like another, whose program is started by words put before its own."""

    def __init__(self, adapter: CliAdapter, words: Callable[[], tuple[str, ...]]) -> None:
        self._adapter = adapter
        self._words = words

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def launch(self, place: Place) -> Launch:
        launch = self._adapter.launch(place)
        return dataclasses.replace(launch, words=(*self._words(), *launch.words))


def processes_of(*folders: Path) -> list[str]:
    """Return the command of each process that was started in or with one of the folders."""
    names = [str(folder).encode() for folder in folders]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            known = (entry / "environ").read_bytes() + command + os.fsencode(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if any(name in known for name in names):
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def files_in(homes: Path, workspaces: Path) -> list[str]:
    """Return the homes and workspaces that are still there."""
    return [str(path) for path in (*homes.iterdir(), *workspaces.glob("repair-*"))]


def open_files() -> set[str]:
    """Return the numbers of this process's descriptors."""
    return set(os.listdir("/proc/self/fd"))


def listening() -> set[int]:
    """Return the TCP ports on which this process listens."""
    ours = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            ours.add(os.readlink(entry))
        except OSError:
            continue
    ports = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in ours:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def turns_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return what each turn did: its tools, its tokens, and the reward at the end."""
    rows = []
    for index, (turn, event) in enumerate(zip(trajectory.turns, trajectory.events, strict=True)):
        rows.append(
            {
                "tools": [
                    record.name if record.status == "ok" else record.status for record in event.tool_calls
                ],
                "tokens_in": len(trajectory.prompt_ids(index)),
                "tokens_out": len(turn.action_ids),
            }
        )
    rows[-1]["reward"] = trajectory.reward
    return rows


def note(record_property: Callable[[str, object], None], **figures: Any) -> None:
    """Put figures into pytest's report, where benchmarks/check_programs.py finds them."""
    record_property("figures", json.dumps(figures))
