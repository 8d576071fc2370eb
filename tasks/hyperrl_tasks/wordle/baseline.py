"""A scripted player of Wordle: it guesses a word that fits everything it has read."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hyperrl.sampling import Message
from hyperrl_tasks.wordle.feedback import Mark, mark_guess, read_marks
from hyperrl_tasks.wordle.words import load_words

__all__ = ["baseline", "fitting_words"]

_HINT = re.compile(r"Hint: letter (\d) is ([a-z])\.")


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return a guess, drawn from the words of the game that fit all hints and all feedback.

    It reads the messages only, as a policy does, except that it knows the words of the game.

    Args:
        messages: the conversation of an episode so far.
        rng: what it draws from.
    """
    heard = [str(message["content"]) for message in messages if message["role"] == "user"]
    hints = [(int(place) - 1, letter) for text in heard for place, letter in _HINT.findall(text)]
    feedback = [marks for marks in map(read_marks, heard) if marks is not None]
    fitting = fitting_words(hints, feedback) or load_words()
    return f"[{fitting[int(rng.integers(len(fitting)))]}]"


def fitting_words(
    hints: Sequence[tuple[int, str]], feedback: Sequence[tuple[str, tuple[Mark, ...]]]
) -> Sequence[str]:
    """Return the words of the game that fit what is known.

    Args:
        hints: places, from 0, and the letters in them.
        feedback: guesses and their marks.
    """
    told = [word for word in load_words() if all(word[place] == letter for place, letter in hints)]
    return [word for word in told if all(mark_guess(guess, word) == marks for guess, marks in feedback)]
