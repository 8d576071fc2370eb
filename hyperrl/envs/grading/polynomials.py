r"""Compares short expressions with letters exactly: ``(x+1)^2`` and ``x^2 + 2x + 1``.

A letter stands for itself, ``e`` too; only of ``i`` the square is -1. Sums, products, powers with a whole
exponent and division by one term are known; functions and everything else are left to
:mod:`~hyperrl.envs.grading.math`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from hyperrl.envs.grading.exact import Exact, NotExactError
from hyperrl.envs.grading.expressions import parse_expression

__all__ = ["MAX_DEGREE", "MAX_MONOMIALS", "Polynomial", "constant_value", "is_polynomial", "same_polynomial"]

MAX_MONOMIALS = 64
"""Most terms of a polynomial; a longer one is refused before it is computed."""

MAX_DEGREE = 32
"""Largest exponent of a letter or of a bracket."""

_MAX_TEXT_CHARS = 200
_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{3,}|l[ng](?![A-Za-z]))")
_DERIVATIVE = re.compile(r"frac\s*\{\s*d[^{}]{0,20}\}\s*\{\s*d\s*[A-Za-z]")
_ARITHMETIC = re.compile(r"(?<![\\A-Za-z])[A-Za-z].*[-+*/^\d(\\]|[-+*/^\d(\\].*[A-Za-z]")

_Monomial = tuple[tuple[str, int], ...]
_ONE: _Monomial = ()


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials; build one with :meth:`of` and :meth:`variable`.

    Attributes:
        terms: exact coefficients by monomial, which is letters in order with their exponents, never 0.
    """

    terms: dict[_Monomial, Exact]

    @classmethod
    def of(cls, value: Fraction | int) -> Polynomial:
        """Return a constant."""
        return _constant(Exact.of(value))

    @classmethod
    def pi(cls) -> Polynomial:
        """Return the number pi."""
        return _constant(Exact.pi())

    @classmethod
    def variable(cls, letter: str) -> Polynomial:
        """Return one letter."""
        return cls({((letter, 1),): Exact.of(1)})

    @property
    def rational(self) -> Fraction | None:
        """The value as a fraction; ``None`` if it has letters or is irrational."""
        constant = self.constant
        return None if constant is None else constant.rational

    @property
    def constant(self) -> Exact | None:
        """The value, if it has no letters."""
        if not self.terms:
            return Exact.of(0)
        return self.terms.get(_ONE) if len(self.terms) == 1 else None

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -value for monomial, value in self.terms.items()})

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        for monomial, value in other.terms.items():
            total[monomial] = total.get(monomial, Exact.of(0)) + value
        return _checked(total)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(self.terms) * len(other.terms) > MAX_MONOMIALS**2:
            raise NotExactError("too many terms")
        total: dict[_Monomial, Exact] = {}
        for monomial, value in self.terms.items():
            for other_monomial, other_value in other.terms.items():
                key = _multiplied(monomial, other_monomial)
                total[key] = total.get(key, Exact.of(0)) + value * other_value
        return _checked(total)

    def __truediv__(self, other: Polynomial) -> Polynomial:
        if len(other.terms) != 1:
            raise NotExactError("division by several terms or by 0")
        ((monomial, value),) = other.terms.items()
        inverse = tuple((letter, -exponent) for letter, exponent in monomial)
        return self * Polynomial({inverse: value.reciprocal()})

    def power(self, exponent: Polynomial) -> Polynomial:
        """Return the power; that of letters only with a whole exponent."""
        base, constant, times = self.constant, exponent.constant, exponent.rational
        if base is not None and constant is not None:
            return _constant(base.power(constant))
        if times is None or times.denominator != 1 or abs(times) > MAX_DEGREE:
            raise NotExactError("exponent that is no small whole number")
        factor = self if times > 0 else Polynomial.of(1) / self
        result = Polynomial.of(1)
        for _ in range(abs(times.numerator)):
            result = result * factor
        return result

    def root(self, degree: int) -> Polynomial:
        """Return the root of a constant."""
        return _constant(self._required().root(degree))

    def factorial(self) -> Polynomial:
        """Return the factorial of a constant."""
        return _constant(self._required().factorial())

    def choose(self, count: Polynomial) -> Polynomial:
        """Return the binomial coefficient of two constants."""
        return _constant(self._required().choose(count._required()))

    def without_powers_of_i(self) -> Polynomial:
        """Return it with ``i^2`` as -1."""
        total: dict[_Monomial, Exact] = {}
        for monomial, value in self.terms.items():
            powers = dict(monomial)
            turns = powers.pop("i", 0) % 4
            key = tuple(sorted([*powers.items(), *([("i", 1)] if turns % 2 else [])]))
            total[key] = total.get(key, Exact.of(0)) + (value if turns < 2 else -value)
        return _checked(total)

    def _required(self) -> Exact:
        constant = self.constant
        if constant is None:
            raise NotExactError("letters where a number must stand")
        return constant


def same_polynomial(left: str, right: str) -> bool:
    """Whether two texts are the same polynomial; ``False`` for words and for whatever is none."""
    one = _read(left)
    other = _read(right) if one is not None else None
    return one is not None and other is not None and one.terms == other.terms


def constant_value(text: str) -> Exact | None:
    """Return the value of a polynomial of which no letter is left, as of ``(1+i)(1-i)``."""
    polynomial = _read(text)
    return polynomial.constant if polynomial is not None else None


def is_polynomial(text: str) -> bool:
    """Whether ``text`` is a polynomial here, so that :func:`same_polynomial` knows what it equals."""
    return _read(text) is not None


def _read(text: str) -> Polynomial | None:
    try:
        return parse_expression(text, Polynomial).without_powers_of_i() if _is_arithmetic(text) else None
    except NotExactError:
        return None


def _is_arithmetic(text: str) -> bool:
    if len(text) > _MAX_TEXT_CHARS or _WORD.search(text) or _DERIVATIVE.search(text):
        return False
    return _ARITHMETIC.search(text) is not None


def _constant(value: Exact) -> Polynomial:
    return Polynomial({_ONE: value} if value.terms else {})


def _multiplied(left: _Monomial, right: _Monomial) -> _Monomial:
    exponents = dict(left)
    for letter, exponent in right:
        exponents[letter] = exponents.get(letter, 0) + exponent
    return tuple(sorted((letter, exponent) for letter, exponent in exponents.items() if exponent))


def _checked(terms: dict[_Monomial, Exact]) -> Polynomial:
    kept = {monomial: value for monomial, value in terms.items() if value.terms}
    if len(kept) > MAX_MONOMIALS:
        raise NotExactError("too many terms")
    if any(abs(exponent) > MAX_DEGREE for monomial in kept for _, exponent in monomial):
        raise NotExactError("exponent too large")
    return Polynomial(kept)
