"""Tells a unit from the number before it, and one spelling of a unit from another unit."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from hyperrl.envs.grading.plain_latex import TEXT_COMMANDS

__all__ = ["canonical_unit", "is_currency", "split_scale", "split_unit"]

_DEGREE = re.compile(
    rf"(?:\^\s*(?:\{{\s*\\circ\s*\}}|\\circ)|°)\s*(?:(?:\\(?:{TEXT_COMMANDS})\s*)?\{{?\s*([CF])\s*\}}?)?\s*$"
)
_POWER = r"(?:\s*\^\s*\{?-?[123]\}?)?"
_IN_TEXT = re.compile(rf"\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]{{1,60}})\}}({_POWER})\s*$")
_IN_WORDS = re.compile(
    rf"(?<=[\d)}}.!])(\s*)([^\W\d_][^\W\d_/.' -]*(?:{_POWER}[ /.'-]+[^\W\d_]+)*\.?{_POWER})\s*$"
)
_SYMBOL = re.compile(r"\s*(\\?\$|[€£¥₹¢₩₽₺₫₱₪฿₦‰Ω]|\\Omega|(?<=\d)(?:''|[\"']))\s*$")
_REMARK = re.compile(r"(?<=[\d)}%])\s+[(\[]([^\W\d_]{2,}(?:[ '-][^\W\d_]+)*\.?)[)\]]\s*$")
_MODULUS = re.compile(r"\s*(?:\\pmod\s*\{?\s*(\d{1,9})\s*\}?|\((?:\\?mod|\\bmod)\s*(\d{1,9})\))\s*$")
_TEXT_PRODUCT = re.compile(
    rf"(\\(?:{TEXT_COMMANDS})\s*\{{[^{{}}]{{1,20}})\}}({_POWER})\s*(?:\*|\\cdot(?![A-Za-z]))?\s*"
    rf"\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]{{1,20}})\}}"
)
_CURRENCIES = frozenset("$€£¥₹¢₩₽₺₫₱₪฿₦")
_MAX_WORDS = 5

_NO_UNIT_WORDS = (
    "or and not no nor plus minus over half halves third thirds quarter quarters hundred hundreds to"
    " through from out negative is was maybe if mod sin cos tan log ln exp pi sqrt oo inf infinity i"
)
_SCALES: dict[str, Fraction | int] = {
    "‰": Fraction(1, 1000),
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_SPELLINGS = {
    "$": "\\$ us$ us\\$ dollar usd buck",
    "¢": "cent",
    "€": "euro eur",
    "£": "gbp",
    "₹": "rs rs. inr rupee",
    "¥": "jpy cny rmb yen yuan 円 元",
    "Ω": "\\omega ω ohm",
    "°": "degree deg",
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inche \" ''",
    "ft": "foot feet '",
    "yd": "yard",
    "mi": "mile",
    "mg": "milligram",
    "g": "gram",
    "kg": "kilogram kilo",
    "oz": "ounce",
    "lb": "lbs pound",
    "ml": "milliliter millilitre",
    "l": "liter litre",
    "s": "sec secs second",
    "min": "mins minute",
    "h": "hr hrs hour",
    "km/h": "kph kmh",
    "mi/h": "mph",
    "th": "st nd rd",
}
_PHRASES = {"° celsius": "°c", "° fahrenheit": "°f", "each": "", "total": "", "in total": ""}
_CANONICAL = _PHRASES | {word: unit for unit, words in _SPELLINGS.items() for word in words.split()}
_PER = re.compile(r"\s*/\s*|\s+per\s+")
_RAISED = re.compile(r"(?:(square|sq|cubic|cu)\b\.?\s*)?(.*?)(?:\s*\^\s*\{?([23])\}?)?")
_RAISED_WORDS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}
_SHORT_WORDS = (
    "m g s h l mm cm km in ft yd mi mg kg oz lb lbs ml hr hrs min mins sec am pm mph kph kmh st nd rd th"
    " deg nm dm hz khz mhz kj kw kwh pa kpa mol ev rad"
)
_CAPITAL_UNITS = frozenset("NJWV")
_VARIABLES = frozenset("xyznek")
_EAST_ASIAN_NUMERALS = frozenset("一二三四五六七八九十百千万萬亿億兆半分点點만억조")
_NOT_UNITS = frozenset(_NO_UNIT_WORDS.split())
_SHORT_UNITS = frozenset(_SHORT_WORDS.split())
_A_UNIT = "|".join([*_CAPITAL_UNITS, *_SHORT_UNITS, "kW", "Hz", "Pa", "A"])
_PRODUCT = re.compile(
    rf"(?<![^\W\d_])((?:{_A_UNIT}){_POWER})\s*(?:\*|\\cdot(?![A-Za-z]))\s*(?=(?:{_A_UNIT})(?![^\W\d_]))"
)


def split_unit(text: str) -> tuple[str, str]:
    """Return the number part of ``text`` and its unit as written (empty if it has none)."""
    modulus = _MODULUS.search(text)
    if modulus is not None:
        return text[: modulus.start()].rstrip(), f"mod {modulus[1] or modulus[2]}"
    text = _PRODUCT.sub(r"\1 ", _TEXT_PRODUCT.sub(r"\1\2 \3}", _TEXT_PRODUCT.sub(r"\1\2 \3}", text)))
    degree = _DEGREE.search(text)
    if degree is not None:
        return text[: degree.start()].rstrip(), "°" + (degree[1] or "")
    remark = _REMARK.search(text)
    if remark is not None and _is_unit(remark[1]):
        return text[: remark.start()], remark[1]
    symbol = _SYMBOL.search(text)
    if symbol is not None:
        return text[: symbol.start()], symbol[1]
    boxed = _IN_TEXT.search(text)
    if boxed is not None:
        unit = boxed[1].strip() + boxed[2]
        return (text[: boxed.start()].rstrip("\\ "), unit) if _is_unit(boxed[1]) else (text, "")
    if not text.isascii():  # vowel signs and accents that stand apart
        text = "".join(char for char in text if not unicodedata.category(char).startswith("M"))
    words = _IN_WORDS.search(text)
    if words is None or not _is_unit(words[2]) or not _stands_apart(words[1], words[2]):
        return text, ""
    return text[: words.start()], words[2]


def split_scale(unit: str) -> tuple[Fraction | int, str]:
    """Return the factor that a unit such as ``million dollars`` begins with (else 1) and its rest."""
    first, _, rest = unit.partition(" ")
    scale = _SCALES.get(first.casefold())
    return (1, unit) if scale is None else (scale, rest.strip())


def canonical_unit(unit: str) -> str:
    """Return one spelling for all spellings of a unit: lower case, singular, abbreviated."""
    return "/".join(map(_canonical, _PER.split(unit.casefold()))) if unit else ""


def is_currency(unit: str) -> bool:
    """Whether a canonical unit is money."""
    return unit in _CURRENCIES


def _canonical(unit: str) -> str:
    raised = _RAISED.fullmatch(unit)
    word, unit, power = raised.groups() if raised is not None else (None, unit, None)
    unit = " ".join(_one_spelling(part) for part in re.split(r"[\s.]+", unit) if part)
    power = _RAISED_WORDS.get(word or "", power)
    return _CANONICAL.get(unit, unit) + (f"^{power}" if power else "")


def _one_spelling(word: str) -> str:
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us"))
    word = word[:-1] if plural else word
    return _CANONICAL.get(word, word)


def _is_unit(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+", text.casefold())
    if text.strip() in _VARIABLES:
        return False
    if "times" in words and words != ["times"]:
        return False
    return 0 < len(words) <= _MAX_WORDS and not _NOT_UNITS.intersection(words)


def _stands_apart(space: str, unit: str) -> bool:
    """``5 apples`` and ``5cm`` have units; ``5x``, ``5 x`` and ``5ab`` are products of variables."""
    first = re.split(r"[\s^.]", unit)[0]
    if first.casefold() in _SHORT_UNITS or "\u3040" <= first[:1] <= "\ud7a3":
        return not _EAST_ASIAN_NUMERALS.intersection(first)
    return bool(space) and (len(first) > 1 or first in _CAPITAL_UNITS)
