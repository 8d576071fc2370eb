"""How Python values become Arrow arrays and come back: one small codec a kind of value.

A codec knows its Arrow type, encodes a sequence of values into one array, and decodes an array into a
list. They nest: a :class:`Struct` has columns, a :class:`Many` holds lists of what another one encodes.
So the layout of a file is said once, and reading is the mirror of writing.

Tokens never pass through Python objects: a :class:`Vector` concatenates NumPy arrays into one flat
buffer with offsets. Every float keeps its bits, whether -0.0, subnormal or NaN.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from hyperrl.errors import StoreError
from hyperrl.store.text import escape, restore

__all__ = ["Codec", "Column", "Json", "Many", "Numbers", "Pair", "Real", "Scalar", "Struct", "Text", "Vector"]


class Codec(Protocol):
    """Encodes values of one kind. ``None`` stands for a missing value wherever a codec allows it."""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the arrays."""
        ...

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Return an array with one entry a value. Raises StoreError for a value it cannot keep."""
        ...

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the values again."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """A named part of a record.

    Attributes:
        name: its name in the file, and as a keyword of the record.
        codec: how it is kept.
        of: how it is taken from the record; by default the attribute of that name.
        derived: kept for listings only; never given back to the record.
    """

    name: str
    codec: Codec
    of: Callable[[Any], Any] | None = None
    derived: bool = False

    def encode(self, records: Sequence[Any]) -> pa.Array:
        """Encode this part of all records; ``None`` in place of a record stays ``None``."""
        take = self.of or attrgetter(self.name)
        try:
            return self.codec.encode([None if record is None else take(record) for record in records])
        except StoreError as error:
            raise StoreError(f"{self.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class Scalar:
    """Integers and booleans."""

    type: pa.DataType

    def encode(self, values: Sequence[Any]) -> pa.Array:
        try:
            return pa.array(values, type=self.type)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            raise StoreError(f"{self._culprit(values)} cannot be kept as {self.type}") from error

    def decode(self, array: pa.Array) -> list[Any]:
        return list(array.to_pylist())

    def _culprit(self, values: Sequence[Any]) -> str:
        for value in values:
            try:
                pa.array([value], type=self.type)
            except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
                return _shown(value)
        return "a value"


@dataclass(frozen=True, slots=True)
class Real:
    """Floats, bit for bit. Other real numbers are kept as floats where that loses nothing."""

    type: pa.DataType = field(default_factory=pa.float64)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([value if type(value) is float else _exact(value) for value in values], self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        return list(array.to_pylist())


@dataclass(frozen=True, slots=True)
class Text:
    """Any ``str``; ``read`` turns it into what the record wants, such as an enum."""

    read: Callable[[str], Any] | None = None
    type: pa.DataType = field(default_factory=pa.large_string)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([None if value is None else escape(_text(value)) for value in values], self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        texts = [None if value is None else restore(value) for value in array.to_pylist()]
        read = self.read
        return texts if read is None else [None if text is None else read(text) for text in texts]


@dataclass(frozen=True, slots=True)
class Json:
    """A mapping of JSON values, exact: no value is kept that would come back as another one."""

    type: pa.DataType = field(default_factory=pa.large_string)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([escape(_json(value)) for value in values], self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        return [json.loads(restore(value)) for value in array.to_pylist()]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two integers with a name each."""

    names: tuple[str, str]

    @property
    def type(self) -> pa.DataType:
        return pa.struct([(name, pa.int64()) for name in self.names])

    def encode(self, values: Sequence[Any]) -> pa.Array:
        one = Scalar(pa.int64())
        halves = [one.encode([value[side] for value in values]) for side in (0, 1)]
        return pa.StructArray.from_arrays(halves, fields=list(self.type))

    def decode(self, array: pa.Array) -> list[Any]:
        return list(zip(*(array.field(name).to_pylist() for name in self.names), strict=True))


