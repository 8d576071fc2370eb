"""The garbage collector while episodes are played.

Python's collector of reference cycles looks at young objects after every 700 allocations, and at what
survived again and again while that grows. A rollout builds what it keeps: thousands of waiting episodes and
their records, without cycles, so the search finds nothing and takes a third of the rollout's time. While
one runs, the collector therefore waits for more objects, in proportion to what the episodes themselves
hold. It is never switched off, so cycles that an environment or a program leaves behind are still freed,
and memory that is not in a cycle is freed at once as ever.

When the rollout ends, all its records would count as young: at the next few allocations the collector would
look at every one of them, and twice again as they age. They are declared old instead, at no cost. Once more
were never looked at than the collector waits for anyway, one full collection makes up for it.
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

MANY_YOUNG = 50_000
"""Where a rollout leaves fewer young objects, they age as ever: looking at them takes a few milliseconds."""

_OLDEST = 2
_lock = threading.Lock()
_entered = 0
_unseen = 0
_full_collections = 0
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
                _declare_old(most_unseen=_ours[0])
                gc.set_threshold(*_before)
            _ours = None


def _declare_old(most_unseen: int) -> None:
    """Make what is young old, or collect everything where too much was never looked at."""
    global _unseen, _full_collections  # noqa: PLW0603  # the collector is one for the whole process
    young = gc.get_count()[0]
    if young < MANY_YOUNG or not gc.isenabled() or gc.get_freeze_count():
        return
    done = gc.get_stats()[_OLDEST]["collections"]
    _unseen = young + (_unseen if done == _full_collections else 0)
    _full_collections = done
    if _unseen > most_unseen:
        gc.collect()
    else:
        gc.freeze()  # all generations become permanent, and then the oldest: two lists are joined
        gc.unfreeze()
