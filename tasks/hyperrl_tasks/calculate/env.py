"""The environment ``hyperrl/Calculate-v0``."""

from __future__ import annotations

import json
import zlib
from typing import Any, Literal, get_args

import numpy as np

from hyperrl.envs import ProceduralTaskset, Score, Task, TextEnv, reward, tool
from hyperrl.envs.grading import AnswerPolicy, grade_answer
from hyperrl.errors import ConfigError, nearest
from hyperrl_tasks.arithmetic import ExpressionError, read_expression
from hyperrl_tasks.splits import draw_from_split

__all__ = ["AnswerPlace", "Calculate", "CalculatorMode"]

CalculatorMode = Literal["none", "works", "off"]
"""No calculator, one that answers, or one that is offered and answers nothing but an error."""

AnswerPlace = Literal["whole", "last_number"]
"""What of an answer is compared: all of it, or the last number in it."""

_COUNTS = {"train": 100_000, "test": 2_000}
_NOTHING_TO_COMPUTE = AnswerPolicy(computed=False)


class Calculate(TextEnv):
    """Compute an expression: ``Compute: 3+4`` asks for ``7``.

    With large numbers nobody does it in the head, and what is learned is the use of the calculator; with
    the calculator switched off one sees that it was.

    Args:
        digits: most digits of a number, 1 to 9; two or more leave out numbers with fewer.
        terms: how many numbers, 2 to 6.
        operators: the operators that may stand between them, of ``+-*``.
        calculator: ``none``, ``works`` or ``off``: offered as ever, but every call is answered with an error.
        direct_share: share of the tasks whose gold answers without the calculator. A warm start on such gold
            leaves the choice to the policy.
        extract: where the answer stands: ``whole``, the text is the number and nothing else, or
            ``last_number``, the last number that is written.
        taskset_seed: names the collection of tasks; another seed gives other tasks of the same splits.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range.
    """

    version = "1"

    def __init__(  # noqa: PLR0913  # each is an option by keyword
        self,
        *,
        digits: int = 3,
        terms: int = 2,
        operators: str = "+-*",
        calculator: CalculatorMode = "works",
        direct_share: float = 0.0,
        extract: AnswerPlace = "whole",
        taskset_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check(digits, terms, operators)
        _check_name("calculator", calculator, get_args(CalculatorMode))
        _check_name("extract", extract, get_args(AnswerPlace))
        if not 0 <= direct_share <= 1:
            raise ConfigError(f"direct_share must be from 0 to 1, got {direct_share}")
        if taskset_seed < 0:
            raise ConfigError(f"taskset_seed must be at least 0, got {taskset_seed}")
        self.digits, self.terms, self.operators = digits, terms, operators
        self.calculator_mode = calculator
        self.extract = extract
        self.direct_share = direct_share
        self.taskset_seed = taskset_seed
        if calculator == "none":
            self.system_prompt = "Answer with the number only."

    def tasks(self) -> ProceduralTaskset:
        """Generated expressions; an expression belongs to exactly one split."""
        return ProceduralTaskset(self._generate, _COUNTS[self.split], self.taskset_seed)

    def _generate(self, rng: np.random.Generator) -> dict[str, str]:
        expression = draw_from_split(lambda: self._draw(rng), self.split, accept=lambda _text: True)
        return {"expression": expression, "gold": str(read_expression(expression).value)}

    def _draw(self, rng: np.random.Generator) -> str:
        low = 10 ** (self.digits - 1) if self.digits > 1 else 0
        numbers = rng.integers(low, 10**self.digits, size=self.terms)
        chosen = rng.integers(len(self.operators), size=self.terms - 1)
        rest = (f"{self.operators[i]}{n}" for i, n in zip(chosen, numbers[1:], strict=True))
        return f"{numbers[0]}{''.join(rest)}"

    def start(self, task: Task) -> str:
        """Ask for the value of the task's expression."""
        return f"Compute: {task['expression']}"

    def offered_tools(self) -> tuple[str, ...]:
        """Offer the calculator, unless there is none."""
        return () if self.calculator_mode == "none" else ("calculator",)

    @tool(max_output_chars=200)
    def calculator(self, expression: str) -> str:
        """Compute.

        Args:
            expression: such as 3+4
        """
        if self.calculator_mode == "off":
            raise ExpressionError("the calculator is switched off")
        return str(read_expression(expression).value)

    @reward
    def right(self, task: Task, answer: str) -> Score:
        """1 if the answer is the value, 0 otherwise."""
        return grade_answer(answer, task["gold"], style=self.extract, policy=_NOTHING_TO_COMPUTE).score

    def gold(self, task: Task) -> str | list[str]:
        """Return the value; where a calculator is offered, mostly after a call of it."""
        direct = zlib.crc32(f"direct {task['expression']}".encode()) < self.direct_share * 2**32
        if direct or self.calculator_mode == "none":
            return str(task["gold"])
        call = {"name": "calculator", "arguments": {"expression": task["expression"]}}
        return [f"<tool_call>\n{json.dumps(call)}\n</tool_call>", str(task["gold"])]


def _check(digits: int, terms: int, operators: str) -> None:
    if not 1 <= digits <= 9:
        raise ConfigError(f"digits must be from 1 to 9, got {digits}")
    if not 2 <= terms <= 6:
        raise ConfigError(f"terms must be from 2 to 6, got {terms}")
    if not operators or set(operators) - set("+-*"):
        raise ConfigError(f"operators must be some of +-*, got {operators!r}")


def _check_name(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(
            f"{option} must be one of {', '.join(known)}, got {value!r}.{nearest(value, known)}"
        )
