"""User ids that nobody else has, for root to give to sandboxed code."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["draw_private_uid", "give_away"]


def draw_private_uid() -> int | None:
    """Return a user id that nobody else has, for root to become; None for others.

    The number of root's processes is never limited, and that of a shared user counts all sandboxes.
    """
    if os.getuid() != 0:
        return None
    mapped = max(
        int(start) + int(count)
        for start, _, count in (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    )
    low, high = (1 << 30, (1 << 31) - 2) if mapped > 1 << 31 else (20_000, 60_000)
    return low + secrets.randbelow(high - low)


def give_away(folder: Path, uid: int) -> None:
    """Make a user and its group own a folder and all below."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid)
