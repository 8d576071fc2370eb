"""Problems as tasks: generated ones, or a file of yours in one of three layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyperrl.envs import JsonlTaskset, ParquetTaskset, Task, Taskset
from hyperrl.envs.grading import extract_answer
from hyperrl.errors import DataError
from hyperrl_tasks.python_math.families import FAMILIES
from hyperrl_tasks.python_math.family import draw_numbers

__all__ = ["LAYOUTS", "FileProblems", "draw_problem", "load_problems"]

LAYOUTS = (("question", "answer"), ("problem", "answer"), ("problem", "solution"))
"""Columns that a file may have: the text of the problem and what holds its answer."""

_MARK = "####"


def draw_problem(rng: np.random.Generator, names: Sequence[str], level: int, split: str) -> dict[str, Any]:
    """Draw a problem: ``question``, ``gold``, ``family`` and ``program``, which prints the answer."""
    family = FAMILIES[names[int(rng.integers(len(names)))]]
    numbers = draw_numbers(rng, family, level, split)
    return {
        "question": family.ask(numbers),
        "gold": str(family.solve(**numbers)),
        "family": family.name,
        "program": family.write_program(numbers),
    }


class FileProblems:
    """Tasks with ``question`` and ``gold``, the answer alone.

    Args:
        rows: tasks in one of :data:`LAYOUTS`.
        where: what to call the rows in an error.
    """

    def __init__(self, rows: JsonlTaskset | ParquetTaskset, where: str) -> None:
        self._rows = rows
        self._where = where

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int, /) -> Task:
        row = self._rows[index]
        problem, holder = _layout(list(row), f"row {index} of {self._where}")
        gold = _gold(row.data, holder)
        if not gold:
            raise DataError(
                f"row {index} of {self._where} has no answer in {holder!r}: {str(row[holder])[-60:]!r}"
            )
        return Task(row.task_id, {"question": str(row[problem]), "gold": gold})

    def index_of(self, task_id: str) -> int:
        """Return the position of a task. Raises KeyError if no task has this id."""
        return self._rows.index_of(task_id)


def load_problems(path: str | Path, split: str) -> Taskset:
    """Return the problems of a file.

    Args:
        path: a ``.parquet`` or ``.jsonl`` file; ``{split}`` in it stands for ``split``.
        split: ``train`` or ``test``. A path without ``{split}`` is taken for either.

    Raises:
        DataError: there is no such file, its name ends otherwise, or columns are missing.
    """
    file = Path(str(path).replace("{split}", split)).expanduser()
    where = repr(str(file))
    rows: JsonlTaskset | ParquetTaskset
    if file.suffix in {".jsonl", ".json"}:
        rows = JsonlTaskset(file)
    elif file.suffix == ".parquet":
        rows = ParquetTaskset(file, columns=_layout(ParquetTaskset(file).columns, where))
    else:
        raise DataError(f"{where} must be a .parquet or a .jsonl file of problems")
    problems = FileProblems(rows, where)
    problems[0]
    return problems


def _layout(columns: Sequence[str], where: str) -> tuple[str, str]:
    for layout in LAYOUTS:
        if set(layout) <= set(columns):
            return layout
    needed = " or ".join(str(list(layout)) for layout in LAYOUTS)
    raise DataError(
        f"{where} lacks the columns of a problem: needed are {needed}, found were {list(columns)}"
    )


def _gold(row: Mapping[str, Any], holder: str) -> str:
    """The answer alone: behind the mark of GSM8K, in the box of a solution, or all there is."""
    text = "" if row[holder] is None else str(row[holder]).strip()
    if _MARK in text:
        return text.rpartition(_MARK)[2].strip()
    boxed = extract_answer(text, "boxed")
    return boxed or ("" if holder == "solution" else text)
