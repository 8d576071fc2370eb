r"""Reads an answer as written into something that can be compared: quantity, collection or words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hyperrl.envs.grading.exact import Exact
from hyperrl.envs.grading.expressions import parse_literal
from hyperrl.envs.grading.numbers import Quantity, read_number, read_quantity
from hyperrl.envs.grading.plain_latex import TEXT_COMMANDS, plain_latex
from hyperrl.envs.grading.plain_text import plain_text

__all__ = [
    "MAX_ANSWER_CHARS",
    "Answer",
    "Collection",
    "Named",
    "Rounded",
    "describe",
    "is_number",
    "read_answer",
]

MAX_ANSWER_CHARS = 2_000
"""A longer answer equals only its own spelling."""

_MAX_DEPTH = 4
_MAX_ITEMS = 64

_WRAPPERS = (
    re.compile(r"\$\$?(.*?)\$?\$"),
    re.compile(r"\\\((.*)\\\)"),
    re.compile(r"\\\[(.*)\\\]"),
    re.compile(r"\*{1,4}([^*]+)\*{1,4}"),
    re.compile(r"__?(.+?)__?"),
    re.compile(r"`+([^`]+)`+"),
    re.compile(r'"([^"]*)"'),
    re.compile(r"'([^']*)'"),
    re.compile(r"(?:=|\\(?:approx|sim|simeq|cong)\b)\s*([^=]*)"),
)
_FONT = re.compile(rf"(?:\\(?:{TEXT_COMMANDS})\s*)?(?=\{{)")
_BOX = re.compile(r"\\(?:boxed|f(?:rame)?box)\s*(?=\{)|\\boxed\s*(?=[-+]?\d)")
_SPACES = re.compile(r"(?:\\(?:[,;: ]|quad\b|qquad\b|displaystyle\b)|~|\s+)+")
_DROPPED = re.compile(
    r"\\!|\\left\b(?!\\?\{)|\\right\b(?!\\?\})|\\(?:left|right)(?=\\?[{}])|\\?\bphantom\{\}"
)
_COMMANDS = re.compile(r"(?<![\\a-zA-Z])(pi|sqrt|binom)(?![^\W\d_])")
_NAME = re.compile(
    rf"([A-Za-z]{{1,20}}(?: [A-Za-z]{{1,20}}){{0,3}}|\\(?:{TEXT_COMMANDS})\s*\{{[^{{}}]*\}}"
    r"|[A-Za-z](?:_(?:\w|\{(?:\\triangle\s*)?\w{1,5}\}))?(?:\^\{-1\})?'?(?:\([^()=]{0,20}\))?|\[[A-Z]{3,6}\]"
    r"|\\(?:overline|vec|widehat)\s*\{[A-Za-z]{1,4}\}|\\(?:sin|cos|tan)\s*\(?\\?[A-Za-z]{1,8}\s*\)?|m?\s*\\angle\s*[A-Z]{1,3}"
    r"|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z]){1,4}\s*\)"
    r"|\\(?:alpha|beta|gamma|theta|phi|lambda|mu))\s*(?:=|\\approx\b|\\equiv\b|\\in\b(?=\s*[\[(\\]))\s*(?=[^=\s])"
)
_VARIABLE = re.compile(r"[A-Za-z](?:_(?:\w|\{\w{1,5}\}))?")
_LABEL = re.compile(
    rf"(?:\\(?:{TEXT_COMMANDS})\s*\{{\s*)?(?:the\s+)?(?:final\s+)?(?:answer|result|solution)\s*"
    r"(?:\s(?:is|would be)\b\s*:?|[:=])\s*\}?\s*",
    re.IGNORECASE,
)
_EXCLAIMED = re.compile(r"[^\W\d_]{2,}!+$")
_CHOICE = re.compile(r"(?:option|choice|answer)\s*:?\s*\(?([A-Z])\)?", re.IGNORECASE)
_BOLD = re.compile(r"(?<![\w)*])\*\*([^*]{1,40})\*\*(?![\w(*])")
_TIMES_TEN = re.compile(r"(?<=\d)\s*(?:[xX]|times)\s*(?=10\s*(?:\^|\*\*))")
_MINUS_WORD = re.compile(r"(?:minus|negative)\s+(?=[\d.$(\\])", re.IGNORECASE)
_HEDGE = re.compile(
    r"(?:exactly|about|approximately|approx\.?|around|roughly)\s+(?=[-+\d.$\\])", re.IGNORECASE
)
_HALF_OF_DAY = re.compile(r"\b([ap])\.\s?m(?:\.|\b)", re.IGNORECASE)
_CLOCK = re.compile(r"0?(\d{1,2}:\d\d(?::\d\d)?)\s*([ap]m)?", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}([/.-])\d{1,2}\1\d{4}|\d{4}/\d{1,2}/\d{1,2}")
_ELLIPSIS = re.compile(r"\s*(?:\.{3,}|\\[lc]?dots)$")
_CYCLE = re.compile(r"([+-]?\d{0,20}\.(?=\d))(\d{0,12}?)(?:(\d)\3+|(\d{2,9})\4+)")
_PARENTHESISED_CYCLE = re.compile(r"([+-]?(?:\d{0,20}\.|0?\.\d{1,12}))\((\d{1,20})\)")
_MATHS_THEN_UNIT = re.compile(r"^\$([^$]+)\$(?=\s+\S)|^\\\(((?:(?!\\\)).)+)\\\)(?=\s+\S)")
_MATRIX = re.compile(
    r"(?:\\left\s*)?[(\[]?\s*\\begin\s*\{(?:[pbB]?(?:small)?matrix|array\}\s*\{[clr| ]*)\}(.*)"
    r"\\end\s*\{(?:[pbB]?(?:small)?matrix|array)\}\s*(?:\\right\s*)?[)\]]?"
)
_AND = re.compile(
    rf"\s*,?\s*(?:\\(?:{TEXT_COMMANDS})\s*\{{\s*(?:and|or)\s*\}}|\b(?:and|or)\b)\s*", re.IGNORECASE
)
_COMMON = re.compile(
    r"([+-]?)(?:(\\?\$)?([1-9][0-9]{0,2}(?:,[0-9]{3}){1,6}|[0-9]{1,20})(\.[0-9]{1,20})?( ?\\?%)?)\.?"
)
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])\s*")
_EVENT = re.compile(
    r"((?:\\Pr|\\mathbb\s*\{\s*[A-Z]\s*\}|[A-Z])\s*[(\[][^()\[\]]{1,40}[)\]])\s*=\s*(?=[^=\s])"
)
_THEREFORE = re.compile(r"^\s*\\(?:therefore|implies|Rightarrow)(?![A-Za-z])\s*")
_EQUALS = re.compile(r":=|==|&\s*=")
_TAG = re.compile(r"</?(?:b|strong|i|em|u|mark|span|p|answer|final_answer)\s*/?>")
_CAPTION = re.compile(
    r"(?!(?:not|no|never)\b)([A-Za-z]{3,20}(?: [A-Za-z]{2,20}){0,3})\s*:\s*(?=[-+\d.$\\€£¥])"
)
_APPROXIMATELY = re.compile(r"\s*\\approx(?![A-Za-z])\s*")
_PLAIN_RELATION = re.compile(r"(?<=[^<>=])([<>])=(?!=)")
_RELATION = re.compile(r"\s*(<|>|\\[gl]e(?![A-Za-z]))\s*")
_RISING = re.compile(r"<|\\le")
_LETTER = re.compile(r"[A-Za-z]\Z")
_TURNED_RELATION = {">": "<", "\\ge": "\\le"}
_INFINITY = re.compile(r"([+-]?)\s*(?:\\infty|oo|inf|infinity)", re.IGNORECASE)
_PAIRS = {"(": ")]", "[": ")]"}


@dataclass(frozen=True, slots=True)
class Collection:
    r"""Several answers; ``brackets`` is ``()``, ``[)``, ``{}`` ..., or empty for a bare list.

    That of an inequality is its signs, in rising order: ``<\le`` of ``3 >= x > 1``.
    """

    brackets: str
    items: tuple[Answer, ...]

    @property
    def is_inequality(self) -> bool:
        """Whether it is one, with two or three sides."""
        return self.brackets.startswith(("<", "\\le"))

    def as_interval(self) -> Collection | None:
        """Return the interval that an inequality allows one letter to lie in; ``None`` if it says more."""
        signs = _RISING.findall(self.brackets)
        letters = [at for at, item in enumerate(self.items) if isinstance(item, str) and _LETTER.match(item)]
        if letters not in ([0], [1]) or (len(signs) == 2 and letters == [0]):
            return None
        below, above = letters == [1], letters[0] < len(signs)
        opener = "[" if below and signs[0] == "\\le" else "("
        closer = "]" if above and signs[-1] == "\\le" else ")"
        low, high = self.items[0] if below else "-infinity", self.items[-1] if above else "infinity"
        return Collection(opener + closer, (low, high))


@dataclass(frozen=True, slots=True)
class Named:
    """An answer given as an equation such as ``x = 5``."""

    name: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Rounded:
    r"""An exact answer with the decimal that it is near, such as ``2\pi \approx 6.28``."""

    exact: Quantity
    decimal: Quantity


Answer = Quantity | Collection | Named | Rounded | str


@lru_cache(maxsize=4096)
def read_answer(text: str) -> Answer:
    """Return what ``text`` says; words and everything without an exact value stay text."""
    if len(text) > MAX_ANSWER_CHARS:
        return text
    text = plain_text(text)
    common = _COMMON.fullmatch(text)
    if common is not None:
        return _common_quantity(common)
    number = read_number(text)
    if number is not None:
        return Quantity(Exact.of(number))
    matrix = _MATRIX.fullmatch(_tidy_ends(text).rstrip(".")) if "\\begin" in text else None
    if matrix is not None:
        return _read_matrix(matrix[1])
    if _DATE.fullmatch(text):
        return text
    return _read(_plain(text), depth=0) or _tidy_ends(text)  # a mark alone, such as =


def _plain(text: str) -> str:
    """Take off what only decorates an answer: fonts, labels, hedges, emphasis."""
    text = _MATHS_THEN_UNIT.sub(lambda found: found[1] or found[2], plain_latex(text))
    text = _EQUALS.sub("=", _THEREFORE.sub("", _TAG.sub("", text)))
    text = _set_in_braces(_PLAIN_RELATION.sub(lambda found: f"\\{'gl'[found[1] == '<']}e ", text))
    text = _repeating(text) or _TIMES_TEN.sub("*", _BOLD.sub(r"\1", text))
    text = _tidy(_HALF_OF_DAY.sub(r"\1m", text)).removeprefix(":").lstrip()
    label = _LABEL.match(text)
    if label is not None and label.end() < len(text):
        text = _tidy(text[label.end() :])
    text = _HEDGE.sub("", text, count=1) if _HEDGE.match(text) else text
    return _MINUS_WORD.sub("-", text)


def _set_in_braces(text: str) -> str:
    r"""Return ``{1, 2}`` as ``\{1, 2\}``: no one groups a whole list for its look."""
    bare = _tidy_ends(text)
    if bare[:1] != "{" or not _closes_at_end(bare) or len(_split(bare[1:-1]) or "") < 2:
        return text
    return text if read_number(bare[1:-1].strip()) is not None else f"\\{{{bare[1:-1]}\\}}"


def _repeating(text: str) -> str | None:
    """Return ``0.333...`` and ``0.(3)`` as the fraction that they are; ``None`` for anything else."""
    text = _tidy_ends(text)
    cycle = _PARENTHESISED_CYCLE.fullmatch(text)
    if cycle is not None:
        return plain_latex(f"{cycle[1]}\\overline{{{cycle[2]}}}")
    shorter = _ELLIPSIS.sub("", text)
    found = _CYCLE.fullmatch(shorter) if shorter != text else None
    if found is None or (found[4] and found[2]):
        return None
    return plain_latex(f"{found[1]}{found[2]}\\overline{{{found[3] or found[4]}}}")


def _tidy_ends(text: str) -> str:
    """Take off spaces and dollars at both ends, and nothing else."""
    return text.strip(" $")


def _read_matrix(inner: str) -> Answer:
    """Read the rows of a matrix; its brackets do not matter."""
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", inner) if row.strip()]
    if not rows or sum(row.count("&") + 1 for row in rows) > _MAX_ITEMS:
        return _words(inner)
    cells = [[_read(_plain(cell), depth=2) for cell in row.split("&")] for row in rows]
    return Collection("matrix", tuple(Collection("row", tuple(row)) for row in cells))


def _common_quantity(found: re.Match[str]) -> Quantity:
    """Return what the general way would read too, ten times as fast."""
    sign, currency, digits, decimals, percent = found.groups()
    digits = digits.replace(",", "")
    value = parse_literal(digits + decimals) if decimals and decimals.strip(".0") else Fraction(int(digits))
    return Quantity(
        value=Exact.of(-value if sign == "-" else value),
        percent=percent is not None,
        unit="$" if currency and not percent else "",
    )


def is_number(text: str) -> bool:
    """Whether ``text`` is a number with an exact value, with or without a unit, currency or percent."""
    return isinstance(read_answer(text), Quantity)


def describe(answer: Answer) -> str:
    """Return what was read, for a person: kind and exact value, shortened to a line."""
    if isinstance(answer, Named):
        return f"{answer.name} = {describe(answer.answer)}"
    if isinstance(answer, Rounded):
        return f"{describe(answer.exact)}, about {answer.decimal}"
    if isinstance(answer, Collection) and answer.is_inequality:
        return f"the inequality {answer.brackets!r} of " + ", ".join(map(describe, answer.items))
    if isinstance(answer, Collection):
        kind = "the set" if answer.brackets == "{}" else f"the list in {answer.brackets!r}"
        kind = kind if answer.brackets else "the list"
        return f"{kind} of " + ", ".join(map(describe, answer.items[:8]))
    if isinstance(answer, Quantity):
        return f"the number {answer}"
    return f"the text {answer[:80]!r}"


def _read(text: str, *, depth: int) -> Answer:
    if depth <= 1 and text.count("=") != 1 and "=" in text:
        text = _last_of_chain(text)
    found = _read_statement(text, depth) or _read_infinity(text) or read_quantity(text)
    if found is not None:
        return found
    if depth >= _MAX_DEPTH:
        return _words(text)
    several = _read_both_signs(text) or _read_enumeration(text, depth) or _read_union(text, depth)
    return several or _read_list(text, depth) or _words(text)


def _read_statement(text: str, depth: int) -> Answer | None:
    """Read what says more than a value: a name, an inequality, a decimal beside an exact value."""
    event = _EVENT.match(text) if depth <= 1 else None
    if event is not None:
        return Named(_words(event[1]), _read(text[event.end() :], depth=depth + 1))
    compared = _read_relation(text, depth) if _RELATION.search(text) is not None else None
    if compared is not None or depth > 1:
        return compared
    named = _NAME.match(text) if text.count("=") <= 1 else None
    if named is not None:
        return Named(_words(named[1]), _read(text[named.end() :], depth=depth + 1))
    turned = _turned(text) if text.count("=") == 1 else None
    return turned or _read_caption(text) or _read_rounded(text)


def _read_infinity(text: str) -> str | None:
    infinite = _INFINITY.fullmatch(text)
    return infinite and ("-infinity" if infinite[1] == "-" else "infinity")


def _last_of_chain(text: str) -> str:
    """Return ``x = 12`` of ``x = 10 + 2 = 12``, if all that it says holds; else the text."""
    first, *rest = (part.strip() for part in text.split("="))
    name = f"{first} = " if _NAME.match(f"{first}=1") is not None else ""
    values = [read_quantity(part) for part in (rest if name else [first, *rest])]
    same = all(
        value is not None and values[0] is not None and value.value == values[0].value for value in values
    )
    return f"{name}{rest[-1]}" if same else text


def _turned(text: str) -> Answer | None:
    """Read ``12 = x``, and the value of ``10 + 2 = 12`` if that holds."""
    left, right = (part.strip() for part in text.split("="))
    value = read_quantity(left)
    if value is None:
        return None
    if _VARIABLE.fullmatch(right):
        return Named(_words(right), value)
    other = read_quantity(right)
    return other if other is not None and other.value == value.value else None


def _read_caption(text: str) -> Named | None:
    """Read ``Total cost: $18``, if what follows is a number."""
    caption = _CAPTION.match(text) if ":" in text else None
    if caption is None:
        return None
    value = read_quantity(text[caption.end() :])
    return Named(_words(caption[1]), value) if value is not None else None


def _read_rounded(text: str) -> Rounded | None:
    r"""Read ``\frac{1}{3} \approx 0.33``, if the second is the first in decimals."""
    sides = _APPROXIMATELY.split(text) if "\\approx" in text else []
    exact, decimal = [read_quantity(side) for side in sides] if len(sides) == 2 else (None, None)
    near = None if decimal is None else decimal.value.rational
    if exact is None or decimal is None or near is None or exact.percent != decimal.percent:
        return None
    places = re.search(r"\.(\d+)", sides[1])
    within = Fraction(1, 10 ** len(places[1])) if places is not None else Fraction(1)
    return Rounded(exact, decimal) if exact.value.is_near(near, within) else None


def _read_relation(text: str, depth: int) -> Collection | None:
    r"""Read ``x > 2`` and ``1 < x \le 3`` with their signs turned one way."""
    parts = _RELATION.split(text)
    sides, signs = parts[::2], [_TURNED_RELATION.get(sign, sign) for sign in parts[1::2]]
    turned = sum(sign in _TURNED_RELATION for sign in parts[1::2])
    if depth > 2 or len(sides) not in (2, 3) or not all(sides) or turned not in (0, len(signs)):
        return None
    if len(_split(text) or "") != 1 or _AND.search(text):  # a list, or brackets that do not match
        return None
    step = -1 if turned else 1
    items = tuple(_read(_tidy(side), depth=depth + 1) for side in sides[::step])
    return Collection("".join(signs[::step]), items)


def _read_union(text: str, depth: int) -> Collection | None:
    r"""Read ``(0,1) \cup (2,3)``, if each part is a list in brackets."""
    if "\\cup" not in text:
        return None
    parts = [_read(_tidy(part), depth=depth + 1) for part in re.split(r"\\cup(?![A-Za-z])", text)]
    if len(parts) < 2 or not all(isinstance(part, Collection) and part.brackets for part in parts):
        return None
    return Collection("\\cup", tuple(parts))


def _read_list(text: str, depth: int) -> Answer | None:
    """Read a list; one of ``x = 1, x = 2`` is one of values for x."""
    found = _read_collection(text, depth)
    names = {item.name if isinstance(item, Named) else "" for item in found.items} if found else {""}
    if found is None or len(names) > 1 or "" in names:
        return found
    items = tuple(item.answer for item in found.items if isinstance(item, Named))
    return Named(names.pop(), Collection(found.brackets, items))


def _read_enumeration(text: str, depth: int) -> Answer | None:
    """Read ``1, 2 and 3`` as a list, if each of it is a number; ``12 or less`` and such stay words."""
    if _AND.search(text) is None:
        return None
    found = _read_list(_AND.sub(", ", text), depth)
    values = found.answer if isinstance(found, Named) else found
    if not isinstance(values, Collection) or any(isinstance(item, str) for item in values.items):
        return None
    inequalities = [item for item in values.items if isinstance(item, Collection) and item.is_inequality]
    return _either(text, inequalities) if inequalities else found


def _either(text: str, inequalities: list[Collection]) -> Collection | None:
    """Return ``x < 1 or x > 2`` as a union; ``and`` and a comma between inequalities mean something else."""
    letters = {
        item for one in inequalities for item in one.items if isinstance(item, str) and _LETTER.match(item)
    }
    parts = [interval for one in inequalities if (interval := one.as_interval()) is not None]
    joined = (
        all(re.search(r"\bor\b", found[0], re.IGNORECASE) for found in _AND.finditer(text))
        and "," not in text
    )
    union = joined and len(letters) == 1 and len(parts) == len(inequalities)
    return Collection("\\cup", tuple(parts)) if union else None


def _read_both_signs(text: str) -> Collection | None:
    r"""Read ``a \pm b`` as the set of its two values."""
    if len(_PLUS_MINUS.findall(text)) != 1:
        return None
    both = [read_quantity(_PLUS_MINUS.sub(sign, text).strip().removeprefix("+")) for sign in "+-"]
    values = tuple(value for value in both if value is not None)
    return Collection("{}", values) if len(values) == 2 else None


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
    if len(text) > 2 and text[0] in "[]" and text[-1] in "[]" and not set("[]") & set(text[1:-1]):
        return {"[": "[", "]": "("}[text[0]] + {"]": "]", "[": ")"}[text[-1]], text[1:-1]  # ]0,1[
    if len(text) > 2 and text[-1] in _PAIRS.get(text[0], ""):
        inner = text[1:-1]
        if _closes_at_end(text):
            return text[0] + text[-1], inner
    return "", text


def _closes_at_end(text: str) -> bool:
    """Whether the first bracket is closed by the last character and not before."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
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
        goes_on = text.endswith("\\") or (text.endswith("...") and "," in text)
        text = text.rstrip(" .;:,").lstrip() if not goes_on else text
        for pattern in _WRAPPERS:
            match = pattern.fullmatch(text)
            text = match[1].strip() if match is not None else text
        font = _FONT.match(text)
        if font is not None and _closes_at_end(text[font.end() :]):
            text = text[font.end() + 1 : -1].strip()
        box = _BOX.match(text)
        if box is not None:  # what follows it, such as a unit, stays
            whole = _closes_at_end(text[box.end() :])
            text = text[box.end() + 1 : -1].strip() if whole else text[box.end() :]
        if text == before:
            break
    return _COMMANDS.sub(r"\\\1", text)


