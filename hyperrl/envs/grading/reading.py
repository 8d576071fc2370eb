r"""Reads an answer as written into something that can be compared: quantity, collection or words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hyperrl.envs.grading.exact import Exact
from hyperrl.envs.grading.extraction import unwrap_box
from hyperrl.envs.grading.numbers import Quantity, read_number, read_quantity
from hyperrl.envs.grading.plain_text import plain_text

__all__ = ["MAX_ANSWER_CHARS", "Answer", "Collection", "Named", "is_number", "read_answer"]

MAX_ANSWER_CHARS = 2_000
"""A longer answer equals only its own spelling."""

_MAX_DEPTH = 4
_MAX_ITEMS = 64

_WRAPPERS = (
    re.compile(r"\$\$?([^$]*)\$?\$"),
    re.compile(r"\\\((.*)\\\)"),
    re.compile(r"\\\[(.*)\\\]"),
    re.compile(r"\*{1,3}([^*]+)\*{1,3}"),
    re.compile(r"__?([^_]+)__?"),
    re.compile(r"`+([^`]+)`+"),
    re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|displaystyle)\s*\{([^{}]*)\}"),
    re.compile(r"\{([^{}]*)\}"),
)
_SPACES = re.compile(r"\\(?:[,;: ]|quad\b|qquad\b|displaystyle\b)|~|\s+")
_DROPPED = re.compile(
    r"\\!|\\left\b(?!\\?\{)|\\right\b(?!\\?\})|\\(?:left|right)(?=\\?[{}])|\\?\bphantom\{\}"
)
_COMMANDS = re.compile(r"(?<![\\a-zA-Z])(pi|sqrt|binom)(?![a-zA-Z])")
_NAME = re.compile(r"([A-Za-z]|\\text\{[^{}]*\}|\\(?:alpha|beta|gamma|theta|phi|lambda|mu))\s*=\s*(?=[^=\s])")
_INFINITY = re.compile(r"([+-]?)\s*(?:\\infty|oo|inf|infinity)", re.IGNORECASE)
_PAIRS = {"(": ")]", "[": ")]"}


@dataclass(frozen=True, slots=True)
class Collection:
    """Several answers; ``brackets`` is ``()``, ``[)``, ``{}`` ..., or empty for a bare list."""

    brackets: str
    items: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """An answer given as an equation such as ``x = 5``."""

    name: str
    answer: Answer


Answer = Quantity | Collection | Named | str


@lru_cache(maxsize=4096)
def read_answer(text: str) -> Answer:
    """Return what ``text`` says; words and everything without an exact value stay text."""
    if len(text) > MAX_ANSWER_CHARS:
        return text
    number = read_number(text) if text.isascii() else None
    if number is not None:
        return Quantity(Exact.of(number))
    return _read(_tidy(plain_text(text)), depth=0)


def is_number(text: str) -> bool:
    """Whether ``text`` is a number with an exact value, with or without a unit, currency or percent."""
    return isinstance(read_answer(text), Quantity)


def _read(text: str, *, depth: int) -> Answer:
    named = _NAME.match(text)
    if named is not None and depth == 0:
        return Named(named[1], _read(text[named.end() :], depth=1))
    infinite = _INFINITY.fullmatch(text)
    if infinite is not None:
        return "-infinity" if infinite[1] == "-" else "infinity"
    quantity = read_quantity(text)
    if quantity is not None:
        return quantity
    collection = _read_collection(text, depth) if depth < _MAX_DEPTH else None
    return collection if collection is not None else _words(text)


def _read_collection(text: str, depth: int) -> Collection | None:
    brackets, inner = _unbracket(text)
    items = _split(inner)
    if items is None or len(items) > _MAX_ITEMS or not (brackets or len(items) > 1):
        return None
    if len(items) == 1 and brackets != "{}":
        return None
    return Collection(brackets, tuple(_read(_tidy(item), depth=depth + 1) for item in items))


def _unbracket(text: str) -> tuple[str, str]:
    r"""Return the brackets of ``text`` and what they hold; ``\{`` and ``\}`` are a set's."""
    if text.startswith("\\{") and text.endswith("\\}"):
        return "{}", text[2:-2]
    if len(text) > 2 and text[-1] in _PAIRS.get(text[0], ""):
        inner = text[1:-1]
        if _closes_at_end(text):
            return text[0] + text[-1], inner
    return "", text


def _closes_at_end(text: str) -> bool:
    """Whether the first bracket is closed by the last character and not before."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if depth == 0:
            return position == len(text) - 1
    return False


def _split(text: str) -> list[str] | None:
    """Split at commas outside of brackets; ``None`` if brackets do not match or a part is empty."""
    parts, start, depth = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return None
        if char in ",;" and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return parts if depth == 0 and all(part.strip() for part in parts) else None


def _tidy(text: str) -> str:
    """Take off delimiters, emphasis, spacing commands and a final full stop."""
    text = _SPACES.sub(" ", _DROPPED.sub("", text)).replace("{,}", ",").strip()
    for _ in range(8):
        before = text
        text = text.rstrip(" .;:,").lstrip() if not text.endswith("\\") else text
        for pattern in _WRAPPERS:
            match = pattern.fullmatch(text)
            text = match[1].strip() if match is not None else text
        boxed = unwrap_box(text) if text.startswith(("\\boxed", "\\fbox")) else None
        text = boxed if boxed is not None else text
        if text == before:
            break
    return _COMMANDS.sub(r"\\\1", text)


def _words(text: str) -> str:
    """Return a spelling in which case (of words, not of single letters) and spaces do not count."""
    text = re.sub(r"\\[dtc]frac\b", r"\\frac", text)
    text = re.sub(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\((\w)\)", r"\1", text) if len(text) == 3 else text
    squeezed = " ".join(text.split())
    if re.fullmatch(r"[^\W\d_]{2,}(?:[ '-][^\W\d_]+)*", squeezed):
        return squeezed.casefold()
    return squeezed.replace(" ", "")
