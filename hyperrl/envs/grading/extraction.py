"""Finds the answer in a response: the last mark wins, and nothing inside reasoning counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, get_args

from hyperrl.errors import ConfigError, nearest

__all__ = ["AnswerStyle", "extract_answer", "strip_reasoning", "unwrap_box"]

AnswerStyle = Literal["gsm8k", "boxed", "last_number", "whole"]
r"""Where an answer stands.

``gsm8k``: on the line of the last ``####``; ``boxed``: in the last ``\boxed{...}`` or ``\fbox{...}``, or the
number right behind a ``\boxed`` without braces; ``last_number``: the last number of the text, with its
sign; ``whole``: the whole text is the answer.
"""

_MARK = re.compile(r"<(/?)think(?:ing)?\s*>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox(?:\s*\[[^\[\]]*\])*)(?![A-Za-z])\s*")
_EMPHASIS_END = re.compile(r"([^*_]*[^*_\s])[*_]{1,3}")
_MARKUP = re.compile(r"</?(?:b|strong|i|em|u|mark|span|p|s|br|answer|final_answer)\s*/?>|<\|[a-z_]{1,30}\|>")
_BARE_NUMBER = re.compile(r"[-+−]?\$?\d[\d.,/]*(?![\w{\\])")
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}])(?<![\d)] )[-+−–－])?(?:\\?[$€£¥]\s?)?(?P<inner>(?<=[$€£¥])[-−])?"
    r"(?P<digits>(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+|/\d+)?%?)"
)
_TAIL_CHARS = 4_000


def strip_reasoning(text: str) -> str:
    """Return ``text`` without its reasoning.

    A ``<think>`` block goes with its marks; one that is never closed takes the rest of the text with
    it; a ``</think>`` that was opened in the prompt takes everything before it.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    position, inside = 0, False
    for mark in _MARK.finditer(text):
        if mark[1] and not inside:
            kept = []
        elif not inside:
            kept.append(text[position : mark.start()])
        inside, position = not mark[1], mark.end()
    return "".join(kept) if inside else "".join(kept) + text[position:]


def extract_answer(response: str, style: AnswerStyle) -> str | None:
    """Return the answer of ``response`` as written, or ``None`` if it gives none.

    Raises:
        ConfigError: ``style`` is not one of :data:`AnswerStyle`.
    """
    try:
        find = _FINDERS[style]
    except KeyError:
        raise ConfigError(
            f"style must be one of {', '.join(get_args(AnswerStyle))}, got {style!r}."
            + nearest(str(style), get_args(AnswerStyle))
        ) from None
    return find(strip_reasoning(response)) or None


def unwrap_box(text: str) -> str | None:
    r"""Return what the last ``\boxed`` holds; ``None`` if there is none or it is not closed."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"), text.rfind("\\framebox"))
    mark = _BOX.match(text, start) if start >= 0 else None
    if mark is None:
        return None
    if not text.startswith("{", mark.end()):
        number = _BARE_NUMBER.match(text, mark.end())
        return number[0].rstrip(".,") if number is not None else None
    depth = 0
    for brace in re.finditer(r"\\[{}\\]|[{}]", text[mark.end() :]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[mark.end() + 1 : mark.end() + brace.start()].strip()
    return None


def _after_hashes(text: str) -> str:
    start = text.rfind("####")
    if start < 0:
        return ""
    line = text[start + 4 :].strip().partition("\n")[0]
    line = (_MARKUP.sub("", line) if "<" in line else line).strip()
    opened_before = _EMPHASIS_END.fullmatch(line) if line.endswith(("*", "_")) else None
    return opened_before[1] if opened_before is not None else line  # **#### 18**


def _last_number(text: str) -> str:
    found = list(_NUMBER.finditer(text[-_TAIL_CHARS:]))[-1:]
    return "".join((number["sign"] or number["inner"] or "") + number["digits"] for number in found)


_FINDERS: dict[AnswerStyle, Callable[[str], str | None]] = {
    "gsm8k": _after_hashes,
    "boxed": unwrap_box,
    "last_number": _last_number,
    "whole": str.strip,
}
