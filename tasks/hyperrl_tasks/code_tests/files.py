"""Rows of programming problems, in splits that share none."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
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
        path: a ``.jsonl``, ``.json`` (one list) or ``.parquet`` file, the first two also with ``.gz``;
            ``{split}`` in it stands for ``split``. ``None`` takes our own problems.
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
    for where, row in _entries(path):
        if not isinstance(row, dict):
            raise DataError(f"{where} is a {type(row).__name__}; expected a JSON object")
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
        raise DataError(f"{path!r} holds no problems; expected one JSON object a row")
    return tuple(kept.values())


def _entries(path: str) -> Iterator[tuple[str, Any]]:
    """Yield where each row stands, for an error, and the row."""
    suffixes = Path(path).suffixes
    if suffixes[-1:] == [".parquet"]:
        for number, row in enumerate(_parquet_rows(path), start=1):
            yield f"row {number} of {path!r}", row
    elif ".json" in suffixes[-2:]:
        rows = _read_json("".join(_lines(path)), repr(path))
        for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
            yield f"row {number} of {path!r}", row
    else:
        for number, line in enumerate(_lines(path), start=1):
            where = f"line {number} of {path!r}"
            yield where, _read_json(line, where)


def _parquet_rows(path: str) -> list[dict[str, Any]]:
    import pyarrow  # noqa: PLC0415  # only a Parquet file needs it, and it takes long to load
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path!r} cannot be read as Parquet: {error}") from error
    return rows


def _read_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from error


def _lines(path: str) -> list[str]:
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            return [line for line in file if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path!r} cannot be read: {error}") from error
