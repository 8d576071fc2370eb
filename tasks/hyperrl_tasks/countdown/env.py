"""The environment ``hyperrl/Countdown-v0``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hyperrl.envs import ProceduralTaskset, Score, Task, TextEnv, reward
from hyperrl.errors import ConfigError
from hyperrl_tasks.countdown.answers import Judgement, judge
from hyperrl_tasks.countdown.puzzles import OPERATORS, Difficulty, draw_puzzle

__all__ = ["Countdown"]

_COUNTS = {"train": 100_000, "test": 2_000}


class Countdown(TextEnv):
    """Reach a target with given numbers: 94, 4, 61, 6 and 309 ask for something like ``94*4 - 61 - 6``.

    Args:
        numbers: how many numbers are given, 2 to 8.
        max_number: the largest number that may be given, 20 to 10,000.
        max_target: the largest target, up to 1,000,000; at least ``max_number`` or, without ``-``,
            at least ``numbers`` times ``max_number``.
        operators: the operators that may be used, of ``+-*/``, with ``+`` or ``-`` among them.
        use_all: every number must be used, instead of each at most once.
        valid_weight: weight of the term ``valid``, which counts answers that keep the rules.
        taskset_seed: names the collection of tasks; another seed gives other tasks of the same splits.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range.
    """

    version = "1"

    def __init__(  # noqa: PLR0913  # each is an option by keyword
        self,
        *,
        numbers: int = 4,
        max_number: int = 99,
        max_target: int = 999,
        operators: str = OPERATORS,
        use_all: bool = False,
        valid_weight: float = 0.0,
        taskset_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not (math.isfinite(valid_weight) and valid_weight >= 0):
            raise ConfigError(f"valid_weight must be finite and at least 0, got {valid_weight}")
        if taskset_seed < 0:
            raise ConfigError(f"taskset_seed must be at least 0, got {taskset_seed}")
        self.difficulty = Difficulty(
            count=numbers,
            max_number=max_number,
            max_target=max_target,
            operators=operators,
            use_all=use_all,
        )
        self.taskset_seed = taskset_seed
        self.reward_weights = {"valid": float(valid_weight)}
        self.system_prompt = _rules(self.difficulty)

    def tasks(self) -> ProceduralTaskset:
        """Generated puzzles, each with a solution; a puzzle belongs to exactly one split."""
        return ProceduralTaskset(self._generate, _COUNTS[self.split], self.taskset_seed)

    def _generate(self, rng: np.random.Generator) -> dict[str, Any]:
        puzzle = draw_puzzle(rng, self.difficulty, self.split)
        return {"numbers": list(puzzle.numbers), "target": puzzle.target, "gold": puzzle.solution}

    def start(self, task: Task) -> str:
        """Show the numbers and the target."""
        return f"Numbers: {', '.join(map(str, task['numbers']))}\nTarget: {task['target']}"

    @reward
    def reached(self, task: Task, answer: str) -> Score:
        """1 if the expression keeps the rules and its value is the target, 0 otherwise."""
        judgement = self._judge(task, answer)
        return Score(float(judgement.reached), cause=None if judgement.parsed else "unparsed")

    @reward(weight=0.0)
    def valid(self, task: Task, answer: str) -> float:
        """1 if the expression keeps the rules, whatever its value is, 0 otherwise."""
        return float(self._judge(task, answer).valid)

    def _judge(self, task: Task, answer: str) -> Judgement:
        return judge(
            answer,
            numbers=task["numbers"],
            target=task["target"],
            operators=self.difficulty.operators,
            use_all=self.difficulty.use_all,
        )

    def gold(self, task: Task) -> str | None:
        """Return the solution that the puzzle was made from; ``None`` for a task given without one."""
        solution = task.get("gold")
        return None if solution is None else str(solution)


def _rules(difficulty: Difficulty) -> str:
    use = "every number exactly once" if difficulty.use_all else "each number at most once"
    return (
        f"Reach the target with the given numbers. Use {use}, the operators {' '.join(difficulty.operators)}"
        " and parentheses. End with a line that holds only the expression, without an equals sign."
    )
