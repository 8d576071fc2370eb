"""Finds the answer in a response: the last mark wins, and nothing inside reasoning counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, get_args

from hyperrl.errors import ConfigError, nearest

__all__ = ["AnswerStyle", "bare_gold", "extract_answer", "strip_reasoning", "unwrap_box"]

AnswerStyle = Literal["gsm8k", "boxed", "last_number", "whole"]
r"""Where an answer stands.

``gsm8k``: on the line of the last ``####``; ``boxed``: in the last ``\boxed{...}`` or ``\fbox{...}``, or the
number right behind a ``\boxed`` without braces; ``last_number``: the last number of the text, with its
sign; ``whole``: the whole text is the answer.
"""

_MARK = re.compile(r"<(/?)(?:think(?:ing)?|thought|reasoning|seed:think)\s*>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox(?:\s*\[[^\[\]]*\])*)(?![A-Za-z])\s*")
_BOX_NAMES = ("\\boxed", "\\fbox", "\\framebox")
_BOX_OR_BRACE = re.compile(rf"(?P<box>{_BOX.pattern}\{{)|\\[{{}}\\]|[{{}}]")
_EMPHASIS_END = re.compile(r"([^*_]*[^*_\s])[*_]{1,3}")
_MARKUP = re.compile(
    r"</?(?:b|strong|i|em|u|mark|span|p|s|br|answer|final_answer)\s*/?>|<\|[a-z_]{1,30}\|>"
    r"|<(?:eos|end_of_turn)>|<｜[^<>｜]{1,30}｜>|<<[^<>]{1,200}>>"
)
_BARE_NUMBER = re.compile(r"[-+−]?\$?\d[\d.,/]*(?![\w{\\])")
_FRACTION_SIGNS = "¼-¾⅐-⅞"
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}])(?<![\d)] )[-+−–－])?(?:\\?[$€£¥]\s?)?(?P<inner>(?<=[$€£¥])[-−])?"
    r"(?P<digits>(?:(?:\d+\s?)?\\[dtc]?frac\s*\{\d+\}\s*\{\d+\}"  # \frac{1}{2}
    rf"|(?:\d+ ?)?[{_FRACTION_SIGNS}]|\d+ \d+/\d+(?!\d)"  # 3½, 3 1/2
    r"|\d{1,3}(?:(?:\{,\}|\\[,;:! ]|[ '’\u00a0\u202f])\d{3})+(?!\d)(?:\.\d+)?"  # 1{,}234
    r"|(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+|/\d+|"
    r"\s?(?:[xX×*]|\\times|\\cdot)\s?10(?:\s?(?:\^|\*\*)\s?(?:\{[-+−]?\d+\}|[-+−]?\d+)|[⁻⁺]?[⁰¹²³⁴-⁹]+))?)"
    r"(?:\s?\\?%)?)"
)
_TAIL_CHARS = 4_000
_MOST_BOXES = 4


def strip_reasoning(text: str) -> str:
    """Return ``text`` without its reasoning.

    A ``<think>`` block (or ``<thinking>``, ``<thought>``, ``<reasoning>``) goes with its marks; one that is
    never closed takes the rest of the text with it; a ``</think>`` that was opened in the prompt takes
    everything before it.
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


def bare_gold(gold: str) -> str:
    r"""Return a right answer without the solution around it: what follows its last ``####``, or is boxed."""
    if "####" in gold:
        return _after_hashes(gold) or gold
    return (unwrap_box(gold) or gold) if "\\" in gold else gold


def unwrap_box(text: str) -> str | None:
    r"""Return what the last ``\boxed`` holds; ``None`` if there is none or it is not closed.

    Where it stands inside of another box, what the outermost holds, without the boxes in it.
    """
    last = max(map(text.rfind, _BOX_NAMES))
    mark = _BOX.match(text, last) if last >= 0 else None
    if mark is None:
        return None
    if not text.startswith("{", mark.end()):
        number = _BARE_NUMBER.match(text, mark.end())
        return number[0].rstrip(".,") if number is not None else None
    first = min(found for found in map(text.find, _BOX_NAMES) if found >= 0)
    inner = _outermost(text, first, last)
    for _ in range(_MOST_BOXES):  # a box that holds nothing but a box
        mark = _BOX.match(inner or "")
        if inner is None or mark is None or _outermost(inner, 0, 0) != inner[mark.end() + 1 : -1].strip():
            break
        inner = inner[mark.end() + 1 : -1].strip()
    return inner if inner is None or "\\" not in inner else _BOX.sub("", inner).strip()


def _outermost(text: str, first: int, last: int) -> str | None:
    """Return what the outermost closed box around ``last`` or there holds; none is before ``first``."""
    opened: list[tuple[int, int]] = []
    found: tuple[int, int] | None = None
    for token in _BOX_OR_BRACE.finditer(text, first):
        if token["box"] or token[0] == "{":
            opened.append((token.start() if token["box"] else last + 1, token.end()))
        elif token[0] == "}" and opened:
            start, inside = opened.pop()
            if start <= last < token.start():
                found = inside, token.start()
            if not opened and token.start() > last:
                break
    return text[found[0] : found[1]].strip() if found is not None else None


def _after_hashes(text: str) -> str:
    start = max(text.rfind("####"), text.rfind("＃＃＃＃"))
    if start < 0:
        return ""
    after = text[start + 4 :]
    before = text[text.rfind("\n", 0, start) + 1 : start].rstrip("#")
    if "####" in before and not after.partition("\n")[0].strip():  # #### 18 ####
        after = before.rpartition("####")[2]
    line = after.strip().partition("\n")[0]
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
