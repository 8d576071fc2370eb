"""Tasks and ordered collections of them: generated, or read from JSONL and Parquet files."""

from __future__ import annotations

import functools
import inspect
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hyperrl.errors import ConfigError, DataError, EnvError, nearest

__all__ = [
    "JsonlTaskset",
    "ListTaskset",
    "ParquetTaskset",
    "ProceduralTaskset",
    "Task",
    "Taskset",
    "as_taskset",
    "find_task",
]

_ROW_GROUPS_KEPT = 4


@dataclass(frozen=True, slots=True)
class Task:
    """One problem instance.

    Attributes:
        task_id: its name, unique within the taskset and the same in every run; always kept as text.
        data: its fields; ``task["question"]`` reads one.

    Raises:
        EnvError: ``data`` is no mapping.
    """

    task_id: str
    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        if type(self.task_id) is not str:
            object.__setattr__(self, "task_id", str(self.task_id))
        if type(self.data) is not dict and not isinstance(self.data, Mapping):
            raise EnvError(
                f"the data of task {self.task_id!r:.80} must be a mapping of its fields, such as"
                f" {{'question': ...}}; got {self.data!r:.80} ({type(self.data).__name__})"
            )

    def __getitem__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            hint = nearest(name, self.data)
            raise KeyError(
                f"task {self.task_id!r} has no field {name!r}, only {sorted(self.data)}.{hint}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self.data

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or ``default`` where the task lacks it."""
        return self.data.get(name, default)


@runtime_checkable
class Taskset(Protocol):
    """An ordered collection of tasks. ``__getitem__`` raises ``IndexError`` past the end.

    A taskset may also have ``index_of(task_id) -> int`` (``KeyError`` for an unknown id); without it
    a task is found by reading them all.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Task: ...


class ListTaskset:
    """Tasks held in memory; a mapping becomes a task named by its position.

    Attributes:
        tasks: all of them, in order.

    Raises:
        EnvError: an item is neither a task nor a mapping.
    """

    def __init__(self, tasks: Sequence[Task | Mapping[str, Any]]) -> None:
        self.tasks = [t if isinstance(t, Task) else Task(str(i), t) for i, t in enumerate(tasks)]

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int, /) -> Task:
        tasks = self.tasks
        return tasks[index] if 0 <= index < len(tasks) else tasks[_checked(index, len(tasks))]


class ProceduralTaskset:
    """Tasks made by a function from a random generator, the same ones in every process.

    Args:
        generator: makes the fields of a task from ``rng``; it must draw from nothing else.
        count: how many tasks there are.
        seed: names the collection. Task ``i`` of seed ``s`` depends on ``(s, i)`` alone.
    """

    def __init__(
        self, generator: Callable[[np.random.Generator], Mapping[str, Any]], count: int, seed: int
    ) -> None:
        if count < 1:
            raise ConfigError(f"ProceduralTaskset needs a count of at least 1, got {count}")
        if seed < 0:
            raise ConfigError(f"ProceduralTaskset needs a seed of at least 0, got {seed}")
        self._generator = generator
        self._count = count
        self._seed = seed

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int, /) -> Task:
        index = _checked(index, self._count)
        return Task(f"{self._seed}-{index}", self._generator(np.random.default_rng((self._seed, index))))

    def index_of(self, task_id: str) -> int:
        """Return the position of a task. Raises KeyError if no task has this id."""
        return _numbered(task_id, f"{self._seed}-", self._count)


