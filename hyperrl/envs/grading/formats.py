"""Formats: pure functions that say whether a text is written as asked, for use in a ``@reward``.

None of them raises on any text, and none looks at what the text says. Regular expressions are the
author's own: one that backtracks without end holds up the rollout.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

__all__ = ["has_tags", "is_json", "matches_pattern", "share_of", "tag_share"]


def has_tags(text: str, *names: str, alone: bool = False) -> bool:
    """Whether ``<name>...</name>`` stands in ``text`` exactly once for each name, one after the other.

    Args:
        text: what is looked at; pass the whole action where one of the tags holds the reasoning.
        names: the tags, in order.
        alone: nothing but white space may stand between and around them.
    """
    spans = [_span(text, name) for name in names]
    found = [span for span in spans if span is not None]
    if len(found) < len(names) or not names:
        return False
    ends = [0, *(end for _, end in found)]
    starts = [*(start for start, _ in found), len(text)]
    between = list(zip(ends, starts, strict=True))
    if any(end > start for end, start in between):
        return False
    return not alone or not any(text[end:start].strip() for end, start in between)


def tag_share(text: str, *names: str) -> float:
    """Return the share in [0, 1] of what :func:`has_tags` asks for that is right.

    Three parts a tag: it opens exactly once, it closes exactly once and later, and it begins behind the
    end of the tag before it. A dense reward for a format that is rarely met as a whole.
    """
    parts: list[bool] = []
    last_end = 0
    for name in names:
        span = _span(text, name)
        parts += [text.count(f"<{name}>") == 1, span is not None, span is not None and span[0] >= last_end]
        last_end = last_end if span is None else span[1]
    return share_of(*parts)


def matches_pattern(text: str, pattern: str | re.Pattern[str]) -> bool:
    """Whether the whole of ``text``, without the white space around it, matches a regular expression.

    ``.`` matches line ends too where ``pattern`` is a ``str``; a compiled pattern keeps its own flags.
    """
    compiled = re.compile(pattern, re.DOTALL) if isinstance(pattern, str) else pattern
    return compiled.fullmatch(text.strip()) is not None


def is_json(text: str, of: Any = None) -> bool:
    """Whether ``text`` is one JSON value, or a fenced block that holds nothing but one.

    Strict: no trailing commas, no comments, no NaN, no key twice.

    Args:
        text: what is looked at.
        of: what the value must be: a type, such as ``dict[str, int]`` or a pydantic model. Types are
            not converted: ``"1"`` is no ``int``. ``None`` takes any value.
    """
    fenced = re.fullmatch(r"```(?:json)?[ \t]*\n(.*)\n```", text.strip(), re.DOTALL)
    plain = fenced[1] if fenced else text
    try:
        json.loads(plain, parse_constant=_refuse, object_pairs_hook=_no_key_twice)
        if of is not None:
            _adapter(of).validate_json(plain, strict=True)
    except (ValueError, ValidationError, RecursionError):
        return False
    return True


def share_of(*parts: bool) -> float:
    """Return the share in [0, 1] of the parts that are true; 0 of none."""
    return sum(map(bool, parts)) / len(parts) if parts else 0.0


def _span(text: str, name: str) -> tuple[int, int] | None:
    """Where a tag begins and ends, if it opens and closes exactly once and in this order."""
    opening, closing = f"<{name}>", f"</{name}>"
    if text.count(opening) != 1 or text.count(closing) != 1:
        return None
    start, end = text.index(opening), text.index(closing)
    return (start, end + len(closing)) if start + len(opening) <= end else None


@lru_cache(maxsize=64)
def _adapter(of: Any) -> TypeAdapter[Any]:
    return TypeAdapter(of)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
