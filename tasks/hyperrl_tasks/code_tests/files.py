"""Rows of programming problems, in splits that share none."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hyperrl.errors import DataError
from hyperrl_tasks.code_tests.problems import UnusableRowError, read_problem

__all__ = ["DIFFICULTIES", "load_rows"]

logger = logging.getLogger(__name__)

DIFFICULTIES = ("easy", "medium", "hard")
"""The tiers of the problems that come with the package."""


def load_rows(path: str | Path | None, split: str, held_out_share: float) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a split.

    Args:
        path: a ``.jsonl`` or ``.jsonl.gz`` file; ``{split}`` in it stands for ``split``. ``None`` takes
            our own problems.
        split: ``train`` or ``test``.
        held_out_share: the share of the rows of a path without ``{split}`` that are in ``test``: those
            whose ``task_id`` has a small CRC-32.

    Raises:
        DataError: the file is missing or holds something else.
    """
    if path is None:
        return _packaged_rows(split)
    file = Path(str(path).replace("{split}", split)).expanduser()
    if not file.is_file():
        raise DataError(f"there is no file {str(file)!r}; give the path of an existing data set")
    rows = _rows(str(file.resolve()), file.stat().st_mtime_ns)
    if "{split}" in str(path):
        return rows
    limit = held_out_share * 2**32
    held_out = [zlib.crc32(str(row["task_id"]).encode()) < limit for row in rows]
    return [row for row, out in zip(rows, held_out, strict=True) if out == (split == "test")]


@lru_cache(maxsize=2)
def _packaged_rows(split: str) -> tuple[Mapping[str, Any], ...]:
    lines = files(__package__).joinpath("data", f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


@lru_cache(maxsize=8)
def _rows(path: str, mtime_ns: int) -> tuple[Mapping[str, Any], ...]:
    """Read all rows and look at each once; those that cannot be judged are left out and logged."""
    del mtime_ns  # it only tells versions of the file apart
    kept: dict[str, Mapping[str, Any]] = {}
    skipped = 0
    for number, line in enumerate(_lines(path), start=1):
        where = f"line {number} of {path!r}"
        row = _read_json(line, where)
        try:
            read_problem(row, where)
        except UnusableRowError as error:
            skipped += 1
            logger.info("%s is left out: %s", where, error)
            continue
        if kept.setdefault(str(row["task_id"]), row) is not row:
            raise DataError(f"{where} has the task_id {row['task_id']!r} of an earlier one; ids must differ")
    if skipped:
        logger.warning("%d rows of %s are left out: their tests use more than the function", skipped, path)
    if not kept:
        raise DataError(f"{path!r} holds no problems; expected one JSON object a line")
    return tuple(kept.values())


def _read_json(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where} is a {type(row).__name__}; expected a JSON object")
    return row


def _lines(path: str) -> list[str]:
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            return [line for line in file if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path!r} cannot be read: {error}") from error
