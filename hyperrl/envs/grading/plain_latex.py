r"""Takes out of LaTeX what only changes how an answer looks: fonts, sizes, colours, spaces.

What is left is a small language for :mod:`~hyperrl.envs.grading.reading`: ``\textbf{4}`` and
``{\Large 4}`` become ``4``, ``\pounds`` a ``£``, ``{1 \over 2}`` a ``\frac``. Nothing here looks at values,
except that a repeating decimal becomes the fraction that it is.
"""

from __future__ import annotations

import re

__all__ = ["TEXT_COMMANDS", "plain_latex"]

TEXT_COMMANDS = (
    "text|textbf|textrm|textit|textsf|texttt|textup|textnormal|mathrm|mathbf|mathit|mathsf|mathtt"
    "|textsc|si|unit|mbox|hbox|emph|underline|boldsymbol|bm|pmb|operatorname"
)
"""Commands that set their argument in another font, as alternatives of a regular expression."""

_LOOK = (
    r"\\(?:bf|it|rm|sf|tt|bfseries|itshape|mathstrut|(?:display|text|script)style|newline|boldmath|centering"
    r"|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])\s*"
    r"|\\(?:color|textcolor)\s*\{[^{}]*\}"
    r"|\\h?phantom\s*\{[^{}]*\}|\\(?:[bB]ig{1,2}[lrm]?|checkmark|(?:black)?square|Box|qed)(?![A-Za-z])\s*"
    r"|\\\\\s*$"
)
_LOOKS = re.compile(_LOOK)
_SIGN_ALONE = re.compile(
    rf"(?:\\(?:{TEXT_COMMANDS}|mathord|mathpunct)\s*)?(?<!\\)\{{\s*(\\,|\\?[%$]|[-+.€£¥₹¢°:]|,)\s*\}}"
)
_COMMA_APART = re.compile(r"(?<=\d)\s*\{\s*,\s*\}\s*(?=\d)")
_SYMBOLS = {
    "textdollar": "\\$",
    "mathdollar": "\\$",
    "cent": "¢",
    "textcent": "¢",
    "permil": "‰",
    "textperthousand": "‰",
    "lbrack": "[",
    "rbrack": "]",
    "lbrace": "\\{",
    "rbrace": "\\}",
    "lvert": "|",
    "rvert": "|",
    "enspace": " ",
    "geqslant": "\\ge ",
    "leqslant": "\\le ",
    "geq": "\\ge ",
    "leq": "\\le ",
    "neq": "\\ne ",
    "varnothing": "\\emptyset ",
    "pounds": "£",
    "euro": "€",
    "texteuro": "€",
    "yen": "¥",
    "degree": "°",
    "textdegree": "°",
    "percent": "%",
    "thinspace": " ",
    "nobreakspace": " ",
    "minus": "-",
    "not=": "\\ne ",
    "colon": ":",
    "lt": "<",
    "gt": ">",
}
_GROUPED_IN_BRACES = re.compile(
    r"(?<!\\)\{\s*(\d{1,3}(?:(?:,|\\[,;:! ]|\s)\d{3})+)(\.\d*)?\s*\}"  # \frac{1,000}{3}
)
_AND_IN_UNIT = re.compile(rf"\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]{{0,40}}?[^{{}}\s])\s+(and|or)\s*\}}")
_SYMBOL = re.compile(rf"\\({'|'.join(_SYMBOLS)})(?![A-Za-z])(?:\{{\}})?")
_SPACE = re.compile(r"\\(?:[hm]space\*?|kern)\s*\{[^{}]*\}")
_SIUNITX = re.compile(r"\\(?:SI|qty|ang)\s*\{([^{}]*)\}(?:\s*\{([^{}]*)\})?")
_NUMBER_IN_FONT = re.compile(rf"\\(?:{TEXT_COMMANDS}|num)\s*\{{\s*([-+−]?\d[\d.,]*(?:[eE][-+]?\d+)?)\s*\}}")
_EXPONENT_IN_FONT = re.compile(rf"(?<=\d)\s*\\(?:{TEXT_COMMANDS})\s*\{{\s*([eExX])\s*\}}\s*(?=[-+]?\d)")
_SIGN_WORD = re.compile(rf"\\(?:{TEXT_COMMANDS})\s*\{{\s*(minus|negative)\s*\}}", re.IGNORECASE)
_NOTHING = re.compile(rf"\\(?:{TEXT_COMMANDS})\s*\{{\s*\}}")
_ORDINAL = re.compile(
    rf"(?<=\d)\s*\^\s*(?:(st|nd|rd|th)\b|\{{\s*(?:\\(?:{TEXT_COMMANDS})\s*\{{\s*)?(st|nd|rd|th)\s*\}}{{1,2}})"
)
_INFIX = re.compile(r"\{([^{}]*)\\(over|choose)(?![A-Za-z])([^{}]*)\}")
_INFIX_COMMANDS = {"over": "\\frac", "choose": "\\binom"}
_UNIT_FRACTION = re.compile(
    rf"\\frac\s*\{{\s*\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]*)\}}\s*\}}"
    rf"\s*\{{\s*\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]*)\}}\s*\}}"
)
_UNIT_RATIO = re.compile(
    rf"\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]*)\}}\s*/\s*\\(?:{TEXT_COMMANDS})\s*\{{([^{{}}]*)\}}"
)
_DOTTED = re.compile(r"\\dot\s*\{?(\d)\}?(\d{0,20})\\dot\s*\{?(\d)\}?")
_REPEATING = re.compile(r"(\d{0,20})\.(\d{0,20})\\(?:overline|bar|dot)\s*(?:\{(\d{1,20})\}|(\d))")