class _FileTaskset:
    """What the tasksets over files share: which fields a row must have, and what names it."""

    def __init__(self, path: str | Path, *, columns: Sequence[str] | None, id_column: str | None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"there is no file {str(self.path)!r}; give the path of an existing data set")
        if isinstance(columns, str):
            raise ConfigError(f"columns must be a list of names, such as [{columns!r}]; got {columns!r}")
        self._columns = None if columns is None else tuple(columns)
        self._id_column = id_column

    @property
    def _needed(self) -> tuple[str, ...]:
        ids = () if self._id_column is None else (self._id_column,)
        return tuple(dict.fromkeys((*(self._columns or ()), *ids)))

    def _check_columns(self, found: Sequence[str], where: str) -> None:
        missing = [name for name in self._needed if name not in found]
        if missing:
            raise DataError(
                f"{where} lacks {missing}: needed are {list(self._needed)}, found were {list(found)}"
            )

    def _task(self, index: int, row: Mapping[str, Any]) -> Task:
        return Task(str(index if self._id_column is None else row[self._id_column]), row)

    def __len__(self) -> int:
        raise TypeError("the length of a taskset is known to its file format")

    def index_of(self, task_id: str) -> int:
        """Return the position of a task. Raises KeyError if no task has this id."""
        if self._id_column is None:
            return _numbered(task_id, "", len(self))
        return self._positions[task_id]

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        tasks = cast(Taskset, self)
        positions: dict[str, int] = {}
        for i in range(len(self)):
            first = positions.setdefault(tasks[i].task_id, i)
            if first != i:
                raise DataError(
                    f"rows {first} and {i} of {str(self.path)!r} have the same {self._id_column!r},"
                    f" {tasks[i].task_id!r}; a task's id must be its own"
                )
        return positions


class JsonlTaskset(_FileTaskset):
    """Tasks of a JSON-lines file: one object a line, blank lines left out, read when asked for.

    Args:
        path: the file, UTF-8.
        columns: fields that every row must have; ``None`` asks for none.
        id_column: the field that names a task; by default its position does.

    Raises:
        DataError: no such file, no rows, or (when a row is read) not an object with the fields.
    """

    def __init__(
        self, path: str | Path, *, columns: Sequence[str] | None = None, id_column: str | None = None
    ) -> None:
        super().__init__(path, columns=columns, id_column=id_column)
        self._lines = _jsonl_lines(str(self.path.resolve()), *_stamp(self.path))
        if not len(self):
            raise DataError(f"{str(self.path)!r} holds no rows; expected one JSON object a line")
        self[0]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int, /) -> Task:
        index = _checked(index, len(self))
        number, offset = self._lines[index]
        with self.path.open("rb") as file:
            file.seek(offset)
            line = file.readline()
        where = f"line {number + 1} of {str(self.path)!r}"
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except ValueError as error:
            raise DataError(f"{where} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{where} is a {type(row).__name__}; expected a JSON object")
        self._check_columns(list(row), where)
        return self._task(index, row)


