"""The files of a store: their names, finding them, opening one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hyperrl.errors import StoreError
from hyperrl.store.schema import check_version

__all__ = ["Part", "find_parts", "open_part"]

_NAME = re.compile(r"part-(\d{8,})-(\d{5,})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Names a part; sorts by iteration, then rank."""

    iteration: int
    rank: int

    def __post_init__(self) -> None:
        if self.iteration < 0 or self.rank < 0:
            raise StoreError(
                f"a part needs an iteration and a rank of at least 0, got {self.iteration} and {self.rank}"
            )

    @property
    def filename(self) -> str:
        """``part-<iteration>-<rank>.parquet``, zero-padded."""
        return f"part-{self.iteration:08d}-{self.rank:05d}.parquet"


def find_parts(directory: Path) -> list[Part]:
    """Every part of the store in ``directory``, in order. Temporary and other files are passed over.

    Raises:
        StoreError: there is no such directory, or it holds a Parquet file that is no part of a store.
    """
    if not directory.is_dir():
        raise StoreError(f"there is no trajectory store at {directory}: expected a directory of parts")
    found = []
    for path in directory.glob("*.parquet"):
        named = _NAME.fullmatch(path.name)
        if named is None:
            raise StoreError(
                f"{path} is no part of a trajectory store: expected names like"
                f" {Part(0, 0).filename}. Move it elsewhere"
            )
        found.append(Part(int(named[1]), int(named[2])))
    return sorted(found)


def open_part(path: Path) -> pq.ParquetFile:
    """Open a part and check that it is ours.

    Raises:
        StoreError: it is damaged, not ours, or of a newer version; the message names it.
    """
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path} cannot be read as a part of a trajectory store: {error}. If it is damaged, move it away;"
            " the other parts stand on their own"
        ) from error
    try:
        check_version(file.schema_arrow.metadata, str(path))
    except StoreError:
        file.close()
        raise
    return file
