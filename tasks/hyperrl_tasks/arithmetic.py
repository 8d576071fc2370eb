"""Arithmetic as policies write it: exact values of expressions, and no way to run anything else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["MAX_BITS", "MAX_EXPRESSION_CHARS", "Expression", "ExpressionError", "read_expression"]

MAX_EXPRESSION_CHARS = 200
"""Longest expression that is read, in characters."""

MAX_BITS = 4_096
"""Most bits of a numerator or denominator; what would be larger is refused before it is computed."""

_DECIMAL = re.compile(r"\d+\.?\d*|\.\d+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "$": ""})


class ExpressionError(ValueError):
    """The expression has no value; the message is for the policy to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """What an arithmetic expression says.

    Attributes:
        value: its exact value.
        numbers: the numbers that are written in it, from left to right.
        operators: the operators that it uses, such as ``*``; a sign counts as one.
    """

    value: Fraction
    numbers: tuple[Fraction, ...]
    operators: frozenset[str]


def read_expression(expression: str) -> Expression:
    """Read an arithmetic expression and compute its exact value.

    Understood are integers and decimals, ``+ - * / // % **`` (also ``^``, ``×``, ``÷``), signs and
    parentheses.

    Raises:
        ExpressionError: it is not such an expression, divides by zero, or would be too large.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise ExpressionError(
            f"the expression has {len(expression)} characters; at most {MAX_EXPRESSION_CHARS} are allowed"
        )
    text = _THOUSANDS.sub("", expression.translate(_SPELLINGS)).strip()
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{expression!r} is not an arithmetic expression such as (3 + 4) * 2") from None
    reader = _Reader(text)
    value = reader.value(tree.body)
    return Expression(value=value, numbers=tuple(reader.numbers), operators=frozenset(reader.operators))


class _Reader:
    """Computes the value of a syntax tree and notes what it is made of."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.numbers: list[Fraction] = []
        self.operators: set[str] = set()

    def value(self, node: ast.expr) -> Fraction:
        if isinstance(node, ast.Constant):
            self.numbers.append(_literal(self._source(node)))
            return self.numbers[-1]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            negative = isinstance(node.op, ast.USub)
            self.operators.add("-" if negative else "+")
            value = self.value(node.operand)
            return -value if negative else value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            symbol, operate = _OPERATIONS[type(node.op)]
            self.operators.add(symbol)
            return _checked(operate(self.value(node.left), self.value(node.right)))
        raise ExpressionError(
            f"{self._source(node)!r} is not allowed: use numbers, + - * / // % ** and parentheses"
        )

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ""


def _literal(digits: str) -> Fraction:
    if not _DECIMAL.fullmatch(digits):
        raise ExpressionError(f"{digits!r} is not a decimal number")
    return Fraction(digits)


def _divide(left: Fraction, right: Fraction) -> Fraction:
    return left / _divisor(right)


def _floor_divide(left: Fraction, right: Fraction) -> Fraction:
    return Fraction(left // _divisor(right))


def _modulo(left: Fraction, right: Fraction) -> Fraction:
    return left % _divisor(right)


def _divisor(value: Fraction) -> Fraction:
    if not value:
        raise ExpressionError("division by zero")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ExpressionError(f"the exponent {exponent} is not a whole number")
    if not base and exponent < 0:
        raise ExpressionError("division by zero")
    size = max(abs(base.numerator), base.denominator).bit_length()
    if size * abs(exponent.numerator) > MAX_BITS and abs(base) != 1:
        raise ExpressionError("the result is too large")
    return base ** (exponent.numerator % 2 if abs(base) == 1 else exponent.numerator)


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError("the result is too large")
    return value


_OPERATIONS: dict[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", Fraction.__add__),
    ast.Sub: ("-", Fraction.__sub__),
    ast.Mult: ("*", Fraction.__mul__),
    ast.Div: ("/", _divide),
    ast.FloorDiv: ("//", _floor_divide),
    ast.Mod: ("%", _modulo),
    ast.Pow: ("**", _power),
}
