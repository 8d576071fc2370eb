"""Python literals that say what JSON could: dicts with text keys, lists and tuples, texts, numbers, None.

Nothing is evaluated: the text is parsed, and whatever is no such literal is refused.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["read_literal", "unique_keys"]

_MAX_CHARS = 20_000
_TEXT = re.compile(  # where it is not closed, it takes the rest
    r"""(?P<long>\"{3}|'{3})(?:[^\\]|\\.)*?(?:(?P=long)|\Z)|(?P<short>["'])(?:(?!(?P=short))[^\\\n]|\\.)*(?P=short)?""",
    re.DOTALL,
)
_NUMBER = r"0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_SHAPE = re.compile(rf"(?:[\s{{}}\[\]():,+\-\"]|(?:{_NUMBER}|True|False|None)(?![\w.]))*", re.ASCII)
_GLUED = re.compile(r'["\w.]\s+["\w.]|["]["\w.]|[\w.]"', re.ASCII)
_UNSURE_ESCAPE = re.compile(r"\\(?:\\|(?![\\'\"nrtbfux]))")


def read_literal(text: str) -> Any:
    """Return the value of a Python dict, list or tuple; tuples become lists.

    Raises:
        ValueError: it is none, holds what JSON has no word for (a set, bytes, infinity), a key twice with
            different values, two texts side by side or an odd escape, or is too long or nested too deep.
    """
    text = text.strip()
    bracketed = text[:1] in ("{", "[", "(") and text[-1:] in ("}", "]", ")") and len(text) <= _MAX_CHARS
    if not bracketed or any(escape[0] != "\\\\" for escape in _UNSURE_ESCAPE.finditer(text)):
        raise ValueError("no Python literal that is surely meant")
    try:
        _check_shape(text)
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("no Python literal") from error


def unique_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of ``pairs``. Raises ValueError where a key stands twice with different values."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and repr(found[key]) != repr(value):
            raise ValueError(f"{key!r:.80} stands twice")
        found[key] = value
    return found


def _check_shape(text: str) -> None:
    """Refuse what no literal holds before the parser warns of it, and a comma that may be missing.

    Two texts side by side are one to Python, and may be two to a policy.
    """
    plain = _TEXT.sub('"', text)
    if _SHAPE.fullmatch(plain) is None:
        raise ValueError("something stands in it that stands in no literal")
    if _GLUED.search(plain) is not None:
        raise ValueError("a comma may be missing between two values")


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Dict):
        keys = [_key(key) for key in node.keys]
        return unique_keys(zip(keys, map(_value, node.values), strict=True))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        number = _value(node.operand)
        if type(number) not in (int, float):
            raise ValueError("a sign before what is no number")
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Constant) and type(node.value) in (str, int, float, bool, type(None)):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            raise ValueError("a number that is too large for a float")
        return node.value
    raise ValueError(f"no literal: {type(node).__name__}")


def _key(node: ast.expr | None) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise ValueError("a key that is no text")
    return node.value
