"""The environment ``hyperrl/ReverseText-v0``."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from hyperrl.envs import ProceduralTaskset, Score, Task, TextEnv, reward
from hyperrl.errors import ConfigError
from hyperrl_tasks.splits import draw_from_split

__all__ = ["ReverseText"]

_COUNTS = {"train": 100_000, "test": 2_000}
_SMALLEST_ALPHABET = 10


class ReverseText(TextEnv):
    """Write letters backwards: ``Reverse: abcde`` asks for ``edcba``.

    Args:
        letters: how many letters, 3 to 64.
        alphabet: what they are drawn from, at least 10 different characters, none of them blank.
            Vocabularies often merge pairs of small letters and hardly ever pairs of capitals.
        taskset_seed: names the collection of tasks; another seed gives other tasks of the same splits.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range.
    """

    version = "1"

    def __init__(
        self,
        *,
        letters: int = 5,
        alphabet: str = string.ascii_lowercase,
        taskset_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 3 <= letters <= 64:
            raise ConfigError(f"letters must be from 3 to 64, got {letters}")
        if taskset_seed < 0:
            raise ConfigError(f"taskset_seed must be at least 0, got {taskset_seed}")
        if len(set(alphabet)) < max(_SMALLEST_ALPHABET, len(alphabet)) or any(map(str.isspace, alphabet)):
            raise ConfigError(
                f"alphabet must be at least {_SMALLEST_ALPHABET} different characters, none of them blank,"
                f" got {alphabet!r}"
            )
        self.letters = letters
        self.alphabet = np.array(list(alphabet))
        self.taskset_seed = taskset_seed

    def tasks(self) -> ProceduralTaskset:
        """Generated tasks; an instance belongs to exactly one split."""
        return ProceduralTaskset(self._generate, _COUNTS[self.split], self.taskset_seed)

    def _generate(self, rng: np.random.Generator) -> dict[str, str]:
        text = draw_from_split(
            lambda: "".join(self.alphabet[rng.integers(len(self.alphabet), size=self.letters)]),
            self.split,
            accept=lambda text: text != text[::-1],
        )
        return {"text": text, "gold": text[::-1]}

    def start(self, task: Task) -> str:
        """Ask for the text of the task."""
        return f"Reverse: {task['text']}"

    @reward
    def reversed_exactly(self, task: Task, answer: str) -> Score:
        """1 if the answer is the reversed text and nothing else, 0 otherwise."""
        given = answer.strip()
        return Score(float(given == task["gold"]), cause=None if given else "unparsed")

    def gold(self, task: Task) -> str:
        """Return the reversed text."""
        return str(task["gold"])
