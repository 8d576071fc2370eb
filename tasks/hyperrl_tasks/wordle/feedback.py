"""What a guess says about the word: computed, written for a policy, and read back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

__all__ = ["Mark", "closeness", "mark_guess", "read_marks", "write_marks"]


class Mark(StrEnum):
    """What is said about one letter of a guess."""

    HERE = "right place"
    ELSEWHERE = "in the word, other place"
    ABSENT = "not in the word"
    NO_MORE = "no more of it in the word"


_LINE = re.compile(rf"^\d\. ([a-z]): ({'|'.join(Mark)})$", re.MULTILINE)


def mark_guess(guess: str, word: str) -> tuple[Mark, ...]:
    """Return one mark for each letter of a guess.

    A letter that the guess has more often than the word is marked as often as the word has it: first
    where it is in its place, then from left to right. The rest is :attr:`Mark.NO_MORE`.
    """
    left = Counter(there for letter, there in zip(guess, word, strict=True) if letter != there)
    marks: list[Mark] = []
    for letter, there in zip(guess, word, strict=True):
        if letter == there:
            marks.append(Mark.HERE)
        elif left[letter]:
            left[letter] -= 1
            marks.append(Mark.ELSEWHERE)
        else:
            marks.append(Mark.NO_MORE if letter in word else Mark.ABSENT)
    return tuple(marks)


def closeness(marks: Sequence[Mark]) -> float:
    """Return the share of the word that is found, in [0, 1]; a letter in another place counts half."""
    worth = {Mark.HERE: 1.0, Mark.ELSEWHERE: 0.5}
    return sum(worth.get(mark, 0.0) for mark in marks) / len(marks)


def write_marks(guess: str, marks: Sequence[Mark]) -> str:
    """Return the marks as text, a line for each letter such as ``1. s: not in the word``."""
    lines = zip(guess, marks, strict=True)
    return "\n".join(f"{place}. {letter}: {mark}" for place, (letter, mark) in enumerate(lines, start=1))


def read_marks(text: str) -> tuple[str, tuple[Mark, ...]] | None:
    """Return the guess and its marks from a text that holds what :func:`write_marks` wrote, else None."""
    found = _LINE.findall(text)
    if not found:
        return None
    return "".join(letter for letter, _ in found), tuple(Mark(said) for _, said in found)