class ParquetTaskset(_FileTaskset):
    """Tasks of a Parquet file, read one row group at a time when asked for.

    Args:
        path: the file.
        columns: the columns to read, all of them needed; ``None`` reads every column.
        id_column: the column that names a task; by default its position does.

    Raises:
        DataError: no such file, not Parquet, no rows, or a needed column is missing (the message
            names the needed and the found ones).
    """

    def __init__(
        self, path: str | Path, *, columns: Sequence[str] | None = None, id_column: str | None = None
    ) -> None:
        super().__init__(path, columns=columns, id_column=id_column)
        self._source = (str(self.path.resolve()), *_stamp(self.path))
        self._check_columns(self.columns, repr(str(self.path)))
        if not len(self):
            raise DataError(f"{str(self.path)!r} holds no rows")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all the columns that the file has."""
        return _parquet(*self._source).columns

    def __len__(self) -> int:
        return int(_parquet(*self._source).starts[-1])

    def __getitem__(self, index: int, /) -> Task:
        index = _checked(index, len(self))
        names = None if self._columns is None else self._needed
        return self._task(index, _parquet(*self._source).row(index, names))


def as_taskset(tasks: object) -> Taskset:
    """Return what an author gives as tasks, a list of them or a taskset, as a taskset. Raises EnvError."""
    if isinstance(tasks, (list, tuple)):
        taskset = ListTaskset(tasks)
        ids = [task.task_id for task in taskset.tasks]
        if len(set(ids)) < len(ids):
            twice, count = Counter(ids).most_common(1)[0]
            raise EnvError(f"{count} tasks have the id {twice!r}; a task's id must be its own")
        return taskset
    if inspect.iscoroutine(tasks):
        tasks.close()
        raise EnvError("tasks() must be written with def, not async def")
    if isinstance(tasks, (str, Mapping)) or not isinstance(tasks, Taskset):
        raise EnvError(f"tasks() must return a Taskset or a list of tasks, got {type(tasks).__name__}")
    if len(tasks) and not isinstance(first := tasks[0], Task):
        raise EnvError(
            f"tasks() returned a {type(tasks).__name__} whose items are no Task but {type(first).__name__};"
            " where they are mappings, return list(...) of it"
        )
    return tasks


def find_task(taskset: Taskset, wanted: object) -> Task:
    """Return the task that ``wanted`` names.

    Args:
        taskset: where to look.
        wanted: a position, a task id, a :class:`Task`, or a mapping with the fields of a new task.

    Raises:
        ConfigError: there is no such task; the message gives the range or the nearest id.
    """
    if type(wanted) is int and 0 <= wanted < len(taskset):
        return taskset[wanted]
    if isinstance(wanted, Task):
        return wanted
    if isinstance(wanted, Mapping):
        return Task(str(wanted.get("task_id", "given")), dict(wanted))
    if isinstance(wanted, str):
        return taskset[_position(taskset, wanted)]
    try:
        index = operator.index(cast(Any, wanted))
    except TypeError:
        index = -1
    if isinstance(wanted, bool) or not 0 <= index < len(taskset):
        raise ConfigError(
            f"there is no task {wanted!r}: give a position from 0 to {len(taskset) - 1}, a task id,"
            " or a mapping with the task's fields"
        )
    return taskset[index]


def _position(taskset: Taskset, task_id: str) -> int:
    index_of = getattr(taskset, "index_of", None)
    try:
        if index_of is not None:
            return cast(int, index_of(task_id))
        return next(i for i in range(len(taskset)) if taskset[i].task_id == task_id)
    except (KeyError, StopIteration):
        some = [taskset[i].task_id for i in range(min(len(taskset), 1000))]
        raise ConfigError(
            f"no task has the id {task_id!r}: {len(taskset)} tasks, the first is {some[0]!r}."
            f"{nearest(task_id, some)}"
        ) from None


def _checked(index: int, count: int) -> int:
    if not 0 <= index < count:
        raise IndexError(f"task {index} of {count}: expected a position from 0 to {count - 1}")
    return index


def _numbered(task_id: str, prefix: str, count: int) -> int:
    number = task_id.removeprefix(prefix)
    if task_id != prefix + number or not number.isdecimal() or str(int(number)) != number:
        raise KeyError(task_id)
    if int(number) >= count:
        raise KeyError(task_id)
    return int(number)


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=16)
def _jsonl_lines(path: str, mtime_ns: int, size: int) -> NDArray[np.int64]:
    """i64[N, 2]: line number and byte offset of each line that is not blank, shared by instances."""
    del mtime_ns, size  # they only tell versions of the file apart
    found: list[tuple[int, int]] = []
    offset = 0
    with Path(path).open("rb") as file:
        for number, line in enumerate(file):
            if line.strip():
                found.append((number, offset))
            offset += len(line)
    return np.asarray(found, dtype=np.int64).reshape(-1, 2)


class _ParquetRows:
    """Random access to the rows of a Parquet file through a few cached row groups."""

    def __init__(self, path: str) -> None:
        import pyarrow as pa  # noqa: PLC0415  # heavy, and needed for Parquet only
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            self._file = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path!r} cannot be read as Parquet: {error}") from error
        self.columns: tuple[str, ...] = tuple(self._file.schema_arrow.names)
        sizes = [self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._group = functools.lru_cache(maxsize=_ROW_GROUPS_KEPT)(self._read_group)

    def _read_group(self, group: int, columns: tuple[str, ...] | None) -> Any:
        # No threads: a process forked later must not wait for a pool that stayed behind.
        return self._file.read_row_group(group, columns=columns and list(columns), use_threads=False)

    def row(self, index: int, columns: tuple[str, ...] | None) -> dict[str, Any]:
        group = int(np.searchsorted(self.starts, index, side="right")) - 1
        rows = self._group(group, columns).slice(index - int(self.starts[group]), 1).to_pylist()
        return cast(dict[str, Any], rows[0])


@functools.lru_cache(maxsize=16)
def _parquet(path: str, mtime_ns: int, size: int) -> _ParquetRows:
    del mtime_ns, size  # they only tell versions of the file apart
    return _ParquetRows(path)
