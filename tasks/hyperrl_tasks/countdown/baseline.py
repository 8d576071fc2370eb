"""A scripted player of Countdown: it tries expressions at random and answers with the best."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hyperrl.sampling import Message

__all__ = ["TRIES", "baseline"]

TRIES = 300
"""Expressions that are tried before an answer."""


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return the best of :data:`TRIES` random expressions over the numbers of a prompt.

    It reads the messages only, as a policy does, and joins all numbers in a random order; a joined
    term that is the target is an answer where numbers may be left over.

    Args:
        messages: the conversation of an episode, from the rules to the puzzle.
        rng: what it draws from.
    """
    rules, puzzle = (str(message["content"]) for message in messages[-2:])
    *numbers, target = map(int, re.findall(r"\d+", puzzle))
    operators = [sign for sign in "+-*/" if f" {sign} " in rules]
    use_all = "every number" in rules
    best, text = Fraction(target), str(numbers[0])
    for _ in range(TRIES):
        for value, expression, complete in _random_terms(numbers, operators, rng):
            if (complete or not use_all) and abs(value - target) < best:
                best, text = abs(value - target), expression
        if not best:
            break
    return text


def _random_terms(
    numbers: Sequence[int], operators: Sequence[str], rng: np.random.Generator
) -> list[tuple[Fraction, str, bool]]:
    """Join two terms at random until one is left; return each joined one, and whether it holds them all."""
    terms: list[tuple[Fraction, str]] = [(Fraction(number), str(number)) for number in numbers]
    found: list[tuple[Fraction, str, bool]] = []
    while len(terms) > 1:
        left, left_text = terms.pop(int(rng.integers(len(terms))))
        right, right_text = terms.pop(int(rng.integers(len(terms))))
        operator = operators[int(rng.integers(len(operators)))]
        if operator == "/" and not right:
            operator = operators[0]
        value = _apply(operator, left, right)
        text = f"({left_text} {operator} {right_text})"
        terms.append((value, text))
        found.append((value, text, len(terms) == 1))
    return found


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right
