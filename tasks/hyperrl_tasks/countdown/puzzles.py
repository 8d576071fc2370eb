"""Countdown puzzles: drawn backwards from a solution, so that each has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyperrl.errors import ConfigError
from hyperrl_tasks.splits import split_of

__all__ = ["OPERATORS", "Difficulty", "Puzzle", "draw_puzzle", "puzzle_name"]

OPERATORS = "+-*/"
"""The operators of the game."""

_MAX_DRAWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """How hard puzzles are.

    Attributes:
        count: how many numbers are given, 2 to 8.
        max_number: the largest number that may be given, at least 20.
        max_target: the largest target, at least ``max_number``.
        operators: the operators that may be used, of ``+-*/``, with ``+`` or ``-`` among them.
        use_all: a solution uses every number, instead of each at most once.

    Raises:
        ConfigError: an attribute is out of range, or no sum could stay below ``max_target``.
    """

    count: int = 4
    max_number: int = 99
    max_target: int = 999
    operators: str = OPERATORS
    use_all: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.count <= 8:
            raise ConfigError(f"numbers must be from 2 to 8, got {self.count}")
        if not 20 <= self.max_number <= 10_000:
            raise ConfigError(f"max_number must be from 20 to 10000, got {self.max_number}")
        self._check_operators()
        least = self.max_number * (1 if "-" in self.operators else self.count)
        if not least <= self.max_target <= 1_000_000:
            raise ConfigError(
                f"max_target must be from {least} to 1000000 with {self.count} numbers up to"
                f" {self.max_number} and the operators {self.operators!r}, got {self.max_target}"
            )

    def _check_operators(self) -> None:
        known = set(self.operators) <= set(OPERATORS) and len(set(self.operators)) == len(self.operators)
        if not known or not set(self.operators) & {"+", "-"}:
            raise ConfigError(
                f"operators must be some of {OPERATORS!r}, each once and with + or - among them,"
                f" got {self.operators!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """A target that ``solution`` reaches with ``numbers``."""

    numbers: tuple[int, ...]
    target: int
    solution: str


def puzzle_name(numbers: Sequence[int], target: int) -> str:
    """Return the text that a puzzle's split depends on, the same for every order of its numbers."""
    return f"{' '.join(map(str, sorted(numbers)))} > {target}"


def draw_puzzle(rng: np.random.Generator, difficulty: Difficulty, split: str) -> Puzzle:
    """Draw a puzzle of a split.

    A puzzle lies in the split that its numbers and its target name, whatever the difficulty is. The
    solution uses all numbers, or (without ``use_all``) at times all but one; it has positive whole
    numbers in between, none above ``max_target``, and no given number is the target.

    Raises:
        RuntimeError: 100,000 draws gave no puzzle.
    """
    for _ in range(_MAX_DRAWS):
        numbers = tuple(rng.integers(1, difficulty.max_number + 1, difficulty.count).tolist())
        used = difficulty.count
        if not difficulty.use_all and used > 2:
            used -= int(rng.integers(2))
        reached = _combine(rng, numbers[:used], difficulty)
        if reached is None or reached[0] in numbers:
            continue
        if split_of(puzzle_name(numbers, reached[0])) == split:
            shown = tuple(numbers[place] for place in rng.permutation(difficulty.count))
            return Puzzle(numbers=shown, target=reached[0], solution=reached[1])
    raise RuntimeError(f"{_MAX_DRAWS:,} draws gave no puzzle of the split {split!r} for {difficulty}")


def _combine(
    rng: np.random.Generator, numbers: Sequence[int], difficulty: Difficulty
) -> tuple[int, str] | None:
    """Join two terms until one is left; return its value and its text, or None at a dead end."""
    terms = [(number, str(number)) for number in numbers]
    while len(terms) > 1:
        right = terms.pop(int(rng.integers(len(terms))))
        left = terms.pop(int(rng.integers(len(terms))))
        joined = _join(rng, max(left, right), min(left, right), difficulty)
        if joined is None:
            return None
        terms.append(joined)
    value, text = terms[0]
    return value, text[1:-1]


def _join(
    rng: np.random.Generator, larger: tuple[int, str], smaller: tuple[int, str], difficulty: Difficulty
) -> tuple[int, str] | None:
    (high, high_text), (low, low_text) = larger, smaller
    values = {"+": high + low, "-": high - low, "*": high * low}
    if high % low == 0:
        values["/"] = high // low
    possible = [
        operator
        for operator in difficulty.operators
        if 0 < values.get(operator, 0) <= difficulty.max_target and not (operator in "*/" and low == 1)
    ]
    if not possible:
        return None
    operator = possible[int(rng.integers(len(possible)))]
    return values[operator], f"({high_text} {operator} {low_text})"
