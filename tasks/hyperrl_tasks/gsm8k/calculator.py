"""An exact calculator for policies: fractions instead of floats, and no way to run anything else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction

__all__ = ["MAX_BITS", "MAX_EXPRESSION_CHARS", "CalculatorError", "calculate"]

MAX_EXPRESSION_CHARS = 200
"""Longest expression that is read, in characters."""

MAX_BITS = 4_096
"""Most bits of a numerator or denominator; what would be larger is refused before it is computed."""

_DECIMAL = re.compile(r"\d+\.?\d*|\.\d+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "$": ""})
_MAX_DECIMALS = 12


class CalculatorError(ValueError):
    """The expression has no value; the message is for the policy to read."""


def calculate(expression: str) -> str:
    """Return the exact value of an arithmetic expression as text.

    Understood are integers and decimals, ``+ - * / // % **`` (also ``^``, ``×``, ``÷``), signs and
    parentheses. A value that is no finite decimal is given as a fraction with an approximation, such
    as ``1/3 (about 0.333333)``.

    Raises:
        CalculatorError: it is not such an expression, divides by zero, or would be too large.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise CalculatorError(
            f"the expression has {len(expression)} characters; at most {MAX_EXPRESSION_CHARS} are allowed"
        )
    text = _THOUSANDS.sub("", expression.translate(_SPELLINGS)).strip()
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CalculatorError(f"{expression!r} is not an arithmetic expression such as (3 + 4) * 2") from None
    return _written(_value(tree.body, text))


def _value(node: ast.expr, text: str) -> Fraction:
    if isinstance(node, ast.Constant):
        return _literal(ast.get_source_segment(text, node) or "")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _value(node.operand, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        operate = _OPERATIONS.get(type(node.op))
        if operate is not None:
            return _checked(operate(_value(node.left, text), _value(node.right, text)))
    part = ast.get_source_segment(text, node)
    raise CalculatorError(f"{part!r} is not allowed: use numbers, + - * / // % ** and parentheses")


def _literal(digits: str) -> Fraction:
    if not _DECIMAL.fullmatch(digits):
        raise CalculatorError(f"{digits!r} is not a decimal number")
    return Fraction(digits)


def _divide(left: Fraction, right: Fraction) -> Fraction:
    return left / _divisor(right)


def _floor_divide(left: Fraction, right: Fraction) -> Fraction:
    return Fraction(left // _divisor(right))


def _modulo(left: Fraction, right: Fraction) -> Fraction:
    return left % _divisor(right)


def _divisor(value: Fraction) -> Fraction:
    if not value:
        raise CalculatorError("division by zero")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise CalculatorError(f"the exponent {exponent} is not a whole number")
    if not base and exponent < 0:
        raise CalculatorError("division by zero")
    size = max(abs(base.numerator), base.denominator).bit_length()
    if size * abs(exponent.numerator) > MAX_BITS and abs(base) != 1:
        raise CalculatorError("the result is too large")
    return base ** (exponent.numerator % 2 if abs(base) == 1 else exponent.numerator)


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise CalculatorError("the result is too large")
    return value


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    scaled = value * 10**_MAX_DECIMALS
    if scaled.denominator == 1:
        whole, decimals = divmod(abs(scaled.numerator), 10**_MAX_DECIMALS)
        sign = "-" if value < 0 else ""
        return f"{sign}{whole}." + f"{decimals:0{_MAX_DECIMALS}d}".rstrip("0")
    rounded = round(value, 6)
    return f"{value.numerator}/{value.denominator} (about {_written(rounded)})"


_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: Fraction.__add__,
    ast.Sub: Fraction.__sub__,
    ast.Mult: Fraction.__mul__,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
}
