"""The environment ``hyperrl/Wordle-v0``."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from hyperrl.envs import ListTaskset, Score, Task, TextEnv, reward
from hyperrl.errors import ConfigError
from hyperrl_tasks.splits import split_of
from hyperrl_tasks.wordle.baseline import fitting_words
from hyperrl_tasks.wordle.feedback import Mark, closeness, mark_guess, write_marks
from hyperrl_tasks.wordle.guesses import read_guess, refuse_guess
from hyperrl_tasks.wordle.words import WORD_LENGTH, load_words

__all__ = ["Wordle"]


class Wordle(TextEnv):
    """Find a word of five letters; each guess is answered letter by letter.

    Args:
        guesses: how many guesses there are, 1 to 20; fewer are harder.
        hints: how many letters are told at the start with their places, 0 to 4; more are easier.
        known_words_only: a guess must be one of the game's words, as in the printed game; else any
            five letters are a guess. A policy does not see the list.
        progress_weight: weight of the term ``progress``, how close the closest guess came.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range.
    """

    version = "1"

    def __init__(
        self,
        *,
        guesses: int = 6,
        hints: int = 0,
        known_words_only: bool = False,
        progress_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 1 <= guesses <= 20:
            raise ConfigError(f"guesses must be from 1 to 20, got {guesses}")
        if not 0 <= hints < WORD_LENGTH:
            raise ConfigError(f"hints must be from 0 to {WORD_LENGTH - 1}, got {hints}")
        if not (math.isfinite(progress_weight) and progress_weight >= 0):
            raise ConfigError(f"progress_weight must be finite and at least 0, got {progress_weight}")
        self.guesses = guesses
        self.hints = hints
        self.known_words_only = known_words_only
        self.reward_weights = {"progress": float(progress_weight)}
        self.system_prompt = _rules(guesses)
        self._closest = 0.0
        self._hints: list[tuple[int, str]] = []

    def tasks(self) -> ListTaskset:
        """The words of the split; a word belongs to exactly one."""
        return ListTaskset([{"word": word} for word in load_words() if split_of(word) == self.split])

    def start(self, task: Task, rng: np.random.Generator) -> str:
        """Ask for the first guess, and give the hints.

        Raises:
            ConfigError: the word of a task that was given is not five letters in lower case.
        """
        self._closest = 0.0
        if not re.fullmatch(f"[a-z]{{{WORD_LENGTH}}}", task["word"]):
            raise ConfigError(f"a word has {WORD_LENGTH} letters from a to z, got {task['word']!r}")
        places = sorted(rng.permutation(WORD_LENGTH)[: self.hints].tolist())
        self._hints = [(place, task["word"][place]) for place in places]
        hints = [f"Hint: letter {place + 1} is {letter}." for place, letter in self._hints]
        return "\n".join([*hints, f"Guess 1 of {self.guesses}:"])

    def reply(self, task: Task, answer: str, turn: int) -> str | None:
        """Say what the guess tells about the word; end at the word, and after the last guess."""
        self._closest = max(self._closest, self._closeness(task, answer))
        guess = read_guess(answer)
        if guess == task["word"] or turn + 1 >= self.guesses:
            return None
        refused = refuse_guess(guess, known_words_only=self.known_words_only)
        told = refused or write_marks(guess, mark_guess(guess, task["word"]))
        return f"{told}\nGuess {turn + 2} of {self.guesses}:"

    @reward
    def solved(self, task: Task, answer: str) -> Score:
        """1 if the last guess is the word, 0 otherwise."""
        guess = read_guess(answer)
        parsed = refuse_guess(guess, known_words_only=False) is None
        return Score(float(guess == task["word"]), cause=None if parsed else "unparsed")

    @reward(weight=0.0)
    def progress(self, task: Task, answer: str) -> float:
        """Return how close the closest guess came, in [0, 1]: letters found, half for another place."""
        return max(self._closest, self._closeness(task, answer))

    def _closeness(self, task: Task, answer: str) -> float:
        guess = read_guess(answer)
        if refuse_guess(guess, known_words_only=self.known_words_only) is not None:
            return 0.0
        return closeness(mark_guess(guess, task["word"]))

    def gold(self, task: Task) -> list[str]:
        """Return guesses that each fit what is known by then, the last one the word."""
        word = str(task["word"])
        rng = np.random.default_rng(list(word.encode()))
        feedback: list[tuple[str, tuple[Mark, ...]]] = []
        while len(feedback) < self.guesses - 1:
            fitting = fitting_words(self._hints, feedback) or [word]
            guess = fitting[int(rng.integers(len(fitting)))]
            if guess == word:
                break
            feedback.append((guess, mark_guess(guess, word)))
        return [f"[{guess}]" for guess in (*(guess for guess, _ in feedback), word)]


def _rules(guesses: int) -> str:
    count = "one guess" if guesses == 1 else f"{guesses} guesses"
    return (
        f"Find the hidden word of {WORD_LENGTH} letters; you have {count}. After each you read for every"
        " letter whether it is in the right place, in the word but in another place, or not in the word."
        f" End each of your turns with one guess in brackets, [{'_' * WORD_LENGTH}]."
        " A guess that is not valid is lost."
    )
