"""Refuses expressions that would take a computer algebra system too long, by looking at their text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hyperrl.envs.grading.numbers import Quantity
from hyperrl.envs.grading.reading import read_answer

__all__ = ["MAX_MATH_CHARS", "why_too_large"]

MAX_MATH_CHARS = 500
"""A longer answer equals only its own spelling."""

_MAX_DEPTH = 20
_MAX_EXPONENT = 10_000
_MAX_FACTORIAL = 1_000

_POWER = re.compile(r"\^|\*\*")
_FACTORIAL = re.compile(r"(\d*)\s*!(?!=)")
_CHOSEN_FROM = re.compile(r"\\[dt]?binom\s*\{?\s*(\d{5,})")
_OPERAND = re.compile(r"\s*[-+]?(?:\d[\d.]*|\\?[A-Za-z]+)?")
_NUMERIC_COMMANDS = re.compile(r"\\(?:[dt]?frac|cdot|times|left|right|sqrt|div|[,;:! ])")
_NUMERIC = re.compile(r"[\d\s+\-*/^{}()\[\]!.,×÷−]*\d[\d\s+\-*/^{}()\[\]!.,×÷−]*")
_OPEN, _CLOSE = "{([", "})]"


def why_too_large(text: str) -> str | None:
    """Return why ``text`` must not be computed, or ``None`` if nothing in it looks too large.

    Refused are long texts, deep nesting, large numeric exponents (so towers of powers too), factorials
    of large numbers and of factorials, and binomials of large numbers. Letters in an exponent are no
    reason.
    """
    if len(text) > MAX_MATH_CHARS:
        return f"{len(text):,} characters, at most {MAX_MATH_CHARS} are computed"
    pairs, depth = _match_brackets(text)
    if depth > _MAX_DEPTH:
        return f"nested {depth} deep, at most {_MAX_DEPTH} levels are computed"
    for exponent in _exponents(text, pairs):
        if _exceeds(exponent, _MAX_EXPONENT):
            return f"the exponent {exponent[:40]!r}, at most {_MAX_EXPONENT:,} is computed"
    if (chosen := _CHOSEN_FROM.search(text)) is not None:
        return f"a choice out of {chosen[1][:40]}, at most out of 9,999 is computed"
    for operand in _factorial_operands(text, pairs):
        if _exceeds(operand, _MAX_FACTORIAL):
            return f"the factorial of {operand[:40]!r}, at most {_MAX_FACTORIAL:,} is computed"
    return None


def _match_brackets(text: str) -> tuple[dict[int, int], int]:
    """Return the position of each bracket's partner and the greatest depth; kinds are not told apart."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    depth = 0
    for position, char in enumerate(text):
        if char in _OPEN:
            opened.append(position)
            depth = max(depth, len(opened))
        elif char in _CLOSE and opened:
            start = opened.pop()
            pairs[start], pairs[position] = position, start
    return pairs, depth


def _exponents(text: str, pairs: dict[int, int]) -> Iterator[str]:
    """Yield what follows each power sign, with the powers that follow it in turn: ``9^9`` of ``9^9^9``."""
    for sign in _POWER.finditer(text):
        end = _operand_end(text, sign.end(), pairs)
        while (following := _POWER.match(text, end)) is not None:
            end = _operand_end(text, following.end(), pairs)
        yield text[sign.end() : end]


def _operand_end(text: str, start: int, pairs: dict[int, int]) -> int:
    while text.startswith((" ", "+", "-"), start):
        start += 1
    if start < len(text) and text[start] in _OPEN:
        return pairs.get(start, len(text) - 1) + 1
    operand = _OPERAND.match(text, start)
    return operand.end() if operand is not None else start


def _factorial_operands(text: str, pairs: dict[int, int]) -> Iterator[str]:
    for sign in _FACTORIAL.finditer(text):
        if sign[1]:
            yield sign[1]
            continue
        end = sign.start()
        while end > 0 and text[end - 1] in " \\":
            end -= 1
        if end > 0 and text[end - 1] in "!)]}":
            yield text[pairs.get(end - 1, 0) : end]


def _exceeds(operand: str, limit: int) -> bool:
    """Whether a number, however written, is above ``limit`` or cannot be computed; letters are no number."""
    plain = _NUMERIC_COMMANDS.sub(" ", operand)
    if _NUMERIC.fullmatch(plain) is None:
        return False
    inner = operand.strip()
    while inner[:1] in tuple(_OPEN) and inner[-1:] in tuple(_CLOSE) and len(inner) > 2:
        inner = inner[1:-1].strip()
    answer = read_answer(inner)
    if not isinstance(answer, Quantity):
        return True
    value = answer.value.rational
    return value is not None and abs(value) > limit
