"""The layout of a part: one row an episode, one column a field of :class:`~hyperrl.trajectory.Trajectory`.

The columns up to ``LISTED`` are small and stand first: they are the index that listings read. Nested
columns follow, with tokens as flat lists.

``SCHEMA_VERSION`` grows when an older reader would misread a file. New fields are added as columns with a
default, so that every older file opens.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from hyperrl.errors import StoreError
from hyperrl.store.codecs import Column, Json, Many, Numbers, Pair, Real, Scalar, Struct, Text, Vector
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

__all__ = [
    "EPISODE",
    "LISTED",
    "SCHEMA_VERSION",
    "TOKENIZER_KEY",
    "arrow_schema",
    "check_version",
    "leaf_paths",
]

SCHEMA_VERSION = 1
"""The newest layout that this version reads, and the one that it writes."""

_VERSION_KEY = b"hyperrl.trajectories"
TOKENIZER_KEY = b"hyperrl.tokenizer"
"""Where a part says which vocabulary its token ids are of."""

_INTEGER, _FLAG = Scalar(pa.int64()), Scalar(pa.bool_())
_TEXT, _REAL = Text(), Real()

_FAILURE = Struct(
    Failure,
    (Column("kind", _TEXT), Column("stage", _TEXT), Column("reason", _TEXT), Column("exclude", _FLAG)),
)
_TURN = Struct(
    Turn,
    (
        Column("parent", _INTEGER),
        Column("temperature", _REAL),
        Column("stop_reason", Text(StopReason)),
        Column("policy", _TEXT),
        Column("use", _TEXT),
        Column("context_ids", Vector(np.int32)),
        Column("action_ids", Vector(np.int32)),
        Column("behavior_logprobs", Vector(np.float32)),
        Column("policy_versions", Vector(np.int32)),
    ),
)
_TOOL_RECORD = Struct(
    ToolRecord,
    (
        Column("call_id", _TEXT),
        Column("name", _TEXT),
        Column("arguments", _TEXT),
        Column("status", _TEXT),
        Column("result", _TEXT),
        Column("duration_s", _REAL),
        Column("repairs", Many(_TEXT)),
    ),
)
_EVENT = Struct(
    Event,
    (
        Column("turn", _INTEGER),
        Column("observation", _TEXT),
        Column("action", _TEXT),
        Column("tool_calls", Many(_TOOL_RECORD)),
        Column("stepped", _FLAG),
    ),
)
_REWARD_TERM = Struct(
    RewardTerm,
    (
        Column("name", _TEXT),
        Column("score", _REAL),
        Column("weight", _REAL),
        Column("turn", _INTEGER),
        Column("error", _FAILURE),
        Column("cause", _TEXT),
    ),
)


def _failure_kind(trajectory: Trajectory) -> str | None:
    return None if trajectory.failure is None else trajectory.failure.kind


def _context_tokens(trajectory: Trajectory) -> int:
    return sum(trajectory.columns.context_lengths) + len(trajectory.final_context_ids)


def _action_tokens(trajectory: Trajectory) -> int:
    return sum(trajectory.columns.action_lengths)


_LISTED = (
    Column("run_id", _TEXT),
    Column("group_id", Pair(("epoch", "position"))),
    Column("sample_index", _INTEGER),
    Column("task_id", _TEXT),
    Column("env_id", _TEXT),
    Column("env_version", _TEXT),
    Column("program", _TEXT),
    Column("seed", _INTEGER),
    Column("terminated", _FLAG),
    Column("truncated", _FLAG),
    Column("truncation_reason", Text(TruncationReason)),
    Column("reward", _REAL, derived=True),
    Column("failure_kind", _TEXT, _failure_kind, derived=True),
    Column("turn_count", _INTEGER, lambda trajectory: len(trajectory.columns), derived=True),
    Column("context_tokens", _INTEGER, _context_tokens, derived=True),
    Column("action_tokens", _INTEGER, _action_tokens, derived=True),
)

LISTED: tuple[Column, ...] = _LISTED
"""The columns that listings read."""

EPISODE = Struct(
    Trajectory,
    (
        *_LISTED,
        Column("sandbox_level", _TEXT),
        Column("env_kwargs", Json()),
        Column("reset_options", Json()),
        Column("failure", _FAILURE),
        Column("reward_terms", Many(_REWARD_TERM)),
        Column("metrics", Numbers()),
        Column("timings", Numbers()),
        Column("events", Many(_EVENT)),
        Column("turns", Many(_TURN)),
        Column("final_context_ids", Vector(np.int32)),
    ),
)
"""A whole row."""


def arrow_schema(tokenizer: str = "") -> pa.Schema:
    """The schema of a part, its version in the metadata, and the digest of the ids' vocabulary if known."""
    metadata = {_VERSION_KEY: str(SCHEMA_VERSION)}
    if tokenizer:
        metadata[TOKENIZER_KEY] = tokenizer
    return pa.schema(list(EPISODE.type), metadata=metadata)


def check_version(metadata: dict[bytes, bytes] | None, where: str) -> None:
    """Refuse a file that does not say it holds trajectories, or that a newer version wrote.

    Raises:
        StoreError: with ``where``, the file's name.
    """
    found = (metadata or {}).get(_VERSION_KEY)
    if found is None or not found.isdigit():
        raise StoreError(f"{where} is a Parquet file, but not one that hyperrl wrote; move it elsewhere")
    if int(found) > SCHEMA_VERSION:
        raise StoreError(
            f"{where} was written by a newer hyperrl (trajectory schema {int(found)}; this one reads up to"
            f" {SCHEMA_VERSION}). Upgrade hyperrl to read it"
        )


def leaf_paths(kind: pa.DataType, prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield the Parquet path and the type of every leaf column below a type."""
    if pa.types.is_struct(kind):
        for part in kind:
            yield from leaf_paths(part.type, f"{prefix}.{part.name}" if prefix else part.name)
    elif pa.types.is_large_list(kind):
        yield from leaf_paths(kind.value_type, f"{prefix}.list.element")
    else:
        yield prefix, kind
