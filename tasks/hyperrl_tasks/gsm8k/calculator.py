"""An exact calculator for policies: fractions instead of floats, and no way to run anything else."""

from __future__ import annotations

from fractions import Fraction

from hyperrl_tasks.arithmetic import read_expression

__all__ = ["calculate"]

_MAX_DECIMALS = 12


def calculate(expression: str) -> str:
    """Return the exact value of an arithmetic expression as text.

    Understood is what :func:`~hyperrl_tasks.arithmetic.read_expression` reads. A value that is no
    finite decimal is given as a fraction with an approximation, such as ``1/3 (about 0.333333)``.

    Raises:
        ExpressionError: it is not such an expression, divides by zero, or would be too large.
    """
    return _written(read_expression(expression).value)


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
