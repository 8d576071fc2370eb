"""A store as JSON Lines, for other tools and other eyes; exact in both directions.

One line an episode, its fields named as in :class:`~hyperrl.trajectory.Trajectory`, arrays as lists, plus
``schema``, ``iteration`` and ``rank``. The text is strict JSON in UTF-8, with the escapes of
:mod:`hyperrl.store.text`; a float that is not finite is ``{"float64": "<its 16 hexadecimal digits>"}``.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import struct
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from hyperrl.errors import StoreError, TrajectoryError
from hyperrl.store.parts import Part, find_parts
from hyperrl.store.reader import read_part
from hyperrl.store.schema import SCHEMA_VERSION
from hyperrl.store.text import escape, restore
from hyperrl.store.writer import TrajectoryWriter
from hyperrl.trajectory import (
    Event,
    Failure,
    RewardTerm,
    StopReason,
    ToolRecord,
    Trajectory,
    TruncationReason,
    Turn,
)

__all__ = ["export_jsonl", "import_jsonl"]

PathLike = str | os.PathLike[str]


def export_jsonl(directory: PathLike, path: PathLike, *, iterations: Container[int] | None = None) -> int:
    """Write a store, or some iterations of it, to one JSON Lines file; return the number of episodes.

    Raises:
        StoreError: the store cannot be read, or the file cannot be written.
    """
    try:
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            return _export(Path(directory), file, iterations)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def import_jsonl(path: PathLike, directory: PathLike) -> int:
    """Make a store of a file that :func:`export_jsonl` wrote; return the number of episodes.

    Raises:
        StoreError: the directory already holds parts, or a line cannot be read; the message names it.
    """
    writer = TrajectoryWriter(directory)
    if find_parts(writer.directory):
        raise StoreError(f"{directory} already holds a trajectory store; import into an empty directory")
    count = 0
    done: set[Part] = set()
    for part, lines in itertools.groupby(_lines(Path(path)), key=lambda line: line[0]):
        if part in done:
            raise StoreError(f"{path}: the episodes of {part} do not stand together; sort them first")
        episodes = [trajectory for _, trajectory in lines]
        writer.write_part(episodes, iteration=part.iteration, rank=part.rank)
        done.add(part)
        count += len(episodes)
    return count


def _export(directory: Path, file: TextIO, iterations: Container[int] | None) -> int:
    count = 0
    for part in find_parts(directory):
        if iterations is not None and part.iteration not in iterations:
            continue
        head = {"schema": SCHEMA_VERSION, "iteration": part.iteration, "rank": part.rank}
        for trajectory in read_part(directory / part.filename):
            line = json.dumps(head | _record(trajectory), ensure_ascii=False, allow_nan=False)
            file.write(escape(line) + "\n")
            count += 1
    return count


def _record(value: Any) -> dict[str, Any]:
    return {part.name: _written(getattr(value, part.name)) for part in dataclasses.fields(value)}


def _written(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _record(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_written(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float64": struct.pack(">d", value).hex()}
    return value


def _lines(path: Path) -> Iterator[tuple[Part, Trajectory]]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield _line(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def _line(line: str, where: str) -> tuple[Part, Trajectory]:
    try:
        record = json.loads(restore(line))
        version = record.pop("schema")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{where} was written by a newer hyperrl (trajectory schema {version}; this one reads up to"
                f" {SCHEMA_VERSION}). Upgrade hyperrl to read it"
            )
        return Part(record.pop("iteration"), record.pop("rank")), _trajectory(record)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, TrajectoryError) as error:
        raise StoreError(f"{where} is not an exported episode: {type(error).__name__}: {error}") from error


def _trajectory(record: dict[str, Any]) -> Trajectory:
    return Trajectory(
        **_read(
            record,
            group_id=tuple,
            turns=lambda turns: tuple(_turn(turn) for turn in turns),
            final_context_ids=_ids,
            events=lambda events: tuple(_event(event) for event in events),
            reward_terms=lambda terms: tuple(_reward_term(term) for term in terms),
            truncation_reason=TruncationReason,
            failure=lambda failure: Failure(**failure),
            metrics=_numbers,
            timings=_numbers,
        )
    )


def _turn(record: dict[str, Any]) -> Turn:
    ids = dict.fromkeys(("context_ids", "action_ids", "policy_versions"), _ids)
    return Turn(**_read(record, behavior_logprobs=_logprobs, stop_reason=StopReason, **ids))


def _event(record: dict[str, Any]) -> Event:
    return Event(**_read(record, tool_calls=lambda calls: tuple(_tool_record(call) for call in calls)))


def _tool_record(record: dict[str, Any]) -> ToolRecord:
    return ToolRecord(**_read(record, duration_s=_number, repairs=tuple))


def _reward_term(record: dict[str, Any]) -> RewardTerm:
    return RewardTerm(**_read(record, error=lambda failure: Failure(**failure)))


def _read(record: dict[str, Any], **readers: Callable[[Any], Any]) -> dict[str, Any]:
    """Pass the named values, unless they are null, through their readers."""
    return {
        name: readers[name](value) if name in readers and value is not None else value
        for name, value in record.items()
    }


def _ids(values: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.asarray(values, np.int32)


def _logprobs(values: list[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(values, np.float32)


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: Any) -> float:
    if isinstance(value, dict):
        return float(struct.unpack(">d", bytes.fromhex(value["float64"]))[0])
    return float(value)
