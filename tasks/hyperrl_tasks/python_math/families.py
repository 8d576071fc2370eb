"""The families of problems: number theory, combinatorics, sequences, probability and money."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

from hyperrl_tasks.python_math.family import Family

__all__ = ["FAMILIES"]


def _digit_sum(base: int, exponent: int) -> int:
    return sum(map(int, str(base**exponent)))


def _leftover(factor: int, hours: int, size: int) -> int:
    return pow(factor, hours, size)


def _multiples(limit: int, first: int, second: int, barred: int) -> int:
    """Inclusion and exclusion."""

    def count(*divisors: int) -> int:
        return limit // math.lcm(*divisors)

    either = count(first) + count(second) - count(first, second)
    excluded = count(first, barred) + count(second, barred) - count(first, second, barred)
    return either - excluded


def _recurrence(first: int, factor: int, shift: int, modulus: int, place: int) -> int:
    """The closed form: powers and a geometric sum, modulo ``modulus``."""
    power, total, step, span = 1, 0, factor % modulus, place - 1
    geometric = 1 % modulus  # the sum of the powers of `step` below a doubling length
    while span:
        if span & 1:
            total = (total * step + geometric) % modulus
            power = power * step % modulus
        geometric = geometric * (1 + step) % modulus
        step = step * step % modulus
        span >>= 1
    return (first * power + shift * total) % modulus if place > 1 else first


def _routes(east: int, north: int, street: int, avenue: int) -> int:
    through = math.comb(street + avenue, street)
    onward = math.comb(east - street + north - avenue, east - street)
    return math.comb(east + north, east) - through * onward


def _payments(amount: int, small: int, middle: int, large: int) -> int:
    """Count by the number of large coins; what is left takes an arithmetic progression of middle ones."""
    return sum(_two_coins(amount - used, small, middle) for used in range(0, amount + 1, large))


def _two_coins(amount: int, small: int, middle: int) -> int:
    shared = math.gcd(small, middle)
    if amount % shared:
        return 0
    amount, small, middle = amount // shared, small // shared, middle // shared
    first = amount * pow(middle, -1, small) % small if small > 1 else 0
    left = amount - first * middle
    return 0 if left < 0 else left // (small * middle) + 1


def _fractions(start: int, gap: int, count: int) -> Fraction:
    return sum((Fraction(1, start + gap * place) for place in range(count)), Fraction(0))


@lru_cache(maxsize=1)
def _small_primes() -> tuple[int, ...]:
    return tuple(n for n in range(2, 300) if all(n % divisor for divisor in range(2, math.isqrt(n) + 1)))


def _is_prime(number: int) -> bool:
    """For numbers below 90,000."""
    return number > 1 and all(number % prime or number == prime for prime in _small_primes())


def _prime_sum(start: int, width: int) -> int:
    return sum(filter(_is_prime, range(start, start + width)))


def _divisors(length: int, width: int) -> int:
    """The product of the exponents, each raised by one. Both sides are below 90,000."""
    exponents = Counter([*_prime_factors(length), *_prime_factors(width)])
    return math.prod(exponent + 1 for exponent in exponents.values())


def _prime_factors(number: int) -> Iterator[int]:
    for prime in _small_primes():
        while number % prime == 0:
            number //= prime
            yield prime
    if number > 1:  # what is left has no factor below 300
        yield number


def _hailstones(start: int) -> int:
    steps = 0
    while start != 1:
        start, steps = (3 * start + 1 if start % 2 else start // 2), steps + 1
    return steps


def _flock(first: int, rest: int, second: int, remainder: int, third: int, left: int) -> int:
    """The Chinese remainder theorem."""
    product = first * second * third
    total = sum(
        wanted * (product // modulus) * pow(product // modulus, -1, modulus)
        for modulus, wanted in ((first, rest), (second, remainder), (third, left))
    )
    return total % product


def _coprime(numbers: Iterable[int]) -> bool:
    rows = list(numbers)
    return math.lcm(*rows) == math.prod(rows)


def _dice(dice: int, sides: int, total: int) -> Fraction:
    """Inclusion and exclusion over the dice that would show more than they can."""
    ways = sum(
        (-1) ** over * math.comb(dice, over) * math.comb(total - sides * over - 1, dice - 1)
        for over in range((total - dice) // sides + 1)
    )
    return Fraction(ways, sides**dice)


def _savings(deposit: int, rate: int, payment: int, years: int) -> int:
    cents = deposit * 100
    for _ in range(years):
        cents += cents * rate // 1000 + payment * 100
    return cents


_REDUCE = """
a, b = top, bottom
while b:
    a, b = b, a % b
