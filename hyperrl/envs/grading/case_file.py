"""Files of graded examples: what a grader should say of each response, to compare with what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from hyperrl.envs.grading.extraction import AnswerStyle
from hyperrl.errors import DataError, nearest

__all__ = ["GradingCase", "load_cases"]

_KEYS = {"id": str, "response": str, "gold": str, "expected": bool, "family": str}
_NAMES = {str: "a string", bool: "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingCase:
    """One row of a file of cases.

    Attributes:
        case_id: the row's name, unique in its file.
        response: the whole text of a policy.
        gold: the right answer alone.
        expected: the response should count as right.
        style: where the answer stands in ``response``; ``family`` in the file.
    """

    case_id: str
    response: str
    gold: str
    expected: bool
    style: AnswerStyle


def load_cases(path: Path) -> tuple[GradingCase, ...]:
    """Read a JSON list of rows with ``id``, ``response``, ``gold``, ``expected`` and ``family``.

    Raises:
        DataError: the file cannot be read, is not such a list, or holds no row; a row lacks a key or
            has a wrong value, or two have the same id.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        hint = "; one list holds all rows, not one line each" if str(error).startswith("Extra data") else ""
        raise DataError(f"{path} is not JSON in UTF-8: {error}{hint}") from error
    if not isinstance(rows, list) or not rows:
        found = "an empty list" if rows == [] else type(rows).__name__
        raise DataError(f"{path} must hold a JSON list with at least one row, found {found}")
    cases = tuple(_read_row(row, f"{path}, row {number}") for number, row in enumerate(rows))
    _refuse_repeated_ids(cases, path)
    return cases


def _read_row(row: object, where: str) -> GradingCase:
    if not isinstance(row, Mapping):
        raise DataError(f"{where} must be an object, found {row!r:.80}")
    where = f"{where} (id {row['id']!r:.80})" if "id" in row else where
    for key, kind in _KEYS.items():
        if key not in row:
            raise DataError(
                f"{where} lacks the key {key!r}; a row has {', '.join(_KEYS)}.{nearest(key, map(str, row))}"
            )
        if type(row[key]) is not kind:
            raise DataError(f"{where}: {key!r} must be {_NAMES[kind]}, found {row[key]!r:.80}")
    if row["family"] not in get_args(AnswerStyle):
        styles = get_args(AnswerStyle)
        hint = nearest(row["family"], styles)
        raise DataError(
            f"{where}: 'family' must be one of {', '.join(styles)}, found {row['family']!r:.80}.{hint}"
        )
    return GradingCase(
        case_id=row["id"],
        response=row["response"],
        gold=row["gold"],
        expected=row["expected"],
        style=cast("AnswerStyle", row["family"]),
    )


def _refuse_repeated_ids(cases: tuple[GradingCase, ...], path: Path) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.case_id in seen:
            raise DataError(f"{path} has two rows with the id {case.case_id!r:.80}; ids must be unique")
        seen.add(case.case_id)
