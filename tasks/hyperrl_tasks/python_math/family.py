"""What a family of problems is: a text with numbers in it, how to draw them, and how to solve it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from hyperrl_tasks.splits import split_of

__all__ = ["LEVELS", "Family", "Range", "draw_numbers", "instance_name"]

LEVELS = (1, 2, 3)
"""From small numbers, a minute with a pencil, to large ones."""

Range = tuple[int, int]
"""Smallest and largest value of a number."""

_MAX_DRAWS = 10_000
_SLOT = re.compile(r"\\{(\w+)\\}")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Problems that differ in their numbers only.

    Attributes:
        name: what it is called in options and tasks.
        question: the text; ``{name}`` stands for a number, each once.
        ranges: for every number its range at each of :data:`LEVELS`.
        solve: the answer, from the numbers by name.
        program: Python that finds the answer in a plain way, another one than ``solve`` takes. The
            numbers are set before it; it prints the answer.
        steps: about how many single computations ``program`` takes: how hard it is in the head.
        valid: whether the numbers make a problem at all.
    """

    name: str
    question: str
    ranges: Mapping[str, Sequence[Range]]
    solve: Callable[..., int | Fraction]
    program: str
    steps: Callable[[Mapping[str, int]], int]
    valid: Callable[[Mapping[str, int]], bool] = lambda _: True

    def ask(self, numbers: Mapping[str, int]) -> str:
        """Return the question with these numbers."""
        return self.question.format(**numbers)

    def write_program(self, numbers: Mapping[str, int]) -> str:
        """Return the program for these numbers."""
        setting = "".join(f"{name} = {value}\n" for name, value in numbers.items())
        return setting + self.program.strip() + "\n"

    def read(self, question: str) -> dict[str, int] | None:
        """Return the numbers of a question; ``None`` where it is none of this family."""
        found = self._pattern.fullmatch(question)
        return None if found is None else {name: int(value) for name, value in found.groupdict().items()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_SLOT.sub(r"(?P<\1>[0-9]+)", re.escape(self.question)))


def instance_name(family: Family, numbers: Mapping[str, int]) -> str:
    """Return the text that a problem's split depends on, the same at every level."""
    return f"{family.name} {' '.join(str(numbers[name]) for name in family.ranges)}"


def draw_numbers(rng: np.random.Generator, family: Family, level: int, split: str) -> dict[str, int]:
    """Draw the numbers of a problem of a split.

    Raises:
        RuntimeError: 10,000 draws gave none.
    """
    place = LEVELS.index(level)
    for _ in range(_MAX_DRAWS):
        numbers: dict[str, Any] = {}
        for name, ranges in family.ranges.items():
            low, high = ranges[place]
            numbers[name] = int(rng.integers(low, high + 1))
        if split_of(instance_name(family, numbers)) == split and family.valid(numbers):
            return numbers
    raise RuntimeError(
        f"{_MAX_DRAWS:,} draws gave no problem of {family.name}, level {level}, split {split!r}"
    )
