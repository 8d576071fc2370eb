"""The garbage collector while episodes are played.

Python's collector of reference cycles looks at young objects after every 700 allocations, and at what
survived again and again while that grows. A rollout builds what it keeps: thousands of waiting episodes and
their records, without cycles, so the search finds nothing and takes a third of the rollout's time. While
one runs, the collector therefore waits for more objects, in proportion to what the episodes themselves
hold. It is never switched off, so cycles that an environment or a program leaves behind are still freed,
and memory that is not in a cycle is freed at once as ever.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["YOUNG_OBJECTS", "YOUNG_PER_EPISODE", "patient_collector"]

YOUNG_OBJECTS = 300_000
"""New objects before the collector looks at them: at most some 60 MB of garbage in small cycles."""

YOUNG_PER_EPISODE = 128
"""Where that is more: so many for each episode that is played at the same time. One of ten turns keeps 100,
in about 25 kB; as much again may be garbage in cycles.
"""

_lock = threading.Lock()
_entered = 0
_before: tuple[int, int, int] = gc.get_threshold()
_ours: tuple[int, int, int] | None = None


@contextmanager
def patient_collector(episodes: int = 0) -> Iterator[None]:
    """Raise the collector's first threshold for ``episodes`` at the same time; the last to leave restores it.

    A collector that is switched off, or more patient already, is left alone; so are thresholds that somebody
    else sets meanwhile.
    """
    _enter(max(YOUNG_OBJECTS, YOUNG_PER_EPISODE * episodes))
    try:
        yield
    finally:
        _leave()


def _enter(wanted: int) -> None:
    global _entered, _before, _ours  # noqa: PLW0603  # the collector is one for the whole process
    with _lock:
        _entered += 1
        found = young, middle, old = gc.get_threshold()
        if 0 < young < wanted and _ours in (None, found):
            _before = found if _ours is None else _before
            _ours = (wanted, middle, old)
            gc.set_threshold(*_ours)


def _leave() -> None:
    global _entered, _ours  # noqa: PLW0603  # the collector is one for the whole process
    with _lock:
        _entered -= 1
        if _entered == 0 and _ours is not None:
            if gc.get_threshold() == _ours:
                gc.set_threshold(*_before)
            _ours = None