def plain_latex(text: str) -> str:
    """Return ``text`` without commands that only change its look."""
    if "\\" not in text and "{" not in text:
        return text
    text = _COMMA_APART.sub(",", _LOOKS.sub("", text))
    text = _NOTHING.sub(" ", _SPACE.sub(" ", _SIGN_ALONE.sub(r"\1", text)))
    text = _SIUNITX.sub(_with_unit, text)
    text = _SYMBOL.sub(lambda found: _SYMBOLS[found[1]], text)
    text = _GROUPED_IN_BRACES.sub(_ungrouped, _AND_IN_UNIT.sub(r"\\text{\1} \2 ", text))
    text = _NUMBER_IN_FONT.sub(r"\1", _EXPONENT_IN_FONT.sub(r"\1", text))
    text = _ORDINAL.sub(lambda found: found[1] or found[2], _SIGN_WORD.sub(r"\1 ", text))
    text = _UNIT_RATIO.sub(r"\\text{\1/\2}", _UNIT_FRACTION.sub(r"\\text{\1/\2}", text))
    if "\\over" in text or "\\choose" in text:
        text = _INFIX.sub(_prefix, f"{{{text}}}")
    return _REPEATING.sub(_fraction, _DOTTED.sub(r"\\overline{\1\2\3}", text))


def _with_unit(found: re.Match[str]) -> str:
    unit = (found[2] or "°").replace("\\per", " per ").replace("\\", "")
    return f"{found[1]} \\text{{{unit}}}" if found[2] else f"{found[1]}{unit}"


def _ungrouped(number: re.Match[str]) -> str:
    return "{" + re.sub(r"\D", "", number[1]) + (number[2] or "") + "}"


def _prefix(infix: re.Match[str]) -> str:
    return f"{_INFIX_COMMANDS[infix[2]]}{{{infix[1]}}}{{{infix[3]}}}"


def _fraction(decimal: re.Match[str]) -> str:
    r"""Return ``0.1\overline{6}`` as ``(15/90)``."""
    whole, fixed, repeated = decimal[1], decimal[2], decimal[3] or decimal[4]
    above = int(whole + fixed + repeated) - int(whole + fixed or "0")
    return f"({above}/{(10 ** len(repeated) - 1) * 10 ** len(fixed)})"
