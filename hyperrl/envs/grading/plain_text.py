r"""Writes the characters that people and models use for mathematics in one way.

Digits of every script become ``0-9``, the many minus signs ``-``, the many spaces a space, vulgar
fractions and superscripts their plain spelling. Nothing here looks at meaning.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["plain_text"]

_GREEK = ["alpha", "beta", "gamma", "delta", "theta", "lambda", "sigma", "phi", "omega"]
_SPECIAL = {
    **dict.fromkeys("−‐‑‒–—﹣－⁻", "-"),
    **dict.fromkeys("×∙·⋅✕✖", "*"),
    **dict.fromkeys("÷⁄∕", "/"),
    **dict.fromkeys("\u00a0\u1680\u202f\u205f\u3000\t\n\r\v\f", " "),
    **dict.fromkeys((chr(code) for code in range(0x2000, 0x200B)), " "),
    **dict.fromkeys("’‘ʼ′＇", "'"),
    **dict.fromkeys("٫", "."),
    **dict.fromkeys("٬，、", ","),
    **dict.fromkeys("٪﹪％", "%"),
    **dict.fromkeys("“”„‟«»″＂", '"'),
    **dict.fromkeys("≈≃≅", "\\approx "),
    "￠": "¢",
    "￡": "£",
    "￥": "¥",
    "￦": "₩",
    "±": "\\pm ",
    "℃": "°C",
    "℉": "°F",
    "⁺": "+",
    "º": "°",
    "˚": "°",
    "∞": "\\infty ",
    "π": "\\pi ",
    "√": "\\sqrt ",
    "。": ".",
    "≥": "\\ge ",
    "≤": "\\le ",
    "≠": "\\ne ",
    "∪": "\\cup ",
    "∩": "\\cap ",
    "∈": "\\in ",
    "∅": "\\emptyset ",
    "…": "...",
    "⌊": "\\lfloor ",
    "⌋": "\\rfloor ",
    "⌈": "\\lceil ",
    "⌉": "\\rceil ",
    "∓": "\\mp ",
    "≡": "\\equiv ",
    "∶": ":",
    "∴": "\\therefore ",
    "⇒": "\\Rightarrow ",
    "⟨": "\\langle ",
    "⟩": "\\rangle ",
    "∛": "\\sqrt[3]",
    "ℝ": "\\mathbb{R}",
    "ℤ": "\\mathbb{Z}",
    "ℕ": "\\mathbb{N}",
    "ℚ": "\\mathbb{Q}",
    **{letter: f"\\{name} " for letter, name in zip("αβγδθλσφω", _GREEK, strict=True)},
    **dict.fromkeys("✓✔✅\ufe0f", ""),
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))
_RAISED = _SUPERSCRIPTS | {"⁻": "-", "⁺": "+"}
_SMALL_FRACTION = re.compile(r"[⁰¹²³⁴-⁹]{1,20}[⁄/][₀-₉]{1,20}")
_BARRED = re.compile("(?:\\d[\u0304\u0305])+")
_BARS = re.compile("[\u0304\u0305]")
_ROOT = re.compile(r"([√∛])\s*(\d+(?:\.\d+)?)")
_SUBSCRIPT_RUN = re.compile("[₀-₉]+")
_SUPERSCRIPT_RUN = re.compile(f"[⁻⁺]?[{''.join(_SUPERSCRIPTS)}]+")


def plain_text(text: str) -> str:
    """Return ``text`` with its special characters in their plain spelling."""
    if text.isascii():
        return text.translate(_ASCII_SPACES)
    text = _SMALL_FRACTION.sub(lambda small: unicodedata.normalize("NFKC", small[0]), text)
    text = _BARRED.sub(lambda run: "\\overline{" + _BARS.sub("", run[0]) + "}", text)
    text = _ROOT.sub(r"\1{\2}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + unicodedata.normalize("NFKC", run[0]) + "}", text)
    raised = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + "".join(_RAISED[c] for c in run[0]) + "}", text)
    return "".join(map(_plain, raised))


_ASCII_SPACES = str.maketrans("\t\n\r\v\f", "     ")


def _plain(char: str) -> str:
    if char.isascii():
        return " " if char.isspace() else char
    special = _SPECIAL.get(char)
    if special is not None:
        return special
    digit = unicodedata.decimal(char, None)
    if digit is not None:
        return str(digit)
    if "！" <= char <= "～":  # the full-width forms of ASCII
        return chr(ord(char) - 0xFEE0)
    category = unicodedata.category(char)
    if category == "Cf":  # marks of direction, joiners and other characters that nobody sees
        return ""
    return _number_sign(char) if category == "No" else char


def _number_sign(char: str) -> str:
    """Return ``½`` as `` 1/2``, ``④`` as ``4``."""
    parts = unicodedata.normalize("NFKC", char).split("⁄")
    if len(parts) == 2 and all(part.isdecimal() for part in parts):
        return f" {parts[0]}/{parts[1]}"
    return parts[0] if parts[0].isdecimal() else char
