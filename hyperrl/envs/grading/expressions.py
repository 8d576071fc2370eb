r"""Reads arithmetic written in LaTeX or plain text into an exact value.

Understood: ``+ - * / ^ !``, parentheses, ``\frac`` in every spelling, mixed numbers, ``\sqrt``,
``\binom``, ``\cdot``, ``\times``, ``\div``, ``\pi`` and implicit products. Everything else has
no value here. Length and nesting are bounded, so no text takes more than a few milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from hyperrl.envs.grading.exact import Exact, NotExactError

__all__ = ["MAX_CHARS", "MAX_DEPTH", "Value", "parse_expression", "parse_literal"]

MAX_CHARS = 1_000
"""Longest expression that is read, in characters."""

MAX_DEPTH = 40
"""Deepest nesting that is read."""

_MAX_EXPONENT = 5_000
_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,6})?|\.\d+(?:[eE][+-]?\d{1,6})?)"
    r"|(\\[a-zA-Z]+|[A-Za-z]|\*\*|[-+*/^!(){}\[\]|]))"
)
_SPELLINGS = {
    "**": "^",
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\cfrac": "\\frac",
    "\\nicefrac": "\\frac",
    "\\sfrac": "\\frac",
    "\\dbinom": "\\binom",
    "\\tbinom": "\\binom",
    "\\cdot": "*",
    "\\times": "*",
    "\\ast": "*",
    "\\div": "/",
}
_ROUNDING = {"\\lfloor": ("\\rfloor", math.floor), "\\lceil": ("\\rceil", math.ceil)}
_STARTS_FACTOR = {"(", "{", "\\frac", "\\sqrt", "\\binom", "\\pi"}


class Value(Protocol):
    """What an expression can be computed in: :class:`Exact`, or one that knows letters."""

    @classmethod
    def of(cls, value: Fraction | int) -> Self: ...
    @classmethod
    def pi(cls) -> Self: ...
    @classmethod
    def variable(cls, letter: str) -> Self: ...
    @property
    def rational(self) -> Fraction | None: ...
    def __neg__(self) -> Self: ...
    def __add__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...
    def __mul__(self, other: Self) -> Self: ...
    def __truediv__(self, other: Self) -> Self: ...
    def power(self, exponent: Self) -> Self: ...
    def root(self, degree: int) -> Self: ...
    def factorial(self) -> Self: ...
    def choose(self, count: Self) -> Self: ...


V = TypeVar("V", bound=Value)


@overload
def parse_expression(text: str) -> Exact: ...
@overload
def parse_expression(text: str, kind: type[V]) -> V: ...
def parse_expression(text: str, kind: Any = Exact) -> Any:
    """Return the value of ``text``.

    Args:
        text: arithmetic.
        kind: what it is computed in.

    Raises:
        NotExactError: it is not arithmetic, has no exact form here, or would be too large.
    """
    if len(text) > MAX_CHARS:
        raise NotExactError("expression too long")
    parser = _Parser(_tokens(text), kind)
    value = parser.sum()
    if parser.peek() is not None:
        raise NotExactError(f"unexpected {parser.peek()!r}")
    return value


def parse_literal(text: str) -> Fraction:
    """Return an unsigned decimal literal such as ``12``, ``.5`` or ``1.2e3`` as a fraction.

    Raises:
        NotExactError: its exponent is too large.
    """
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    shift = int(exponent or "0") - len(decimals)
    if abs(shift) > _MAX_EXPONENT or len(mantissa) > MAX_CHARS:
        raise NotExactError("number too large")
    digits = int((whole + decimals) or "0")
    return Fraction(digits * 10**shift) if shift >= 0 else Fraction(digits, 10**-shift)


def _tokens(text: str) -> list[str]:
    tokens, position, text = [], 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotExactError(f"unexpected {text[position : position + 10]!r}")
        token = match[1] or match[2]
        tokens.append(_SPELLINGS.get(token, token))
        position = match.end()
    return tokens


class _Parser(Generic[V]):
    """Recursive descent; ``depth`` counts open groups, signs and powers."""

    def __init__(self, tokens: list[str], kind: type[V]) -> None:
        self._tokens = tokens
        self._kind = kind
        self._at = 0
        self._depth = 0

    def peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, expected: str | None = None) -> str:
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            raise NotExactError(f"expected {expected or 'a value'!r}, found {token!r}")
        self._at += 1
        return token

    def _deeper(self, rule: Callable[[], V]) -> V:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotExactError("nested too deeply")
        value = rule()
        self._depth -= 1
        return value

    def sum(self) -> V:
        value = self._product()
        while self.peek() in {"+", "-"}:
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> V:
        value, divided = self._signed(), False
        while True:
            token = self.peek()
            if token in {"*", "/"}:
                divided = token == "/"
                value = value * self._signed() if self._take() == "*" else value / self._signed()
            elif token in _STARTS_FACTOR or (token is not None and token.isalpha()):
                if divided and (token.isalpha() or value.rational is None):
                    raise NotExactError("1/2x may mean two things")
                value = value * self._power()
            else:
                return value

    def _signed(self) -> V:
        if self.peek() == "-":
            self._take()
            return -self._deeper(self._signed)
        if self.peek() == "+":
            self._take()
            return self._deeper(self._signed)
        return self._power()

    def _power(self) -> V:
        base = self._atom()
        if self.peek() == "!":
            self._take()
            base = base.factorial()
            if self.peek() == "!":
                raise NotExactError("double factorial")
        if self.peek() != "^":
            return base
        self._take()
        return base.power(self._deeper(self._signed))

    def _atom(self) -> V:
        token = self._take()
        if token[0].isdigit() or token[0] == ".":
            return self._number(token)
        if token in {"(", "{"}:
            value = self._deeper(self.sum)
            self._take(")" if token == "(" else "}")
            return value
        if token == "\\pi":
            return self._kind.pi()
        if token.isalpha():
            return self._kind.variable(token)
        if token == "|" or token in _ROUNDING:
            return self._enclosed(token)
        return self._command(token)

    def _enclosed(self, token: str) -> V:
        """Read an absolute value, or a number rounded down or up."""
        closer, function = _ROUNDING.get(token, ("|", abs))
        value = self._deeper(self.sum).rational
        self._take(closer)
        if value is None:
            raise NotExactError("the size of an irrational number")
        return self._kind.of(function(value))

    def _number(self, token: str) -> V:
        value = self._kind.of(parse_literal(token))
        if self.peek() != "\\frac" or not token.isdigit():
            return value
        self._take()
        part = self._command("\\frac").rational
        if part is None or not 0 < part < 1:
            raise NotExactError("a number before a fraction that is not its mixed part")
        return value + self._kind.of(part)

    def _command(self, token: str) -> V:
        if token == "\\frac":
            return self._group() / self._group()
        if token == "\\binom":
            return self._group().choose(self._group())
        if token == "\\sqrt":
            return self._root()
        raise NotExactError(f"unexpected {token!r}")

    def _root(self) -> V:
        degree = 2
        if self.peek() == "[":
            self._take()
            number = self._deeper(self.sum).rational
            self._take("]")
            if number is None or number.denominator != 1:
                raise NotExactError("degree of a root")
            degree = number.numerator
        return self._group().root(degree)

    def _group(self) -> V:
        """Read a braced or parenthesised argument, or as in LaTeX a single digit."""
        token = self._take()
        if token in {"{", "("}:
            value = self._deeper(self.sum)
            self._take("}" if token == "{" else ")")
            return value
        if not token[0].isdigit():
            raise NotExactError(f"expected an argument, found {token!r}")
        if len(token) > 1:
            self._at -= 1
            self._tokens[self._at] = token[1:]
        return self._kind.of(int(token[0]))
