"""What holds the code of a ``limited`` sandbox beside its limits, and what of it may work here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hyperrl.envs.sandbox.landlock import SIGNALS_ABI, WRITES_ABI

__all__ = ["Confinement", "list_confinements"]

_DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What sandboxed code gives up before it starts. docs/sandboxes.md says what that stops.

    Attributes:
        own_user: it becomes a user that nobody else is; only root can start such.
        landlock: the ABI of the Landlock domain it enters; 0: none.
        filtered: system calls that reach others by limits or local services are refused to it.
        pid_namespace: it sees no processes but its own.
        capabilities: ``none``; ``read``: of root's only that to read everything; ``kept``: as before.
    """

    own_user: bool = False
    landlock: int = 0
    filtered: bool = False
    pid_namespace: bool = False
    capabilities: Literal["none", "read", "kept"] = "none"

    @property
    def contains_signals(self) -> bool:
        """Whether it can end no process but those of its sandbox, by a signal or a limit."""
        scoped = self.landlock >= SIGNALS_ABI and self.filtered
        return scoped or self.own_user or self.pid_namespace

    @property
    def contains_writes(self) -> bool:
        """Whether it can write no file outside its working directory."""
        return self.landlock >= WRITES_ABI

    def as_job(self, folder: Path) -> dict[str, Any]:
        """Return what the supervisor reads, for a working directory."""
        devices = [f"/dev/{name}" for name in _DEVICES if Path("/dev", name).exists()]
        return {**asdict(self), "writable": [str(folder), *devices]}


def list_confinements(*, abi: int, filters: bool, root: bool) -> Iterator[Confinement]:
    """What may work, the strongest first; whether it does, only a run can tell.

    The last is the weakest: under the limits alone, with all rights of the user.

    Args:
        abi: of the kernel's Landlock; 0: it has none.
        filters: whether system calls can be filtered.
        root: whether this is root.
    """
    kernels = dict.fromkeys([(abi, filters), (abi, False), (0, filters), (0, False)])
    users: list[dict[str, Any]] = [{"own_user": True}] if root else []
    users += [{}, {"capabilities": "read"}] if root else [{}]
    found = [
        Confinement(landlock=landlock, filtered=filtered, pid_namespace=apart, **user)
        for user, (landlock, filtered), apart in itertools.product(users, kernels, (False, True))
    ]
    # A namespace is the second choice: with it, numbers of processes are not those of the machine.
    yield from sorted(
        (each for each in found if each.contains_signals and not (each.pid_namespace and _holds_alone(each))),
        key=lambda each: (not each.contains_writes, not each.own_user),
    )
    yield from (each for each in found if not each.contains_signals)
    yield Confinement(capabilities="kept")


def _holds_alone(confinement: Confinement) -> bool:
    """Whether it contains signals without the namespace too."""
    return Confinement(**{**asdict(confinement), "pid_namespace": False}).contains_signals