def _words(text: str) -> str:
    """Return a spelling in which case (of words, not of single letters) and spaces do not count."""
    text = re.sub(r"\\[dtc]frac\b", r"\\frac", text)
    text = re.sub(rf"\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]*)\}}", r"\1", text)
    text = re.sub(r"[(\[]?(\w)[)\]]", r"\1", text) if len(text) <= 3 else text
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", re.sub(r"\\mathbb\s*\{?\s*(\w)\s*\}?", r"\\mathbb{\1}", text))
    squeezed = " ".join(text.split())
    clock = _CLOCK.fullmatch(squeezed)
    if clock is not None:
        return clock[1] + (clock[2] or "").lower()
    choice = _CHOICE.fullmatch(squeezed)
    if choice is not None:
        return choice[1]
    squeezed = squeezed.rstrip("!") if _EXCLAIMED.search(squeezed) else squeezed
    if re.fullmatch(r"(?:[^\W\d_]['-])?[^\W\d_]{2,}(?:[ '-][^\W\d_]+)*", squeezed):
        return squeezed.casefold()
    if squeezed.replace(" ", "") == "\\{\\}":
        return "\\emptyset"
    squeezed = re.sub(r"\\(?:cdot|times)(?![A-Za-z]) ?", "*", squeezed)
    parts = re.split(r"(\\[A-Za-z]+ )(?=[A-Za-z])", squeezed)  # a space that ends a command stays
    return "".join(part if place % 2 else part.replace(" ", "") for place, part in enumerate(parts))
