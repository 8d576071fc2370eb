"""Splits of generated tasks that can never overlap: the instance itself decides where it belongs."""

from __future__ import annotations

import zlib
from collections.abc import Callable

__all__ = ["HELD_OUT_SHARE", "draw_from_split", "split_of"]

HELD_OUT_SHARE = 10
"""One instance in this many belongs to the test split."""

_MAX_DRAWS = 100_000


def split_of(instance: str) -> str:
    """Return ``test`` for about 10% of all instances (by the CRC-32 of the text), else ``train``."""
    return "test" if zlib.crc32(instance.encode()) % HELD_OUT_SHARE == 0 else "train"


def draw_from_split(draw: Callable[[], str], split: str, *, accept: Callable[[str], bool]) -> str:
    """Call ``draw`` until it gives an instance of ``split`` that ``accept`` takes.

    Raises:
        RuntimeError: 100,000 draws gave none, so the space of instances has none to give.
    """
    for _ in range(_MAX_DRAWS):
        instance = draw()
        if split_of(instance) == split and accept(instance):
            return instance
    raise RuntimeError(f"{_MAX_DRAWS:,} draws gave no instance of the split {split!r}")