print(top // a if bottom == a else str(top // a) + "/" + str(bottom // a))
"""

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="digit_sum",
            question="What is the sum of the decimal digits of {base} to the power of {exponent}?",
            ranges={"base": ((3, 99), (11, 99), (101, 999)), "exponent": ((4, 6), (15, 40), (150, 600))},
            solve=_digit_sum,
            program="number = base\nfor _ in range(exponent - 1):\n    number *= base\n"
            "print(sum(int(digit) for digit in str(number)))",
            steps=lambda n: n["exponent"] ** 2 * len(str(n["base"])),
        ),
        Family(
            name="leftover",
            question=(
                "A culture starts with one cell, and every hour each cell becomes {factor} cells."
                " After {hours} hours the cells are put into dishes of {size}. How many cells are left"
                " over?"
            ),
            ranges={
                "factor": ((3, 9), (7, 99), (7, 999)),
                "hours": ((6, 12), (40, 150), (1_000, 4_000)),
                "size": ((11, 60), (100, 999), (1_000, 99_999)),
            },
            solve=_leftover,
            program="left = 1\nfor _ in range(hours):\n    left = left * factor % size\nprint(left)",
            steps=lambda n: 2 * n["hours"],
        ),
        Family(
            name="multiples",
            question=(
                "How many of the whole numbers from 1 to {limit} are divisible by {first} or by"
                " {second} (or by both), but not by {barred}?"
            ),
            ranges={
                "limit": ((80, 300), (2_000, 9_000), (40_000, 120_000)),
                "first": ((3, 9), (4, 20), (6, 60)),
                "second": ((3, 9), (4, 20), (6, 60)),
                "barred": ((3, 9), (4, 20), (6, 60)),
            },
            solve=_multiples,
            program="print(sum(1 for n in range(1, limit + 1)"
            " if (n % first == 0 or n % second == 0) and n % barred))",
            steps=lambda n: 10 + n["limit"] // min(n["first"], n["second"]) // 8,
            valid=lambda n: bool(
                n["first"] % n["second"]
                and n["second"] % n["first"]
                and n["first"] % n["barred"]
                and n["second"] % n["barred"]
            ),
        ),
        Family(
            name="recurrence",
            question=(
                "The first term of a sequence is {first}. To find the next term, multiply the last by"
                " {factor}, add {shift} and take the remainder on division by {modulus}. What is term"
                " number {place}?"
            ),
            ranges={
                "first": ((1, 9), (1, 99), (1, 999)),
                "factor": ((2, 9), (3, 99), (11, 999)),
                "shift": ((1, 9), (1, 99), (1, 999)),
                "modulus": ((20, 99), (101, 999), (1_009, 99_999)),
                "place": ((6, 10), (30, 120), (800, 3_000)),
            },
            solve=_recurrence,
            program="term = first\nfor _ in range(place - 1):\n"
            "    term = (term * factor + shift) % modulus\nprint(term)",
            steps=lambda n: 3 * n["place"],
        ),
        Family(
            name="routes",
            question=(
                "Streets form a grid. A courier goes from one corner to the opposite one, {east}"
                " blocks to the east and {north} to the north, and never west or south. The crossing"
                " {street} blocks east and {avenue} blocks north of the start is closed. How many"
                " routes are there?"
            ),
            ranges={
                "east": ((4, 6), (8, 11), (15, 24)),
                "north": ((4, 6), (8, 11), (15, 24)),
                "street": ((1, 3), (2, 7), (3, 14)),
                "avenue": ((1, 3), (2, 7), (3, 14)),
            },
            solve=_routes,
            program="ways = [[0] * (north + 1) for _ in range(east + 1)]\nways[0][0] = 1\n"
            "for x in range(east + 1):\n    for y in range(north + 1):\n"
            "        if x > 0:\n            ways[x][y] += ways[x - 1][y]\n"
            "        if y > 0:\n            ways[x][y] += ways[x][y - 1]\n"
            "        if x == street and y == avenue:\n            ways[x][y] = 0\n"
            "print(ways[east][north])",
            steps=lambda n: n["east"] * n["north"],
        ),
        Family(
            name="payments",
            question=(
                "In how many ways can {amount} cents be paid with coins of {small}, {middle} and"
                " {large} cents? Only how many there are of each coin counts, not their order."
            ),
            ranges={
                "amount": ((25, 60), (120, 400), (800, 2_000)),
                "small": ((1, 3), (1, 6), (1, 9)),
                "middle": ((4, 8), (7, 15), (10, 24)),
                "large": ((9, 15), (16, 30), (25, 60)),
            },
            solve=_payments,
            program="ways = [1] + [0] * amount\nfor coin in (small, middle, large):\n"
            "    for total in range(coin, amount + 1):\n        ways[total] += ways[total - coin]\n"
            "print(ways[amount])",
            steps=lambda n: 5 + (n["amount"] // n["large"]) * (1 + n["amount"] // n["middle"]),
            valid=lambda n: _payments(**n) > 0,
        ),
        Family(
            name="fractions",
            question=(
                "The first of {count} fractions is 1/{start}; all have the numerator 1, and each"
                " denominator is {gap} larger than the one before. What is the sum of the fractions?"
            ),
            ranges={
                "count": ((3, 3), (5, 7), (10, 14)),
                "start": ((2, 9), (2, 30), (2, 99)),
                "gap": ((1, 6), (1, 12), (1, 40)),
            },
            solve=_fractions,
            program="top, bottom = 0, 1\nfor place in range(count):\n"
            "    top, bottom = top * (start + gap * place) + bottom, bottom * (start + gap * place)\n"
            + _REDUCE.strip(),
            steps=lambda n: 2 * n["count"] ** 2,
        ),
        Family(
            name="prime_sum",
            question="What is the sum of the prime numbers among the {width} whole numbers from {start} on?",
            ranges={
                "width": ((20, 40), (60, 150), (200, 500)),
                "start": ((10, 90), (200, 2_000), (10_000, 80_000)),
            },
            solve=_prime_sum,
            program="print(sum(n for n in range(start, start + width) if n > 1"
            " and all(n % d for d in range(2, int(n ** 0.5) + 1))))",
            steps=lambda n: n["width"] * math.isqrt(n["start"]) // 12,
            valid=lambda n: _prime_sum(n["start"], n["width"]) > 0,
        ),
        Family(
            name="divisors",
            question=(
                "A floor of {length} by {width} unit tiles is to be laid out again as a rectangle of"
                " the same tiles. How many lengths can its first side have?"
            ),
            ranges={
                "length": ((12, 60), (100, 700), (1_000, 9_000)),
                "width": ((6, 30), (40, 300), (300, 5_000)),
            },
            solve=_divisors,
            program="area, count, d = length * width, 0, 1\nwhile d * d <= area:\n"
            "    if area % d == 0:\n        count += 1 if d * d == area else 2\n    d += 1\nprint(count)",
            steps=lambda n: math.isqrt(n["length"] * n["width"]),
        ),
        Family(
            name="hailstones",
            question=(
                "Start with {start}. An even number is halved; an odd one is multiplied by 3, and 1"
                " is added. After how many steps is the number 1 reached for the first time?"
            ),
            ranges={"start": ((3, 60), (100, 3_000), (100_000, 9_000_000))},
            solve=_hailstones,
            program="steps = 0\nwhile start != 1:\n"
            "    start = start // 2 if start % 2 == 0 else 3 * start + 1\n    steps += 1\nprint(steps)",
            steps=lambda n: 2 * _hailstones(n["start"]),
        ),
        Family(
            name="flock",
            question=(
                "A shepherd counts the flock. In rows of {first}, {rest} sheep are left over; in rows"
                " of {second}, {remainder}; in rows of {third}, {left}. What is the smallest number of"
                " sheep there can be?"
            ),
            ranges={
                "first": ((3, 5), (7, 16), (20, 60)),
                "rest": ((1, 2), (1, 6), (1, 19)),
                "second": ((4, 7), (9, 19), (30, 70)),
                "remainder": ((1, 3), (1, 8), (1, 29)),
                "third": ((5, 9), (11, 23), (40, 80)),
                "left": ((1, 4), (1, 10), (1, 39)),
            },
            solve=_flock,
            program="sheep = 1\nwhile sheep % first != rest or sheep % second != remainder or"
            " sheep % third != left:\n    sheep += 1\nprint(sheep)",
            steps=lambda n: n["first"] * n["second"] * n["third"] // 10,
            valid=lambda n: _coprime((n["first"], n["second"], n["third"])),
        ),
        Family(
            name="dice",
            question=(
                "{dice} fair dice, each with the numbers from 1 to {sides}, are thrown together. What"
                " is the probability that they show {total} in all? Give it as a fraction."
            ),
            ranges={
                "dice": ((2, 3), (4, 5), (7, 10)),
                "sides": ((4, 8), (4, 12), (6, 20)),
                "total": ((5, 18), (9, 48), (20, 140)),
            },
            solve=_dice,
            program="ways = [1]\nfor _ in range(dice):\n    more = [0] * (len(ways) + sides)\n"
            "    for total_before in range(len(ways)):\n        for shown in range(1, sides + 1):\n"
            "            more[total_before + shown] += ways[total_before]\n    ways = more\n"
            "top, bottom = ways[total], sides ** dice\n" + _REDUCE.strip(),
            steps=lambda n: n["dice"] ** 2 * n["sides"],
            valid=lambda n: n["dice"] < n["total"] < n["dice"] * n["sides"],
        ),
        Family(
            name="savings",
            question=(
                "An account holds {deposit} dollars. At the end of each year the bank adds {rate}"
                " thousandths of what is there as interest, rounded down to whole cents, and then"
                " {payment} dollars are paid in. How many cents does it hold after {years} years?"
            ),
            ranges={
                "deposit": ((100, 900), (1_000, 9_000), (10_000, 99_000)),
                "rate": ((10, 90), (11, 89), (11, 89)),
                "payment": ((10, 90), (100, 900), (101, 999)),
                "years": ((2, 3), (6, 12), (20, 45)),
            },
            solve=_savings,
            program="cents = deposit * 100\nfor _ in range(years):\n"
            "    cents = cents + cents * rate // 1000 + payment * 100\nprint(cents)",
            steps=lambda n: 12 * n["years"],
        ),
    )
}
"""By name."""
