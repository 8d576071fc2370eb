"""The environment ``hyperrl/SortDigits-v0``."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyperrl.envs import ProceduralTaskset, Score, Task, TextEnv, reward
from hyperrl.errors import ConfigError
from hyperrl_tasks.splits import draw_from_split

__all__ = ["SortDigits"]

_COUNTS = {"train": 100_000, "test": 2_000}


class SortDigits(TextEnv):
    """Sort the digits of a number in ascending order: ``Sort: 582013`` asks for ``012358``.

    Args:
        digits: how many digits, 4 to 64.
        taskset_seed: names the collection of tasks; another seed gives other tasks of the same splits.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range.
    """

    version = "1"

    def __init__(self, *, digits: int = 6, taskset_seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 4 <= digits <= 64:
            raise ConfigError(f"digits must be from 4 to 64, got {digits}")
        if taskset_seed < 0:
            raise ConfigError(f"taskset_seed must be at least 0, got {taskset_seed}")
        self.digits = digits
        self.taskset_seed = taskset_seed

    def tasks(self) -> ProceduralTaskset:
        """Generated tasks; an instance belongs to exactly one split."""
        return ProceduralTaskset(self._generate, _COUNTS[self.split], self.taskset_seed)

    def _generate(self, rng: np.random.Generator) -> dict[str, str]:
        number = draw_from_split(
            lambda: "".join(map(str, rng.integers(10, size=self.digits))),
            self.split,
            accept=lambda text: text != _sorted(text),
        )
        return {"digits": number, "gold": _sorted(number)}

    def start(self, task: Task) -> str:
        """Ask for the digits of the task."""
        return f"Sort: {task['digits']}"

    @reward
    def sorted_exactly(self, task: Task, answer: str) -> Score:
        """1 if the answer is the sorted digits and nothing else, 0 otherwise."""
        given = answer.strip()
        return Score(float(given == task["gold"]), cause=None if given else "unparsed")

    def gold(self, task: Task) -> str:
        """Return the sorted digits."""
        return str(task["gold"])


def _sorted(text: str) -> str:
    return "".join(sorted(text))
