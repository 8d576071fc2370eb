"""The words of texts and queries, the same for every engine, and snippets."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MAX_QUERY_WORDS", "make_snippet", "plain_words", "query_words"]

MAX_QUERY_WORDS = 64
"""Different words of a query that count; later ones are left out."""

_MAX_QUERY_CHARS = 4_000
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about also an and any are as at be been but by did do does for from had has have he her his how"
        " if in into is it its of on or she than that the their them then there these they this those to was"
        " were what when where which who whom whose why will with would",
    )
)
_MAX_WORD_CHARS = 40
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(f"[{_IDEOGRAPHS}]|[^\\W_{_IDEOGRAPHS}]+")
_ELLIPSIS = " ..."


def plain_words(text: str) -> list[str]:
    """Return the words of a text: without case, accents and punctuation; each ideograph is a word.

    A word of more than 40 characters is left out, as engines do.
    """
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in parts if not unicodedata.combining(char))
    return [word for word in _WORD.findall(text.casefold()) if len(word) <= _MAX_WORD_CHARS]


def query_words(query: str) -> list[str]:
    """Return the words of a query that count, in order and each once; never raises.

    Operators, quotes, brackets and field names of query languages mean nothing: what is left of
    ``title:"red fox" AND (den`` is ``title red fox den``. Words such as *the* and *which* are left out
    unless there are no others: they stand in most paragraphs, so they cost time and rank nothing.
    """
    words = list(dict.fromkeys(plain_words(query[:_MAX_QUERY_CHARS])))
    telling = [word for word in words if word not in _FUNCTION_WORDS]
    return (telling or words)[:MAX_QUERY_WORDS]


def make_snippet(text: str, query: str, limit: int) -> str:
    """Return at most ``limit`` characters of a text: its sentences from where most words of ``query`` are.

    Args:
        text: a paragraph.
        query: what was searched for.
        limit: most characters; a text that is not longer is returned whole.
    """
    if len(text) <= limit:
        return text
    words = set(query_words(query))
    starts = [0, *(mark.end() for mark in re.finditer(r"[.!?]\s+", text))]
    best = max(starts, key=lambda start: (_shared(text[start : start + limit], words), -start))
    lead = "... " if best else ""
    room = max(limit - len(lead), 0)
    rest = text[best:]
    if len(rest) <= room:
        return lead + rest
    cut = rest[: max(room - len(_ELLIPSIS), 0)]
    return (lead + (cut.rpartition(" ")[0] or cut) + _ELLIPSIS)[:limit]


def _shared(text: str, words: set[str]) -> int:
    return len(words.intersection(plain_words(text)))
