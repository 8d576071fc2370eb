"""The environment ``hyperrl/CodeTests-v0``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hyperrl.envs import ListTaskset, Score, Task, TextEnv, Unscored, reward
from hyperrl.envs.grading import CODE_LIMITS, agrade_code
from hyperrl.envs.sandbox import make_sandbox
from hyperrl.errors import ConfigError, nearest
from hyperrl_tasks.code_tests.files import DIFFICULTIES, load_rows
from hyperrl_tasks.code_tests.problems import Problem, read_problem

__all__ = ["CodeTests"]


class CodeTests(TextEnv):
    """Write a Python function from its description; hidden unit tests judge it in a sandbox.

    Args:
        difficulty: ``easy``, ``medium``, ``hard``, or ``mixed`` for all of them.
        path: a file (JSON lines, a JSON list, Parquet) in the layout of HumanEval, of MBPP or of our own.
            ``{split}`` in it stands for the split. ``None`` takes the problems of the package.
        held_out_share: the share of the rows of a file without ``{split}`` that are in the split
            ``test``, by their ids; 1 puts all of them there, for an evaluation.
        share_weight: weight of the term ``tests/share``, the share of the hidden tests that pass.
        minimum: the weakest sandbox to accept: ``limited`` or ``isolated``.
        timeout_s: seconds that one test may take.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range, or no sandbox here reaches ``minimum``.
        DataError: the file is missing or holds something else.
    """

    version = "1"
    system_prompt = (
        "Write the Python function that is described. Answer with one fenced block of Python that holds the"
        " whole function and all that it needs; the last such block counts. It is run against hidden tests."
    )

    def __init__(  # each is an option by keyword
        self,
        *,
        difficulty: str = "mixed",
        path: str | Path | None = None,
        held_out_share: float = 0.1,
        share_weight: float = 0.0,
        minimum: str = "limited",
        timeout_s: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        known = (*DIFFICULTIES, "mixed")
        if difficulty not in known:
            raise ConfigError(
                f"difficulty must be one of {', '.join(known)}, got {difficulty!r}."
                f"{nearest(difficulty, known)}"
            )
        if not (math.isfinite(share_weight) and share_weight >= 0):
            raise ConfigError(f"share_weight must be finite and at least 0, got {share_weight}")
        if not 0 <= held_out_share <= 1:
            raise ConfigError(f"held_out_share must be from 0 to 1, got {held_out_share}")
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise ConfigError(f"timeout_s must be above 0 seconds, got {timeout_s}")
        self.difficulty = difficulty
        self.path = path
        self.held_out_share = held_out_share
        self.timeout_s = timeout_s
        self.sandbox = make_sandbox(minimum, limits=CODE_LIMITS)
        self.reward_weights = {"tests/share": float(share_weight)}
        self._problem: Problem | None = None

    def tasks(self) -> ListTaskset:
        """Read the problems of the split; a problem belongs to exactly one."""
        rows = load_rows(self.path, self.split, self.held_out_share)
        wanted = [row for row in rows if self.difficulty in ("mixed", row.get("difficulty"))]
        if not wanted:
            raise ConfigError(
                f"there are no problems of difficulty {self.difficulty!r} among the {len(rows)} of the split"
                f" {self.split!r}; 'mixed' takes them all, and held_out_share divides a file"
            )
        return ListTaskset([Task(str(row["task_id"]), row) for row in wanted])

    def start(self, task: Task) -> str:
        """Show the description of the function."""
        self._problem = self._read(task)
        return self._problem.question

    @reward
    async def tests(self, task: Task, answer: str) -> dict[str, float | Score] | Unscored:
        """Return the terms ``passed``, all hidden tests or why not, and ``share``, how many of them."""
        problem = self._problem or self._read(task)
        verdict = await agrade_code(
            answer,
            problem.tests,
            entry_point=problem.entry_point,
            preamble=problem.preamble,
            sandbox=self.sandbox,
            timeout_s=self.timeout_s,
        )
        if isinstance(verdict, Unscored):
            return verdict
        return {
            "share": verdict.share,
            "passed": Score(float(verdict.passed), cause=verdict.cause or None),
        }

    def gold(self, task: Task) -> str:
        """Return the reference solution."""
        return f"```python\n{self._read(task).solution}\n```"

    def _read(self, task: Task) -> Problem:
        return read_problem(task.data, f"task {task.task_id!r}")
