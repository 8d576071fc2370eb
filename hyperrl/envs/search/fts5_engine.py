"""Ranking with SQLite's FTS5, a database in memory: no package is needed."""

from __future__ import annotations

import sqlite3
import threading

from hyperrl.envs.search.corpus import Corpus
from hyperrl.envs.search.words import plain_words
from hyperrl.errors import MissingExtraError

__all__ = ["Fts5Engine"]

_MAKE = "CREATE VIRTUAL TABLE p USING fts5(title, text, content='', tokenize='porter unicode61')"
_RANK = "SELECT rowid, bm25(p, 2.0, 1.0) AS score FROM p WHERE p MATCH ? ORDER BY score, rowid LIMIT ?"


class Fts5Engine:
    """BM25 (k1 = 1.2, b = 0.75) of FTS5 over stemmed words; the title counts double.

    Raises:
        MissingExtraError: this Python's SQLite was built without FTS5, so tantivy is needed.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._database.execute(_MAKE)
        except sqlite3.OperationalError as error:
            self.close()
            raise MissingExtraError("tantivy", "search") from error
        rows = (
            (position, " ".join(plain_words(title)), " ".join(plain_words(text)))
            for position, (title, text) in enumerate(zip(corpus.titles, corpus.texts, strict=True))
        )
        self._database.executemany("INSERT INTO p(rowid, title, text) VALUES (?, ?, ?)", rows)
        self._database.commit()

    def rank(self, words: list[str], limit: int) -> list[tuple[int, float]]:
        """Return at most ``limit`` positions with scores, best first, ties by position.

        Each word is quoted, so that none is an operator.
        """
        match = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            if self._database is None:
                return []
            rows = self._database.execute(_RANK, (match, limit)).fetchall()
        return [(int(position), -float(score)) for position, score in rows]

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            database, self._database = self._database, None
        if database is not None:
            database.close()
