"""The environment ``hyperrl/GSM8K-v0``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from hyperrl.envs import ListTaskset, Score, Task, Taskset, TextEnv, reward, tool
from hyperrl.envs.grading import AnswerPolicy, grade_answer
from hyperrl.errors import ConfigError, nearest
from hyperrl.trajectory import StopReason
from hyperrl_tasks.gsm8k.answer_format import format_share
from hyperrl_tasks.gsm8k.calculator import calculate
from hyperrl_tasks.gsm8k.problems import load_problems

__all__ = ["GSM8K", "Mode"]

Mode = Literal["single_turn", "calculator"]
"""How a problem is played: in one answer, or with calculator calls before it."""

_PROMPTS: dict[str, str] = {
    "single_turn": (
        "Solve the problem step by step. End with a line that holds only the answer, written like this:\n"
        "#### <number>"
    ),
    "calculator": (
        "Solve the problem step by step. Call the calculator tool for the arithmetic. When you are done,"
        " end with a line that holds only the answer, written like this:\n#### <number>"
    ),
}
_ANNOTATION = re.compile(r"<<([^<>=]*)=[^<>]*>>")
_MAX_GOLD_CALLS = 6
_NOTHING_TO_COMPUTE = AnswerPolicy(computed=False)


class GSM8K(TextEnv):
    """Word problems of grade-school mathematics; the answer stands behind ``####``.

    Args:
        mode: ``single_turn``, or ``calculator``: the policy may call a calculator over several turns.
        path: a Parquet or JSONL file of problems, with ``question`` and ``answer`` (ending in
            ``#### N``) or, in Parquet, ``prompt``, ``reward_model`` and ``extra_info``. ``{split}``
            in it stands for the split; without it the same file serves either split. ``None``
            takes the 200 + 40 problems that come with the package.
        format_weight: weight of the term ``format``, the share of the answer format that is right.
        steps: play only problems whose worked solution takes so many steps, from the first to the second
            number; more are harder. A step is a mark such as ``<<3*4=12>>``.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an unknown mode, a weight that is negative or not finite, or no problem of so many steps.
        DataError: the file is missing or lacks the columns of a word problem.
    """

    version = "1"

    def __init__(
        self,
        *,
        mode: Mode = "single_turn",
        path: str | Path | None = None,
        format_weight: float = 0.0,
        steps: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if steps is not None and (len(steps) != 2 or not 0 <= steps[0] <= steps[1]):
            raise ConfigError(f"steps must be the smallest and the largest number of steps, got {steps}")
        if mode not in get_args(Mode):
            known = get_args(Mode)
            raise ConfigError(
                f"mode must be one of {', '.join(known)}, got {mode!r}.{nearest(str(mode), known)}"
            )
        if not (math.isfinite(format_weight) and format_weight >= 0):
            raise ConfigError(f"format_weight must be finite and at least 0, got {format_weight}")
        self.mode = mode
        self.path = path
        self.steps = steps
        self._problems = None if path is None and steps is None else self._load()
        self.system_prompt = _PROMPTS[mode]
        self.reward_weights = {"format": float(format_weight)}

    def tasks(self) -> Taskset:
        """Read the problems of the split."""
        return self._problems or self._load()

    def _load(self) -> Taskset:
        problems = load_problems(self.path, self.split)
        if self.steps is None:
            return problems
        low, high = self.steps
        tasks = [problems[index] for index in range(len(problems))]
        chosen = [task for task in tasks if low <= len(_ANNOTATION.findall(task["solution"])) <= high]
        if not chosen:
            raise ConfigError(f"no problem of the split {self.split!r} takes {low} to {high} steps")
        return ListTaskset(chosen)

    def start(self, task: Task) -> str:
        """Ask the question of the task."""
        return str(task["question"])

    def offered_tools(self) -> tuple[str, ...]:
        """Offer the calculator in the mode of that name."""
        return ("calculator",) if self.mode == "calculator" else ()

    @tool(max_output_chars=2_000)
    def calculator(self, expression: str) -> str:
        """Compute an arithmetic expression exactly.

        Args:
            expression: numbers with + - * / // % ** and parentheses, such as (3 + 4) * 2.5
        """
        return calculate(expression)

    @reward
    def correct(self, task: Task, answer: str) -> Score:
        """1 if the number behind the last ``####`` equals the gold answer, 0 otherwise."""
        return grade_answer(answer, task["gold"], style="gsm8k", policy=_NOTHING_TO_COMPUTE).score

    @reward(name="format", weight=0.0)
    def answer_format(self, answer: str, stop_reason: StopReason) -> float:
        """Return the share of the answer format that is right, whatever the number is."""
        return format_share(answer, complete=stop_reason is StopReason.STOP)

    def gold(self, task: Task) -> str | list[str]:
        """Return the worked solution; with the calculator, after a call for each of its first steps."""
        solution = _ANNOTATION.sub("", task["solution"])
        if self.mode == "single_turn":
            return solution
        steps = [match.strip() for match in _ANNOTATION.findall(task["solution"])]
        return [*map(_call, steps[:_MAX_GOLD_CALLS]), solution]


def _call(expression: str) -> str:
    call = {"name": "calculator", "arguments": {"expression": expression}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
