"""One interface over the engines that rank paragraphs."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, get_args

from hyperrl.envs.search.corpus import Corpus
from hyperrl.envs.search.fts5_engine import Fts5Engine
from hyperrl.envs.search.tantivy_engine import TantivyEngine
from hyperrl.envs.search.words import query_words
from hyperrl.errors import ConfigError, EnvError, MissingExtraError, nearest

__all__ = ["Engine", "EngineName", "Hit", "SearchIndex", "choose_engine", "open_index"]

EngineName = Literal["auto", "tantivy", "fts5"]
"""What ranks: ``tantivy`` (the extra ``search``), ``fts5`` (SQLite's, in the standard library), or
``auto``: tantivy where it is installed."""

_FTS5_INLINE_PARAGRAPHS = 2_000
_TANTIVY_INLINE_PARAGRAPHS = 1_000_000


class Engine(Protocol):
    """What ranks: BM25 over stemmed words, titles counting double."""

    def rank(self, words: list[str], limit: int) -> list[tuple[int, float]]:
        """Return at most ``limit`` positions with scores, best first, ties by position."""

    def close(self) -> None:
        """Let go of everything; a second call does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A paragraph that was found.

    Attributes:
        position: where it is in the corpus.
        title: its title.
        text: its text.
        score: how well it fits, above 0; comparable within one query only.
    """

    position: int
    title: str
    text: str
    score: float


class SearchIndex:
    """A searchable corpus. Made by :func:`open_index` or :func:`shared_index`.

    Safe to use from several threads. The same corpus, engine and query always give the same hits:
    paragraphs with equal scores come in the order of the corpus.

    Attributes:
        corpus: what is searched.
        engine: ``tantivy`` or ``fts5``.
        blocks: a search may take more than about a millisecond, so that an event loop should not
            wait for it.
    """

    def __init__(self, corpus: Corpus, engine: str, ranker: Engine) -> None:
        self.corpus = corpus
        self.engine = engine
        inline = _FTS5_INLINE_PARAGRAPHS if engine == "fts5" else _TANTIVY_INLINE_PARAGRAPHS
        self.blocks = len(corpus) > inline
        self._ranker: Engine | None = ranker
        # Threads of its own, started when needed, so that a queue of searches never holds up other work.
        self._threads = ThreadPoolExecutor(1 if engine == "fts5" else 4, thread_name_prefix="hyperrl-search")

    def search(self, query: str, *, top_k: int = 3) -> tuple[Hit, ...]:
        """Return the paragraphs that fit best; none for a query without words.

        Args:
            query: any text. Words count, operators and punctuation do not; see :func:`query_words`.
            top_k: the most hits, at least 1.

        Raises:
            ConfigError: ``top_k`` is below 1.
            EnvError: the index is closed.
        """
        if top_k < 1:
            raise ConfigError(f"top_k must be at least 1, got {top_k}")
        if self._ranker is None:
            raise EnvError("the search index is closed; open another with open_index")
        words = query_words(query)
        ranked = self._ranker.rank(words, min(top_k, len(self.corpus))) if words else []
        return tuple(self._hit(position, score) for position, score in ranked)

    async def asearch(self, query: str, *, top_k: int = 3) -> tuple[Hit, ...]:
        """Search without stalling the event loop: in place, or in a thread of the index where it blocks.

        Arguments and errors are those of :meth:`search`.
        """
        if not self.blocks or self._ranker is None:
            return self.search(query, top_k=top_k)
        call = functools.partial(self.search, query, top_k=top_k)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _hit(self, position: int, score: float) -> Hit:
        title, text = self.corpus.titles[position], self.corpus.texts[position]
        return Hit(position=position, title=title, text=text, score=score)

    def close(self) -> None:
        """Let go of memory and connections; a second call does nothing."""
        ranker, self._ranker = self._ranker, None
        self._threads.shutdown()
        if ranker is not None:
            ranker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self._ranker is None else ""
        return f"<{self.engine} index over {self.corpus!r}{state}>"


def choose_engine(engine: EngineName = "auto") -> Literal["tantivy", "fts5"]:
    """Return the engine that a name stands for here.

    Raises:
        ConfigError: an unknown engine.
        MissingExtraError: tantivy was asked for by name and is not installed.
    """
    known = get_args(EngineName)
    if engine not in known:
        raise ConfigError(
            f"engine must be one of {', '.join(known)}, got {engine!r}.{nearest(str(engine), known)}"
        )
    installed = importlib.util.find_spec("tantivy") is not None
    if engine == "tantivy" and not installed:
        raise MissingExtraError("tantivy", "search")
    if engine == "auto":
        return "tantivy" if installed else "fts5"
    return engine


def open_index(corpus: Corpus, engine: EngineName = "auto") -> SearchIndex:
    """Index a corpus, in memory; the caller closes the index.

    Raises:
        ConfigError: an unknown engine.
        MissingExtraError: the engine is not installed.
    """
    chosen = choose_engine(engine)
    ranker: Engine = TantivyEngine(corpus) if chosen == "tantivy" else Fts5Engine(corpus)
    return SearchIndex(corpus, chosen, ranker)
