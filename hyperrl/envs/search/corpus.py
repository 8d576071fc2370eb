"""Corpora: paragraphs with titles, in memory."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hyperrl.errors import DataError

__all__ = ["Corpus", "read_corpus"]


class Corpus:
    """Paragraphs in order; a position is the name of one.

    Args:
        paragraphs: pairs of a title and a text. One that repeats an earlier pair is left out.

    Attributes:
        titles: titles by position.
        texts: texts by position.
        digest: names the content: equal for equal paragraphs in equal order, in every process.

    Raises:
        DataError: there is no paragraph.
    """

    def __init__(self, paragraphs: Iterable[tuple[str, str]]) -> None:
        pairs = tuple(dict.fromkeys(paragraphs))
        if not pairs:
            raise DataError("a corpus needs at least one paragraph, a title and a text")
        self.titles: tuple[str, ...] = tuple(title for title, _ in pairs)
        self.texts: tuple[str, ...] = tuple(text for _, text in pairs)
        self.digest = _digest(pairs)

    def __len__(self) -> int:
        return len(self.titles)

    def __repr__(self) -> str:
        return f"<corpus of {len(self):,} paragraphs, {self.digest[:8]}>"


def read_corpus(path: str | Path) -> Corpus:
    """Return the corpus of a JSON-lines file, the same object while the file is the same.

    A row has ``text`` and, if the paragraph has one, ``title``; or ``contents`` alone, whose first line
    is the title (in quotes or not), as the Wikipedia corpora of retrieval benchmarks have it.

    Raises:
        DataError: there is no such file, a line is not JSON, or a row lacks these fields.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise DataError(f"there is no corpus {str(file)!r}; give the path of a JSON-lines file of paragraphs")
    stat = file.stat()
    return _read(str(file.resolve()), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=4)
def _read(path: str, mtime_ns: int, size: int) -> Corpus:
    del mtime_ns, size  # they only tell versions of the file apart
    pairs = []
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                pairs.append(_pair(line, f"line {number} of {path!r}"))
    if not pairs:
        raise DataError(f"{path!r} holds no paragraphs")
    return Corpus(pairs)


def _pair(line: bytes, where: str) -> tuple[str, str]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, Mapping):
        raise DataError(f"{where} is a {type(row).__name__}; expected an object with title and text")
    return _read_row(row, where)


def _read_row(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    if isinstance(row.get("text"), str):
        return str(row.get("title") or ""), row["text"]
    if isinstance(row.get("contents"), str):
        title, _, text = row["contents"].partition("\n")
        return title.strip().strip('"'), text
    raise DataError(
        f"{where} is not a paragraph: needed are text (and title) or contents, found were {sorted(row)}"
    )


def _digest(pairs: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (part for pair in pairs for part in pair):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
