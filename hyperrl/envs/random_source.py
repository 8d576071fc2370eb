"""An environment's random generator, made when it is first asked for.

Making a generator of a seed takes as long as several turns, and many tasks never draw: an environment that
is told its task needs chance only where its author asks for ``rng``.
"""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.utils import seeding

__all__ = ["RandomSource", "SeededEnv"]


class RandomSource:
    """A generator, or what one will be made of.

    Args:
        seed: the seed of :meth:`gymnasium.Env.reset`.
        made: a generator that is there already; then the seed does not count.
    """

    __slots__ = ("_drawn_from", "_made", "_seed")

    def __init__(self, seed: int = 0, made: np.random.Generator | None = None) -> None:
        self._seed = seed
        self._made = made
        self._drawn_from = 0

    def draw_task(self, count: int, *, needed: bool) -> int:
        """Draw one of ``count`` tasks; where the result is not ``needed``, no sooner than it matters."""
        if self._made is None and not (needed or self._drawn_from):
            self._drawn_from = count
            return 0
        return int(self.generator.integers(count))

    @property
    def generator(self) -> np.random.Generator:
        """The generator, as if it had been made and drawn from at once."""
        if self._made is None:
            self._made = seeding.np_random(self._seed)[0]
            if self._drawn_from:
                self._made.integers(self._drawn_from)
        return self._made


class SeededEnv(gymnasium.Env[str, str]):
    """A gymnasium environment whose ``np_random`` is made when it is first asked for."""

    _random: RandomSource | None = None

    def _seed(self, seed: int | None) -> None:
        """Do what gymnasium's ``reset`` does: seed anew, or go on with the generator that is there."""
        if type(seed) is int and seed >= 0:
            self._random, self._np_random_seed = RandomSource(seed), seed
        else:
            super().reset(seed=seed)

    def _random_source(self) -> RandomSource:
        if self._random is None:
            self._random = RandomSource(made=self.np_random)
        return self._random

    @property
    def _np_random(self) -> np.random.Generator | None:
        return None if self._random is None else self._random.generator

    @_np_random.setter
    def _np_random(self, made: np.random.Generator | None) -> None:
        self._random = None if made is None else RandomSource(made=made)
