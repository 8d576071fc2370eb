"""A scripted player of GSM8K: two steps of arithmetic with numbers of the question, drawn at random."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np

from hyperrl.sampling import Message

__all__ = ["baseline"]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MOST_NUMBERS = 8


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return a whole number above 0 that three numbers of the question come to in two steps.

    It knows two ways, a / (b - c) and a / b * c, and draws one of their results that are not in the
    question already. Problems of more steps are beyond it, but for chance.
    """
    found = _NUMBER.findall(str(messages[-1]["content"]))[:_MOST_NUMBERS]
    numbers = [Fraction(number) for number in found]
    results = [v for v in _two_steps(numbers) if v > 0 and v.denominator == 1 and v not in numbers]
    return f"#### {results[int(rng.integers(len(results)))] if results else 0}"


def _two_steps(numbers: Sequence[Fraction]) -> Iterator[Fraction]:
    for a, b, c in permutations(numbers, 3):
        if b != c:
            yield a / (b - c)
        if b:
            yield a / b * c
