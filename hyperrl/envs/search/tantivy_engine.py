"""Ranking with tantivy, an index in memory."""

from __future__ import annotations

from typing import Any

from hyperrl.envs.search.corpus import Corpus
from hyperrl.envs.search.words import plain_words
from hyperrl.errors import MissingExtraError

__all__ = ["TantivyEngine"]

_WRITER_BYTES = 64 << 20
_FIELDS = ["title", "text"]
_BOOSTS = {"title": 2.0, "text": 1.0}


class TantivyEngine:
    """BM25 (k1 = 1.2, b = 0.75) of tantivy over stemmed words; the title counts double.

    Raises:
        MissingExtraError: tantivy is not installed.
    """

    def __init__(self, corpus: Corpus) -> None:
        try:
            import tantivy  # noqa: PLC0415  # an extra
        except ImportError as error:
            raise MissingExtraError("tantivy", "search") from error
        schema = tantivy.SchemaBuilder()
        for field in _FIELDS:
            schema.add_text_field(field, tokenizer_name="en_stem", index_option="freq")
        schema.add_unsigned_field("position", stored=True)
        self._index: Any = tantivy.Index(schema.build())
        # One thread keeps the order of paragraphs, so that equal scores come in it.
        writer = self._index.writer(_WRITER_BYTES, 1)
        for position, (title, text) in enumerate(zip(corpus.titles, corpus.texts, strict=True)):
            writer.add_document(
                tantivy.Document(
                    title=" ".join(plain_words(title)), text=" ".join(plain_words(text)), position=position
                )
            )
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher: Any = self._index.searcher()

    def rank(self, words: list[str], limit: int) -> list[tuple[int, float]]:
        """Return at most ``limit`` positions with scores, best first, ties by position.

        The words hold no syntax; the lenient parser is a second guard, since it never raises.
        """
        query, _ = self._index.parse_query_lenient(" ".join(words), _FIELDS, field_boosts=_BOOSTS)
        wanted = limit + 1
        while True:
            hits = self._searcher.search(query, wanted, count=False).hits
            if len(hits) < wanted or hits[-1][0] < hits[limit - 1][0]:
                break
            wanted *= 2  # a tie across the limit: which of them is first is known when all are here
        ranked = [(self._searcher.doc(address)["position"][0], float(score)) for score, address in hits]
        return sorted(ranked, key=lambda one: (-one[1], one[0]))[:limit]

    def close(self) -> None:
        """Drop the index."""
        self._searcher = self._index = None
