"""Exact real numbers: sums of rational multiples of square roots and powers of pi.

A value is kept as ``{(radicand, pi_power): coefficient}`` with square-free radicands, so two values
are equal exactly if their terms are. Nothing here is a float, and nothing can run away: every result
is held to :data:`MAX_BITS` per integer and :data:`MAX_TERMS` terms *before* it is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["MAX_BITS", "MAX_TERMS", "Exact", "NotExactError"]

MAX_BITS = 20_000
"""Most bits of a numerator or denominator; a larger one is refused before it is computed."""

MAX_TERMS = 16
"""Most terms of a sum of square roots."""

_MAX_FACTORIAL = 2_100
_MAX_RADICAND = 10**12
_PI_DIGITS = Fraction("3.1415926535897932384626433832795028841971")

_Key = tuple[int, int]


class NotExactError(ValueError):
    """A value has no exact form here, or would be too large."""


@dataclass(frozen=True, slots=True)
class Exact:
    """An exact value; build one with :meth:`of`.

    Attributes:
        terms: coefficients by (square-free radicand, power of pi); no coefficient is 0.
    """

    terms: dict[_Key, Fraction]

    @classmethod
    def of(cls, value: Fraction | int) -> Exact:
        """Return a rational value."""
        if not value:
            return cls({})
        return cls({(1, 0): value if isinstance(value, Fraction) else Fraction(value)})

    @classmethod
    def pi(cls) -> Exact:
        """Return the number pi."""
        return cls({(1, 1): Fraction(1)})

    @classmethod
    def variable(cls, letter: str) -> Exact:
        """Raise NotExactError: a letter has no value here."""
        raise NotExactError(f"the letter {letter}")

    @property
    def rational(self) -> Fraction | None:
        """The value as a fraction; ``None`` if it is irrational."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get((1, 0)) if len(self.terms) == 1 else None

    def __str__(self) -> str:
        return " + ".join(_term(*key, value) for key, value in self.terms.items()) or "0"

    def is_near(self, number: Fraction, within: Fraction) -> bool:
        """Whether it differs from ``number`` by at most ``within``, judged by its first forty digits."""
        value = sum(
            (factor * _root_digits(root) * _PI_DIGITS**power for (root, power), factor in self.terms.items()),
            Fraction(0),
        )
        return abs(value - number) <= within

    def __neg__(self) -> Exact:
        return Exact({key: -value for key, value in self.terms.items()})

    def __add__(self, other: Exact) -> Exact:
        total = dict(self.terms)
        for key, value in other.terms.items():
            total[key] = total.get(key, Fraction(0)) + value
        return _checked(total)

    def __sub__(self, other: Exact) -> Exact:
        return self + -other

    def __mul__(self, other: Exact) -> Exact:
        if len(self.terms) * len(other.terms) > MAX_TERMS**2:
            raise NotExactError("too many terms")
        total: dict[_Key, Fraction] = {}
        for (root, power), value in self.terms.items():
            for (other_root, other_power), other_value in other.terms.items():
                # sqrt(a) * sqrt(b) = gcd * sqrt(a/gcd * b/gcd) for square-free a and b
                shared = math.gcd(root, other_root)
                key = ((root // shared) * (other_root // shared), power + other_power)
                total[key] = total.get(key, Fraction(0)) + value * other_value * shared
        return _checked(total)

    def __truediv__(self, other: Exact) -> Exact:
        return self * other.reciprocal()

    def reciprocal(self) -> Exact:
        """Return 1 divided by the value: of one term, or of a rational plus one square root."""
        if not self.terms:
            raise NotExactError("division by zero")
        if len(self.terms) == 1:
            (((root, power), value),) = self.terms.items()
            return _checked({(root, -power): 1 / (value * root)})
        whole, surd = self.terms.get((1, 0)), [item for item in self.terms.items() if item[0] != (1, 0)]
        if whole is None or len(surd) != 1 or surd[0][0][1] != 0:
            raise NotExactError("division by a sum of several roots")
        (root, _), value = surd[0]
        norm = whole * whole - value * value * root
        return _checked({(1, 0): whole / norm, (root, 0): -value / norm})

    def power(self, exponent: Exact) -> Exact:
        """Raise to an integer, a half, or a fraction whose root comes out even; refuses what is too large."""
        number = exponent.rational
        if number is None:
            raise NotExactError("irrational power")
        if number.denominator > 2 and (self.rational is None or self.rational < 0):
            raise NotExactError("root of a negative or irrational number")
        if number.denominator > 1:
            return self.root(number.denominator).power(Exact.of(number.numerator))
        if number < 0:
            return self.reciprocal().power(Exact.of(-number))
        return self._repeated(number.numerator)

    def _repeated(self, count: int) -> Exact:
        rational = self.rational
        if rational is not None:
            if abs(rational) in {0, 1}:
                return Exact.of(rational ** min(count, 2 - count % 2))
            size = max(abs(rational.numerator), rational.denominator)
            if size.bit_length() * count > MAX_BITS:
                raise NotExactError("power too large")
            return Exact.of(rational**count)
        if count > 64:
            raise NotExactError("power too large")
        result = Exact.of(1)
        for _ in range(count):
            result = result * self
        return result

    def root(self, degree: int) -> Exact:
        """Return the root of a rational: any square root, other degrees only where they come out even."""
        rational = self.rational
        if rational is None or (rational < 0 and degree % 2 == 0) or not 2 <= degree <= 16:
            raise NotExactError("root without an exact form")
        if degree == 2:
            outer, inner = _square_free(rational.numerator * rational.denominator)
            return _checked({(inner, 0): Fraction(outer, rational.denominator)})
        sign = -1 if rational < 0 else 1
        top = _even_root(abs(rational.numerator), degree)
        return Exact.of(Fraction(sign * top, _even_root(rational.denominator, degree)))

    def factorial(self) -> Exact:
        """Return the factorial of a natural number, up to about 2,100."""
        number = self._natural()
        if number > _MAX_FACTORIAL:
            raise NotExactError("factorial too large")
        return Exact.of(math.factorial(number))

    def choose(self, count: Exact) -> Exact:
        """Return the binomial coefficient of two natural numbers."""
        total, chosen = self._natural(), count._natural()
        if total > _MAX_FACTORIAL:
            raise NotExactError("binomial too large")
        return Exact.of(math.comb(total, chosen))

    def _natural(self) -> int:
        rational = self.rational
        if rational is None or rational < 0 or rational.denominator != 1:
            raise NotExactError("not a natural number")
        return rational.numerator


def _term(root: int, power: int, value: Fraction) -> str:
    """Return one term, as ``1/2*sqrt(3)*pi^2``; what nobody could read is given by its length."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    number = str(value) if bits <= 300 else f"(a number of {bits:,} bits)"
    surd = f"*sqrt({root})" if root != 1 else ""
    return number + surd + (f"*pi^{power}" if power else "")


def _root_digits(root: int) -> Fraction:
    return Fraction(math.isqrt(root * 10**80), 10**40)


def _checked(terms: dict[_Key, Fraction]) -> Exact:
    kept = {key: value for key, value in terms.items() if value}
    if len(kept) > MAX_TERMS:
        raise NotExactError("too many terms")
    for (root, power), value in kept.items():
        bits = max(value.numerator.bit_length(), value.denominator.bit_length(), root.bit_length())
        if bits > MAX_BITS or abs(power) > 64:
            raise NotExactError("number too large")
    return Exact(kept)


def _square_free(number: int) -> tuple[int, int]:
    """Return ``(a, b)`` with ``number == a * a * b`` and ``b`` square-free."""
    whole = math.isqrt(number)
    if whole * whole == number:
        return whole, 1
    if number > _MAX_RADICAND:
        raise NotExactError("radicand too large")
    outer, inner, divisor = 1, 1, 2
    while divisor**3 <= number:
        while number % (divisor * divisor) == 0:
            number //= divisor * divisor
            outer *= divisor
        if number % divisor == 0:
            number //= divisor
            inner *= divisor
        divisor += 1
    whole = math.isqrt(number)  # what is left has at most two prime factors
    return (outer * whole, inner) if whole * whole == number else (outer, inner * number)


def _even_root(number: int, degree: int) -> int:
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle - 1)
    if low**degree != number:
        raise NotExactError("root that does not come out even")
    return low
