"""The words of the game, written for this project: common English words of five letters."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

__all__ = ["WORD_LENGTH", "load_words"]

WORD_LENGTH = 5
"""Letters of a word."""


@lru_cache(maxsize=1)
def load_words() -> tuple[str, ...]:
    """Return all words in alphabetical order, in lower case."""
    return tuple(files(__package__).joinpath("data", "words.txt").read_text(encoding="ascii").split())
