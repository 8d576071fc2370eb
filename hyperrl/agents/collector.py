"""The garbage collector while episodes are played.

Python's collector of reference cycles looks at young objects after every 700 allocations, and at what
survived again and again while that grows. A rollout builds what it keeps: thousands of waiting episodes and
their records, without cycles, so the search finds nothing and takes a third of the rollout's time. While
one runs, the collector therefore waits for more objects. It is never switched off, so cycles that an
environment or a program leaves behind are still freed, and memory that is not in a cycle is freed at once
as ever.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["YOUNG_OBJECTS", "patient_collector"]

YOUNG_OBJECTS = 300_000
"""New objects before the collector looks at them: at most some 60 MB of garbage in small cycles."""

_lock = threading.Lock()
_entered = 0
_before: tuple[int, int, int] = gc.get_threshold()
_ours: tuple[int, int, int] | None = None


@contextmanager
def patient_collector() -> Iterator[None]:
    """Raise the collector's first threshold to ``YOUNG_OBJECTS``; the last to leave restores it.

    A collector that is switched off, or more patient already, is left alone; so are thresholds that somebody
    else sets meanwhile.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _entered, _before, _ours  # noqa: PLW0603  # the collector is one for the whole process
    with _lock:
        _entered += 1
        young, middle, old = gc.get_threshold()
        if _entered == 1 and 0 < young < YOUNG_OBJECTS:
            _before, _ours = (young, middle, old), (YOUNG_OBJECTS, middle, old)
            gc.set_threshold(*_ours)


def _leave() -> None:
    global _entered, _ours  # noqa: PLW0603  # the collector is one for the whole process
    with _lock:
        _entered -= 1
        if _entered == 0 and _ours is not None:
            if gc.get_threshold() == _ours:
                gc.set_threshold(*_before)
            _ours = None
