"""Indexes that all episodes of a process share."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from hyperrl.envs.search.corpus import Corpus
from hyperrl.envs.search.index import EngineName, Hit, SearchIndex, choose_engine, open_index

__all__ = ["asearch", "close_indexes", "shared_index"]

_MOST = 8


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One index, or the place where it is being built."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    index: SearchIndex | None = None


class _Shared:
    """The indexes of one process, by content and engine; the eight that were used last are kept."""

    def __init__(self) -> None:
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._chosen: dict[str, str] = {}
        self._lock = threading.Lock()

    def ready(self, corpus: Corpus, engine: EngineName) -> SearchIndex | None:
        slot = self._slots.get(self._key(corpus, engine))
        return None if slot is None else slot.index

    def _key(self, corpus: Corpus, engine: EngineName) -> tuple[str, str]:
        chosen = self._chosen.get(engine)
        if chosen is None:
            chosen = self._chosen[engine] = choose_engine(engine)  # looks at what is installed: slow
        return corpus.digest, chosen

    def get(self, corpus: Corpus, engine: EngineName) -> SearchIndex:
        key = self._key(corpus, engine)
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            if len(self._slots) > _MOST:
                self._slots.popitem(last=False)  # whoever still searches it keeps it; then it is dropped
        with slot.lock:
            if slot.index is None:
                slot.index = open_index(corpus, engine)
            return slot.index

    def close(self) -> None:
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            with slot.lock:
                if slot.index is not None:
                    slot.index.close()


_shared = _Shared()
_of_parents: list[_Shared] = []


def shared_index(corpus: Corpus, engine: EngineName = "auto") -> SearchIndex:
    """Return the index of a corpus that this process shares, built when first asked for.

    Ask for it at each use instead of keeping it: then an environment can be pickled, and a forked
    child makes an index of its own. Nobody closes it; the process does at its end, or
    :func:`close_indexes`.

    Raises:
        ConfigError: an unknown engine.
        MissingExtraError: the engine is not installed.
    """
    return _shared.get(corpus, engine)


async def asearch(
    corpus: Corpus, query: str, *, top_k: int = 3, engine: EngineName = "auto"
) -> tuple[Hit, ...]:
    """Search the shared index of a corpus without stalling the event loop.

    A search that takes microseconds runs in place; building an index, and a search that may take
    longer, run in a thread. Arguments and errors are those of :func:`shared_index` and
    :meth:`SearchIndex.asearch`.
    """
    index = _shared.ready(corpus, engine)
    if index is None:
        index = await asyncio.to_thread(shared_index, corpus, engine)
    return await index.asearch(query, top_k=top_k)


def close_indexes() -> None:
    """Close every shared index of this process. The next search builds its index again."""
    _shared.close()


def _start_anew_after_fork() -> None:
    """Leave the parent's indexes alone: their threads and locks are not those of the child."""
    global _shared  # noqa: PLW0603  # the one registry of the process
    _of_parents.append(_shared)
    _shared = _Shared()


atexit.register(close_indexes)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)
