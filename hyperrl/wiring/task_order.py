"""The order in which a run takes the tasks of a taskset: a new permutation every epoch."""

from __future__ import annotations

import hashlib

import numpy as np

from hyperrl.errors import DataError
from hyperrl.trajectory import GroupId

__all__ = ["TaskOrder", "derive_seed", "pick_held_out"]

_HELD_OUT_SEED = 0


class TaskOrder:
    """An endless, seeded order over ``size`` tasks.

    Every epoch visits each task once. A position is named by ``(epoch, position)``, the ``group_id``
    of the group that is played there; it depends on the seed only.

    Raises:
        DataError: there is no task.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        if size < 1:
            raise DataError("the taskset is empty: there is no task to play")
        self._size = size
        self._seed = seed
        self._next = 0
        self._epoch = -1
        self._permutation = np.zeros(0, np.int64)

    def take(self, count: int) -> list[tuple[GroupId, int]]:
        """Return the next ``count`` pairs of group id and task index."""
        taken = [self._at(number) for number in range(self._next, self._next + count)]
        self._next += count
        return taken

    def _at(self, number: int) -> tuple[GroupId, int]:
        epoch, position = divmod(number, self._size)
        if epoch != self._epoch:
            rng = np.random.default_rng([self._seed, epoch])
            self._permutation = rng.permutation(self._size)
            self._epoch = epoch
        return (epoch, position), int(self._permutation[position])


def pick_held_out(tasks: int, count: int) -> list[tuple[GroupId, int]]:
    """Return group id and task index of at most ``count`` held-out tasks.

    They are the same for every run and every policy, so that results can be compared.

    Raises:
        DataError: there is no task.
    """
    return TaskOrder(tasks, seed=_HELD_OUT_SEED).take(min(count, tasks))


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 63-bit seed of its own for ``purpose``.

    Phases of a run must not share random numbers: a warm start on the very tasks that training begins
    with would leave nothing to learn from them.
    """
    digest = hashlib.blake2b(f"{purpose}|{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
