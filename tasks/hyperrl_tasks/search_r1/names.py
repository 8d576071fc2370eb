"""Names of the generated world: invented, and each given once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from hyperrl_tasks.search_r1.vocabulary import (
    BUILDINGS,
    FIRST_NAMES,
    NAME_MIDDLES,
    NAME_STARTS,
    QUALITIES,
    SURNAME_ENDS,
    THINGS,
    TOWN_ENDS,
    TRADES,
    WATER_ENDS,
)

__all__ = ["NameGiver", "pick"]

T = TypeVar("T")

_MAX_DRAWS = 10_000
_TOWN_VARIANTS = (
    "Upper {}",
    "{} Cross",
    "Nether {}",
    "{} Green",
    "Old {}",
    "{} Heath",
    "Little {}",
    "{} Park",
)
_RIVER_VARIANTS = ("Little {} Brook", "{} Canal", "White {} Creek", "{} Beck", "Black {} Water", "{} Burn")
_LAKE_VARIANTS = ("{} Tarn", "{} Reservoir", "{} Marsh", "{} Pond", "{} Lagoon", "{} Bay")


def pick(rng: random.Random, choices: Sequence[T]) -> T:
    """Return one of ``choices``; it draws ``rng.random()`` alone, whose stream Python keeps for ever."""
    return choices[int(rng.random() * len(choices))]


class NameGiver:
    """Gives names that were not given before.

    Args:
        rng: what it draws from.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._given: set[str] = set()

    def name(self, kind: str) -> str:
        """Return a new name of a kind."""
        return self._new(getattr(self, f"_{kind}"))

    def namesake(self, kind: str, name: str) -> str:
        """Return a new name of a kind that shares words with ``name``."""
        return self._new(lambda: self._similar(kind, name))

    def _new(self, draw: Callable[[], str]) -> str:
        for _ in range(_MAX_DRAWS):
            name = draw()
            if name.casefold() not in self._given:
                self._given.add(name.casefold())
                return name
        raise RuntimeError(f"{_MAX_DRAWS:,} draws gave no new name after {len(self._given):,} names")

    def _stem(self, ends: Sequence[str]) -> str:
        return pick(self._rng, NAME_STARTS) + pick(self._rng, NAME_MIDDLES) + pick(self._rng, ends)

    def _person(self) -> str:
        return f"{pick(self._rng, FIRST_NAMES)} {self._stem(SURNAME_ENDS)}"

    def _town(self) -> str:
        return self._stem(TOWN_ENDS)

    def _company(self) -> str:
        return f"{self._stem(SURNAME_ENDS)} {pick(self._rng, TRADES)}"

    def _river(self) -> str:
        return f"River {self._stem(WATER_ENDS)}"

    def _lake(self) -> str:
        return f"Lake {self._stem(WATER_ENDS)}"

    def _landmark(self) -> str:
        return f"{self._stem(SURNAME_ENDS)} {pick(self._rng, BUILDINGS)}"

    def _work(self) -> str:
        return f"The {pick(self._rng, QUALITIES)} {pick(self._rng, THINGS)}"

    def _similar(self, kind: str, name: str) -> str:
        first, _, last = name.rpartition(" ")
        rng = self._rng
        if kind == "person":
            other = pick(rng, FIRST_NAMES)
            shapes = (f"{first} {self._stem(SURNAME_ENDS)}", f"{other} {last}", f"{first} {other} {last}")
            return pick(rng, shapes)
        if kind == "company":
            return f"{first} {pick(rng, TRADES)}"
        if kind == "landmark":
            return f"{first} {pick(rng, BUILDINGS)}"
        if kind == "work":
            thing, quality = pick(rng, THINGS), pick(rng, QUALITIES)
            titles = (f"{first} {thing}", f"The {quality} {last}", f"The {last} and the {thing}")
            return pick(rng, (*titles, f"The {last} of {pick(rng, FIRST_NAMES)}"))
        variants = {"town": _TOWN_VARIANTS, "river": _RIVER_VARIANTS, "lake": _LAKE_VARIANTS}[kind]
        return pick(rng, variants).format(last)
