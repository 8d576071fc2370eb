"""The side of math-verify that runs in a worker process, where it may hang, swell or crash.

math-verify's own limits are off: they need ``SIGALRM`` and the main thread, and sympy swallows what they
raise. The process is killed instead.
"""

from __future__ import annotations

import logging
import re
import resource
from functools import lru_cache
from typing import Any, Literal

__all__ = ["compare"]

Comparison = Literal["equal", "different", "unreadable answer", "unreadable gold", "too large"]

_MEMORY_BYTES = 2 * 1024**3
_DIGITS = 30
_RELATIVE = 1e-12
_BRACES = re.compile(r"\\.|[{}]")
_DOLLARS = re.compile(r"(?<!\\)\$")


def compare(answer: str, gold: str) -> Comparison:
    """Say whether two expressions are equal as mathematics, according to math-verify and to their digits."""
    _prepare()
    from math_verify import verify  # noqa: PLC0415  # only workers load it

    try:
        right = _parse(gold)
        if not right:
            return "unreadable gold"
        given = _parse(answer)
        if not given:
            return "unreadable answer"
        equal = verify(right, given, float_rounding=10, timeout_seconds=None)
        return "equal" if equal and not _apart(right[0], given[0]) else "different"
    except (MemoryError, OverflowError, RecursionError):
        return "too large"


@lru_cache(maxsize=1)
def _prepare() -> None:
    """Bound the memory of this process, and silence what nobody could read anyway."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@lru_cache(maxsize=512)
def _parse(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse  # noqa: PLC0415

    text = text.strip()
    if text.startswith("$") and text.endswith("$"):
        text = text.strip("$")
    if _DOLLARS.search(text) or "\\boxed" in text or not _is_balanced(text):
        return []  # several formulas: which of them is the answer would be a guess
    found = parse(
        f"\\boxed{{{text}}}",
        extraction_config=[LatexExtractionConfig(boxed_match_priority=0)],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    return list(found)


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in _BRACES.findall(text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


def _apart(gold: Any, answer: Any) -> bool:
    """Whether two numbers, or ends of intervals and items of tuples, differ in their first digits.

    math-verify rounds to decimal places, so that very small numbers are all equal to it.
    """
    import sympy  # noqa: PLC0415

    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        if gold == answer or not (gold.is_number and answer.is_number):
            return False
        if gold.is_finite is False or answer.is_finite is False:
            return True
        largest = max(abs(sympy.N(gold, _DIGITS)), abs(sympy.N(answer, _DIGITS)))
        difference = abs(sympy.N(gold - answer, _DIGITS))
        return bool(difference > largest * _RELATIVE)
    ordered = (sympy.Tuple, sympy.Interval)
    if isinstance(gold, ordered) and isinstance(answer, ordered):
        return any(_apart(one, other) for one, other in zip(gold.args, answer.args, strict=False))
    return False
