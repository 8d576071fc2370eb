"""Reading a store: whole trajectories, or a listing that never touches a token."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hyperrl.errors import StoreError, TrajectoryError
from hyperrl.store.parts import Part, find_parts, open_part
from hyperrl.store.schema import EPISODE, LISTED, TOKENIZER_KEY
from hyperrl.trajectory import Trajectory, TruncationReason

__all__ = [
    "EpisodeRow",
    "list_episodes",
    "list_iterations",
    "read_part",
    "read_tokenizers",
    "read_trajectories",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """What a listing shows of an episode.

    Attributes:
        iteration, rank, row: where it stands: the part, and the position in it.
        run_id, group_id, sample_index, task_id, env_id, env_version, program, seed, terminated,
            truncated, truncation_reason, reward: as in :class:`~hyperrl.trajectory.Trajectory`.
        failure_kind: kind of its failure, if it has one.
        turn_count: number of turns.
        context_tokens, action_tokens: tokens that were read, and that policies sampled.
    """

    iteration: int
    rank: int
    row: int
    run_id: str
    group_id: tuple[int, int]
    sample_index: int
    task_id: str
    env_id: str
    env_version: str
    program: str
    seed: int
    terminated: bool
    truncated: bool
    truncation_reason: TruncationReason | None
    reward: float | None
    failure_kind: str | None
    turn_count: int
    context_tokens: int
    action_tokens: int


def read_trajectories(
    directory: str | os.PathLike[str], *, iterations: Container[int] | None = None
) -> Iterator[Trajectory]:
    """Yield the trajectories of a store, by iteration, rank and order of writing.

    Args:
        directory: the store.
        iterations: only these, such as ``{3}`` or ``range(10)``; all by default.

    Raises:
        StoreError: there is no store, or a part of it is damaged, not ours or of a newer version.
    """
    for part in find_parts(Path(directory)):
        if iterations is None or part.iteration in iterations:
            yield from read_part(Path(directory) / part.filename)


def read_part(path: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of one part. Raises StoreError as :func:`read_trajectories` does."""
    with open_part(path) as file:
        for group in range(file.num_row_groups):
            try:
                batches = file.read_row_group(group).to_batches()
                rows = [row for batch in batches for row in EPISODE.decode(batch.to_struct_array())]
            except (pa.ArrowException, OSError, TypeError, ValueError, TrajectoryError) as error:
                raise _damaged(path, error) from error
            yield from rows


def list_iterations(directory: str | os.PathLike[str]) -> list[int]:
    """Return the iterations that a store has episodes of, in order. Raises StoreError where there is none."""
    return sorted({part.iteration for part in find_parts(Path(directory))})


def read_tokenizers(directory: str | os.PathLike[str]) -> set[str]:
    """Return the digests of the vocabularies that a store's token ids are of, as far as its parts say.

    Raises:
        StoreError: there is no store, or a part of it is damaged, not ours or of a newer version.
    """
    found: set[str] = set()
    for part in find_parts(Path(directory)):
        with open_part(Path(directory) / part.filename) as file:
            digest = (file.schema_arrow.metadata or {}).get(TOKENIZER_KEY)
        if digest is not None:
            found.add(digest.decode())
    return found


def list_episodes(directory: str | os.PathLike[str]) -> list[EpisodeRow]:
    """List every episode of a store, in the order of :func:`read_trajectories`, without reading tokens.

    Raises:
        StoreError: there is no store, or a part of it is damaged, not ours or of a newer version.
    """
    store = Path(directory)
    return [row for part in find_parts(store) for row in _list_part(store, part)]


def _list_part(directory: Path, part: Part) -> list[EpisodeRow]:
    path = directory / part.filename
    names = [column.name for column in LISTED]
    with open_part(path) as file:
        try:
            table = file.read(columns=names, use_threads=False)
            columns = [_decoded(table, column.name, column.codec) for column in LISTED]
        except (pa.ArrowException, KeyError, OSError, TypeError, ValueError) as error:
            raise _damaged(path, error) from error
    return [
        EpisodeRow(iteration=part.iteration, rank=part.rank, row=row, **dict(zip(names, values, strict=True)))
        for row, values in enumerate(zip(*columns, strict=True))
    ]


def _decoded(table: pa.Table, name: str, codec: Any) -> list[Any]:
    return [value for chunk in table.column(name).chunks for value in codec.decode(chunk)]


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} is damaged: {error}. Move it away; the other parts of the store stand on their own"
    )
