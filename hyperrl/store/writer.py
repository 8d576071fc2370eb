"""Writing parts: all of a part, or nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hyperrl.errors import StoreError
from hyperrl.store.parts import Part
from hyperrl.store.schema import EPISODE, arrow_schema, leaf_paths
from hyperrl.trajectory import Trajectory

__all__ = ["TrajectoryWriter"]

_ROW_GROUP_BYTES = 32 * 2**20
"""About how much is encoded at a time; bounds memory, and the size of a Parquet page."""


class TrajectoryWriter:
    """Writes trajectories into a directory of immutable parts.

    A part appears under its name at once and whole: it is written to a temporary name, synced to disk and
    renamed. A writer that is killed loses only the part it was writing. Each part has one writer at a
    time; different ranks and iterations may be written at the same time, by any number of processes.

    Args:
        directory: made if it is missing.
        tokenizer: digest of the vocabulary that the token ids are of; parts say it to their readers
            (:func:`hyperrl.store.read_tokenizers`). Empty where nobody knows.

    Raises:
        StoreError: the directory cannot be made.
    """

    def __init__(self, directory: str | os.PathLike[str], *, tokenizer: str = "") -> None:
        self.directory = Path(directory)
        self._schema = arrow_schema(tokenizer)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the trajectory store {self.directory}: {error}") from error

    def write_part(self, trajectories: Iterable[Trajectory], *, iteration: int, rank: int = 0) -> Path:
        """Write what one rank played in one iteration, and return the file.

        A part of the same iteration and rank is replaced. The trajectories are taken one by one, and
        about 32 MB of them are held at a time.

        Raises:
            StoreError: a value cannot be kept exactly (the message names the episode and the field), or
                the file cannot be written. The part that was there before, if any, is then untouched.
        """
        path = self.directory / Part(iteration, rank).filename
        for leftover in self.directory.glob(f"{path.name}.*.tmp"):
            leftover.unlink(missing_ok=True)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            _write(trajectories, temporary, self._schema)
            _sync(temporary)
            temporary.replace(path)
            _sync(self.directory)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"cannot write {path}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return path


def _write(trajectories: Iterable[Trajectory], path: Path, schema: pa.Schema) -> None:
    leaves = dict(leaf_paths(EPISODE.type))
    real = [name for name, kind in leaves.items() if pa.types.is_floating(kind)]
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        # A dictionary compares floats by value; splitting their bytes keeps every bit and packs better.
        use_dictionary=[name for name in leaves if name not in real],
        use_byte_stream_split=real,
        write_statistics=False,
        write_page_checksum=True,
    ) as file:
        for rows in _row_groups(trajectories):
            batch = pa.RecordBatch.from_struct_array(_encode(rows))
            file.write_table(pa.Table.from_batches([batch]), row_group_size=len(rows))


def _encode(rows: list[Trajectory]) -> pa.StructArray:
    try:
        return EPISODE.encode(rows)
    except StoreError as error:
        for row in rows:
            try:
                EPISODE.encode([row])
            except StoreError as found:
                raise StoreError(
                    f"episode {row.group_id}, sample {row.sample_index}, task {row.task_id!r}: {found}"
                ) from error
        raise


def _row_groups(trajectories: Iterable[Trajectory]) -> Iterator[list[Trajectory]]:
    rows: list[Trajectory] = []
    size = 0
    for trajectory in trajectories:
        rows.append(trajectory)
        size += _size_bytes(trajectory)
        if size >= _ROW_GROUP_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _size_bytes(trajectory: Trajectory) -> int:
    """About how much an episode takes before compression: its tokens and its long texts."""
    tokens = sum(len(turn.context_ids) + 3 * len(turn.action_ids) for turn in trajectory.turns)
    texts = sum(
        len(event.observation) + len(event.action) + sum(len(call.result) for call in event.tool_calls)
        for event in trajectory.events
    )
    return 4 * (tokens + len(trajectory.final_context_ids)) + texts + 1024


def _sync(path: Path) -> None:
    """Have the operating system write a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
