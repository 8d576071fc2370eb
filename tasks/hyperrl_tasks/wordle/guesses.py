"""Guesses as policies write them."""

from __future__ import annotations

import re
import unicodedata

from hyperrl_tasks.wordle.words import WORD_LENGTH, load_words

__all__ = ["read_guess", "refuse_guess"]

_MAX_CHARS = 10_000
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,40})\]")
_AROUND = " \t\r\n*_`'\"“”‘’.,;:!?"


def read_guess(answer: str) -> str:
    """Return what an answer guesses, in lower case: its last ``[...]``, or without one the whole answer.

    Quotes, stars and punctuation around it do not count. It need not be a word; :func:`refuse_guess`
    tells.
    """
    bracketed = _BRACKETED.findall(answer[-_MAX_CHARS:])
    guess = bracketed[-1] if bracketed else answer.strip()[: 4 * WORD_LENGTH + 1]
    return unicodedata.normalize("NFKC", guess).casefold().strip(_AROUND)


def refuse_guess(guess: str, *, known_words_only: bool) -> str | None:
    """Return why a guess is not valid, for the policy to read; ``None`` for a valid one."""
    if not guess:
        return "There is no guess."
    if not (guess.isascii() and guess.isalpha()):
        return f"A guess is one word with the letters a to z only. Write it in brackets, {_shape()}."
    if len(guess) != WORD_LENGTH:
        return f"A guess has {WORD_LENGTH} letters; yours has {len(guess)}."
    if known_words_only and guess not in load_words():
        return f"{guess!r} is not in the list of words."
    return None


def _shape() -> str:
    return f"[{'_' * WORD_LENGTH}]"
