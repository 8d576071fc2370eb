"""The environment ``hyperrl/PythonMath-v0``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hyperrl.envs import ProceduralTaskset, Score, Task, Taskset, TextEnv, Unscored, reward, tool
from hyperrl.envs.grading import AnswerPolicy, agrade_math, grade_answer, is_number
from hyperrl.envs.sandbox import MontySandbox, SandboxLimits
from hyperrl.errors import ConfigError, nearest
from hyperrl_tasks.python_math.families import FAMILIES
from hyperrl_tasks.python_math.family import LEVELS
from hyperrl_tasks.python_math.interpreter import (
    Interpreter,
    InterpreterName,
    make_interpreter_sandbox,
    written_result,
)
from hyperrl_tasks.python_math.problems import draw_problem, load_problems

__all__ = ["AnswerMark", "PythonMath"]

AnswerMark = Literal["gsm8k", "boxed"]
r"""How the answer is marked: ``gsm8k`` is ``#### N``, ``boxed`` is ``\boxed{N}``."""

_COUNTS = {"train": 100_000, "test": 2_000}
_MARKS: dict[str, str] = {"gsm8k": "#### {answer}", "boxed": "\\boxed{{{answer}}}"}
_MAX_CODE_CHARS = 20_000
_MAX_OUTPUT_CHARS = 4_000


class PythonMath(TextEnv):
    r"""Word problems with exact answers: hard in the head, a few lines with a Python tool.

    Args:
        level: how large the numbers are: 1, 2 or 3.
        families: which kinds of problem to draw from, of :data:`FAMILIES`; ``None`` takes all.
        tool: offer the tool; ``False`` is for comparison.
        interpreter: ``monty`` keeps variables during an episode, ``cpython`` has the standard library
            and begins anew at each call, ``auto`` takes Monty where it is installed.
        minimum: the weakest level of sandbox to accept: ``none``, ``limited`` or ``isolated``.
        time_limit_s: seconds that one call may take.
        answer_mark: ``gsm8k`` asks for a last line ``#### N``, ``boxed`` for ``\boxed{N}``.
        path: a Parquet or JSONL file of problems instead of generated ones, with ``question`` or ``problem``
            and ``answer`` (alone, or behind ``####``), or ``problem`` and ``solution`` (boxed). ``{split}``
            in it stands for the split. An answer that is not a number is compared as mathematics (extra
            ``math``).
        taskset_seed: names the collection of generated tasks; another seed gives other tasks of the
            same splits.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range, or no sandbox here reaches ``minimum``.
        DataError: the file is missing or lacks the columns of a problem.
        MissingExtraError: Monty was asked for and is not installed.
    """

    version = "1"

    def __init__(  # noqa: PLR0913  # each is an option by keyword
        self,
        *,
        level: int = 2,
        families: Sequence[str] | None = None,
        tool: bool = True,
        interpreter: InterpreterName = "auto",
        minimum: str = "limited",
        time_limit_s: float = 5.0,
        answer_mark: AnswerMark = "gsm8k",
        path: str | Path | None = None,
        taskset_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if level not in LEVELS:
            raise ConfigError(f"level must be one of {', '.join(map(str, LEVELS))}, got {level!r}")
        if answer_mark not in get_args(AnswerMark):
            known = get_args(AnswerMark)
            raise ConfigError(
                f"answer_mark must be one of {', '.join(known)}, got {answer_mark!r}."
                f"{nearest(str(answer_mark), known)}"
            )
        if taskset_seed < 0:
            raise ConfigError(f"taskset_seed must be at least 0, got {taskset_seed}")
        self.level = level
        self.families = _checked_families(families)
        self.answer_mark = answer_mark
        self.taskset_seed = taskset_seed
        self._problems = None if path is None else load_problems(path, self.split)
        if tool:
            limits = SandboxLimits(
                wall_s=time_limit_s, cpu_s=time_limit_s, output_bytes=4 * _MAX_OUTPUT_CHARS
            )
            self.sandbox = make_interpreter_sandbox(interpreter, minimum, limits)
        self.system_prompt = _rules(answer_mark, self._tool_rules())
        self._interpreter: Interpreter | None = None

    def tasks(self) -> Taskset:
        """The problems of the file, or generated ones; each of these belongs to exactly one split."""
        return self._problems or ProceduralTaskset(self._generate, _COUNTS[self.split], self.taskset_seed)

    def _generate(self, rng: np.random.Generator) -> dict[str, Any]:
        return draw_problem(rng, self.families, self.level, self.split)

    def start(self, task: Task) -> str:
        """Ask the question."""
        self.close()
        return str(task["question"])

    def offered_tools(self) -> tuple[str, ...]:
        """Offer the tool, unless the option says otherwise."""
        return () if self.sandbox is None else ("python",)

    @tool(max_output_chars=_MAX_OUTPUT_CHARS, max_input_chars=_MAX_CODE_CHARS)
    async def python(self, code: str) -> str:
        """Run Python and read what it prints; the value of a last line that is an expression is shown too.

        Args:
            code: Python source.
        """
        if self.sandbox is None:
            raise RuntimeError("no tool is offered")
        self._interpreter = self._interpreter or Interpreter(self.sandbox)
        return written_result(await self._interpreter.run(code))

    @reward
    async def correct(self, task: Task, answer: str) -> Score | Unscored:
        """1 if the marked answer equals the right one, 0 otherwise."""
        self.close()
        gold = str(task["gold"])
        policy = AnswerPolicy(computed="program" not in task)
        verdict = grade_answer(answer, gold, style=self.answer_mark, policy=policy)
        if verdict.equal or verdict.extracted is None or is_number(gold):
            return verdict.score
        judged = await agrade_math(answer, gold, style=self.answer_mark)
        return judged if isinstance(judged, Unscored) else judged.score

    def gold(self, task: Task) -> list[str]:
        """Return a call of the tool, where it is offered and the task has a program, and the answer."""
        answer = _MARKS[self.answer_mark].format(answer=task["gold"])
        if self.sandbox is None or "program" not in task:
            return [answer]
        call = {"name": "python", "arguments": {"code": task["program"]}}
        return [f"<tool_call>\n{json.dumps(call)}\n</tool_call>", answer]

    def close(self) -> None:
        """End the interpreter of the episode."""
        if self._interpreter is not None:
            self._interpreter.close()
            self._interpreter = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the interpreter: a copy begins with no variables."""
        return {**super().__getstate__(), "_interpreter": None}

    def _tool_rules(self) -> str:
        if self.sandbox is None:
            return ""
        kept = "are kept until the next call" if isinstance(self.sandbox, MontySandbox) else "are not kept"
        return f" You may run Python with the tool python; variables {kept}."


def _checked_families(names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(FAMILIES)
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        if name not in FAMILIES:
            raise ConfigError(
                f"there is no family of problems {name!r}; there are {', '.join(FAMILIES)}."
                f"{nearest(str(name), FAMILIES)}"
            )
    if not chosen:
        raise ConfigError(f"families is empty; give at least one of {', '.join(FAMILIES)}, or None for all")
    return chosen


def _rules(answer_mark: str, tool_rules: str) -> str:
    mark = _MARKS[answer_mark].format(answer="<answer>")
    return (
        f"Solve the problem; the answer must be exact.{tool_rules} When you are done, end with a line that"
        f" holds only the answer, a number or a fraction like 3/7 where nothing else is asked for:\n{mark}"
    )
