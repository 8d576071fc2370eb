"""Reads a number as people write it: thousands marks, currency, percent, units, mixed numbers.

A :class:`Quantity` keeps the exact value apart from what stands around it, so that a comparison can
decide what a percent sign or a unit means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from hyperrl.envs.grading.exact import Exact, NotExactError
from hyperrl.envs.grading.expressions import parse_expression, parse_literal
from hyperrl.envs.grading.plain_latex import TEXT_COMMANDS
from hyperrl.envs.grading.units import canonical_unit, is_currency, split_scale, split_unit

__all__ = ["Quantity", "read_number", "read_quantity"]

_EXPONENT = r"(?:[eE][+-]?\d{1,6})?"
_PLAIN = re.compile(rf"([+-]?)(\d+\.?\d*{_EXPONENT}|\.\d+{_EXPONENT})")
_GROUPED = (
    re.compile(r"([+-]?)([1-9]\d{0,2}([,' _])\d{3}(?:\3\d{3})*)(\.\d*)?"),  # 1,234,567.8  1 234  1'234
    re.compile(r"([+-]?)([1-9]\d{0,2}([' ])\d{3}(?:\3\d{3})*)(,(?:\d\d?|\d{4,}))"),  # 1 234,5
    re.compile(r"([+-]?)([1-9]\d?(?:(,)\d{2})+,\d{3})(\.\d*)?"),  # 12,34,567.8
    re.compile(r"([+-]?)([1-9]\d{0,2}(?:(\.)\d{3})+)(,\d+)"),  # 1.234,5
    re.compile(r"([+-]?)([1-9]\d{0,2}(?:(\.)\d{3}){2,})(,\d+)?"),  # 1.234.567
)
_MIXED = re.compile(r"([+-]?)(\d{1,30})(?:\s+(?:and\s+)?|-)(\d{1,30})\s*/\s*(\d{1,30})")
_RATIO = re.compile(r"([+-]?)(\d{1,30}) ?/ ?(\d{1,30})")
_GROUPED_ARITHMETIC = re.compile(
    r"(?!\d+\s?/)(?:[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?\s*(?:[-+*/]|\\times|\\cdot|\\div|$)\s*){2,9}"
)
_PERCENT_BEFORE = re.compile(r"^([+-]?)\\?%\s?(?=[\d.])")
_PERCENT = re.compile(
    rf"(?:\s*\\?%|\s*(?:\\(?:{TEXT_COMMANDS})\s*\{{\s*)?(?:percent(?:age points?)?|per cent)\.?\s*\}}?)$",
    re.IGNORECASE,
)
_SLASH_UNIT = re.compile(r"(?<=\d)\s*/\s*(?=[^\W\d_]{2,}\.?$)")
_EACH = re.compile(r"(?:per\s+|/\s*|an?\s+|each\s+)(?=\S)", re.IGNORECASE)
_CURRENCY = re.compile(
    r"([+-]?)\s*((?:US|CA|AU|NZ|HK|SG|[ACSR])?\\?\$|[€£¥₹¢₩₽₺₫₱₪฿₦]"
    r"|(?:USD|EUR|GBP|JPY|CNY|RMB|INR|CAD|AUD|CHF)(?![A-Za-z])|(?:Rs|RS|Fr)\b\.?)\s*"
)
_SUFFIX = re.compile(r"(?<=\d)\s?(k|K|M|B|bn)$")
_SUFFIXES = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "bn": 10**9}
_MAX_DIGITS = 1_000


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and what stands around it.

    Attributes:
        value: the exact number as written (25 for ``25%``).
        percent: a percent sign or word follows it.
        unit: its unit in one spelling (see :func:`~hyperrl.envs.grading.units.canonical_unit`).
    """

    value: Exact
    percent: bool = False
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.value}{'%' if self.percent else ''}{' ' if self.unit else ''}{self.unit}"


def read_number(text: str) -> Fraction | None:
    """Return a bare number: decimal, with thousands marks, a fraction or mixed; ``None`` if it is not one."""
    match = _PLAIN.fullmatch(text)
    if match is not None:
        return _signed(match[1], match[2])
    match = _RATIO.fullmatch(text)
    if match is not None:
        return Fraction(int(match[1] + match[2]), int(match[3])) if int(match[3]) else None
    for pattern in _GROUPED:
        match = pattern.fullmatch(text)
        if match is not None:
            decimals = (match[4] or "").replace(",", ".")
            return _signed(match[1], match[2].replace(match[3], "") + decimals)
    match = _MIXED.fullmatch(text)
    return _mixed(*match.groups()) if match is not None else None


def read_quantity(text: str) -> Quantity | None:
    """Return the number that ``text`` is, with its percent sign or unit; ``None`` if it is not one."""
    bare = _PERCENT.sub("", text, count=1)
    bare = _PERCENT_BEFORE.sub(r"\1", text, count=1) if bare == text else bare
    percent, unit = bare != text, ""
    currency, bare, scale = _split_currency(bare)
    bare = _SLASH_UNIT.sub(" per ", bare) if currency else bare
    if not percent:
        bare, unit = split_unit(bare)
    factor, unit = split_scale(unit)
    each = _EACH.match(unit) if currency else None
    if each is not None:  # $5 per week
        currency, unit = f"{currency}/{canonical_unit(unit[each.end() :])}", ""
    unit = canonical_unit(unit)
    if currency and is_currency(unit) and unit != currency:
        return None
    value = _read_value(bare)
    if value is None:
        return None
    return Quantity(value=value * Exact.of(scale * factor), percent=percent, unit=currency or unit)


def _split_currency(text: str) -> tuple[str, str, int]:
    """Return the currency before a number, the number, and the factor of a suffix as in ``$1.5M``."""
    found = _CURRENCY.match(text)
    if found is None:
        return "", text, 1
    bare, scale = found[1] + text[found.end() :], 1
    suffix = _SUFFIX.search(bare)
    if suffix is not None:
        bare, scale = bare[: suffix.start()], _SUFFIXES[suffix[1]]
    return canonical_unit(found[2]), bare, scale


def _read_value(text: str) -> Exact | None:
    number = read_number(text)
    if number is None and "," in text and _GROUPED_ARITHMETIC.fullmatch(text):
        text = text.replace(",", "")  # 1,000 + 234
    try:
        return Exact.of(number) if number is not None else parse_expression(text)
    except NotExactError:
        return None


def _mixed(sign: str, whole: str, top: str, bottom: str) -> Fraction | None:
    if not 0 < int(top) < int(bottom):
        return None
    value = int(whole) + Fraction(int(top), int(bottom))
    return -value if sign == "-" else value


def _signed(sign: str, digits: str) -> Fraction | None:
    if len(digits) > _MAX_DIGITS:
        return None
    try:
        value = Fraction(int(digits)) if digits.isdigit() else parse_literal(digits)
    except NotExactError:
        return None
    return -value if sign == "-" else value