@dataclass(frozen=True, slots=True)
class Vector:
    """One-dimensional NumPy arrays of one dtype. They come back read-only and own their memory."""

    dtype: type[np.generic]

    @property
    def type(self) -> pa.DataType:
        return pa.large_list(pa.from_numpy_dtype(self.dtype))

    def encode(self, values: Sequence[Any]) -> pa.Array:
        present = [value for value in values if value is not None]
        flat = np.concatenate([np.zeros(0, self.dtype), *present])
        offsets = _offsets(0 if value is None else len(value) for value in values)
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
        mask = pa.array(missing) if missing.any() else None
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat), type=self.type, mask=mask)

    def decode(self, array: pa.Array) -> list[Any]:
        flat = array.values.to_numpy(zero_copy_only=True)
        bounds = pairwise(array.offsets.to_numpy().tolist())
        missing = array.is_null().to_pylist() if array.null_count else [False] * len(array)
        return [
            None if null else _owned(flat[start:stop])
            for (start, stop), null in zip(bounds, missing, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Many:
    """Tuples of what another codec encodes."""

    inner: Codec

    @property
    def type(self) -> pa.DataType:
        return pa.large_list(self.inner.type)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        offsets = _offsets(len(value) for value in values)
        flat = self.inner.encode(list(chain.from_iterable(values)))
        return pa.LargeListArray.from_arrays(pa.array(offsets), flat, type=self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        offsets = array.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        flat = self.inner.decode(array.values[first:last])
        return [tuple(flat[start:stop]) for start, stop in pairwise((offsets - first).tolist())]


@dataclass(frozen=True, slots=True)
class Struct:
    """Records of one class. A column that an older file lacks takes the default of the class."""

    make: Callable[..., Any]
    columns: tuple[Column, ...]

    @property
    def type(self) -> pa.DataType:
        return pa.struct([(column.name, column.codec.type) for column in self.columns])

    def encode(self, values: Sequence[Any]) -> pa.Array:
        parts = [column.encode(values) for column in self.columns]
        missing = [value is None for value in values]
        mask = pa.array(missing) if any(missing) else None
        return pa.StructArray.from_arrays(parts, fields=list(self.type), mask=mask)

    def decode(self, array: pa.Array) -> list[Any]:
        known = [c for c in self.columns if not c.derived and array.type.get_field_index(c.name) >= 0]
        names = [column.name for column in known]
        parts = [column.codec.decode(array.field(column.name)) for column in known]
        missing = array.is_null().to_pylist() if array.null_count else [False] * len(array)
        return [
            None if null else self.make(**dict(zip(names, row, strict=True)))
            for null, row in zip(missing, zip(*parts, strict=True), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A mapping of names to floats."""

    @property
    def _items(self) -> Many:
        pairs = (Column("name", Text(), itemgetter(0)), Column("value", Real(), itemgetter(1)))
        return Many(Struct(lambda name, value: (name, value), pairs))

    @property
    def type(self) -> pa.DataType:
        return self._items.type

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return self._items.encode([tuple(value.items()) for value in values])

    def decode(self, array: pa.Array) -> list[Any]:
        return [dict(items) for items in self._items.decode(array)]


def _offsets(lengths: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.cumsum([0, *lengths], dtype=np.int64)


def _owned(part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy a piece of a file's buffer, so that one kept episode does not keep the whole file."""
    copy = part.copy()
    copy.flags.writeable = False
    return copy


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise StoreError(f"expected text, got {_shown(value)} of type {type(value).__name__}")
    return value


def _exact(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, numbers.Real):
        raise StoreError(f"expected a number, got {_shown(value)} of type {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError as error:
        raise StoreError(f"{_shown(value)} does not fit into a float") from error
    if number != value and value == value:  # noqa: PLR0124 -- a NaN differs from itself and is exact
        raise StoreError(f"{_shown(value)} would be rounded to {number!r}; pass it as a float")
    return number


def _json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(_plain(value, "it"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise StoreError("it is nested too deeply, or refers to itself") from error
    except ValueError as error:
        raise StoreError(f"it has no JSON form ({error})") from error


def _plain(value: object, where: str) -> object:
    """Return ``value`` built of JSON's own types only. Raises StoreError where that would change it."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise StoreError(f"{where} holds {value}, which JSON cannot express; pass null or a text")
        return value
    if isinstance(value, list):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise StoreError(
        f"{where} holds {_shown(value)} of type {type(value).__name__}, which would not come back as it was;"
        " expected None, bool, int, float, str, list or a mapping with str keys"
    )


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise StoreError(f"{where} has the key {_shown(key)}; JSON knows only str keys")
    return key
