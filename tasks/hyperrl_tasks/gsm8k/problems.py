"""Word problems as tasks: the ones that come with the package, or a file in one of two layouts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hyperrl.envs import JsonlTaskset, ListTaskset, ParquetTaskset, Task, Taskset
from hyperrl.errors import DataError

__all__ = ["WordProblems", "load_problems"]

_PLAIN_COLUMNS = ("question", "answer")
_PROMPT_COLUMNS = ("prompt", "reward_model")
_EXTRA_COLUMNS = ("extra_info",)
_MARK = "####"


class WordProblems:
    """Tasks with ``question``, ``gold`` (the number alone) and ``solution`` (worked, ending in ``#### N``).

    Args:
        rows: tasks whose fields are either ``question`` and ``answer``, or ``prompt`` and
            ``reward_model`` (with ``extra_info`` where there is one).
        where: what to call the rows in an error.
    """

    def __init__(self, rows: Taskset, where: str) -> None:
        self._rows = rows
        self._where = where

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int, /) -> Task:
        row = self._rows[index]
        read = _read_plain if "question" in row else _read_prompt
        try:
            return Task(row.task_id, read(row.data))
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(f"row {index} of {self._where} is not a word problem: {error!r}") from error

    def index_of(self, task_id: str) -> int:
        """Return the position of a task. Raises KeyError if no task has this id."""
        if task_id.isdecimal() and str(int(task_id)) == task_id and int(task_id) < len(self):
            return int(task_id)
        raise KeyError(task_id)


def load_problems(path: str | Path | None, split: str) -> WordProblems:
    """Return the problems of a file, or without a path those that come with the package.

    Args:
        path: a ``.parquet`` or ``.jsonl`` file; ``{split}`` in it stands for ``split``.
        split: ``train`` or ``test``. A path without ``{split}`` is taken for either.

    Raises:
        DataError: there is no such file, its name ends otherwise, or columns are missing.
    """
    if path is None:
        return WordProblems(_packaged_rows(split), f"the {split} problems of the package")
    file = Path(str(path).replace("{split}", split)).expanduser()
    if file.suffix in {".jsonl", ".json"}:
        return WordProblems(JsonlTaskset(file, columns=_PLAIN_COLUMNS), repr(str(file)))
    if file.suffix != ".parquet":
        raise DataError(f"{str(file)!r} must be a .parquet or a .jsonl file of word problems")
    return WordProblems(_parquet_rows(file), repr(str(file)))


@lru_cache(maxsize=2)
def _packaged_rows(split: str) -> ListTaskset:
    lines = files(__package__).joinpath("data", f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return ListTaskset([json.loads(line) for line in lines])


def _parquet_rows(file: Path) -> ParquetTaskset:
    found = ParquetTaskset(file).columns
    for layout in (_PLAIN_COLUMNS, _PROMPT_COLUMNS):
        if set(layout) <= set(found):
            extra = [name for name in _EXTRA_COLUMNS if layout is _PROMPT_COLUMNS and name in found]
            return ParquetTaskset(file, columns=[*layout, *extra])
    raise DataError(
        f"{str(file)!r} lacks the columns of a word problem: needed are {list(_PLAIN_COLUMNS)}"
        f" or {list(_PROMPT_COLUMNS)}, found were {list(found)}"
    )


def _read_plain(row: Mapping[str, Any]) -> dict[str, str]:
    question, solution = str(row["question"]), str(row["answer"])
    _, mark, gold = solution.rpartition(_MARK)
    if not mark or not gold.strip():
        raise KeyError(f"the answer does not end in '{_MARK} N': {solution[-40:]!r}")
    return {"question": question, "gold": gold.strip(), "solution": solution}


def _read_prompt(row: Mapping[str, Any]) -> dict[str, str]:
    """Read the layout of verl: the plain question where ``extra_info`` keeps it, else the prompt's."""
    gold = str(row["reward_model"]["ground_truth"]).strip()
    extra = row.get("extra_info") or {}
    question = extra.get("question") or row["prompt"][-1]["content"]
    solution = extra.get("answer") or f"{_MARK} {gold}"
    if not gold:
        raise KeyError("reward_model.ground_truth is empty")
    return {"question": str(question), "gold": gold, "solution": str(solution)}
