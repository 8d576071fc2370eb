"""Read-only NumPy arrays in frozen records, and their comparison bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hyperrl.errors import TrajectoryError

__all__ = ["identical", "is_sealed", "seal"]


def identical(left: object, right: object) -> bool:
    """Whether two values are equal bit for bit: NaNs with the same bits are, 0.0 and -0.0 are not."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, float) and isinstance(right, float):
        return np.float64(left).tobytes() == np.float64(right).tobytes()
    if isinstance(left, tuple | list) and type(left) is type(right):
        other = cast("Sequence[object]", right)
        return len(left) == len(other) and all(map(identical, left, other))
    if dataclasses.is_dataclass(left) and type(left) is type(right):
        names = [part.name for part in dataclasses.fields(left)]
        return all(identical(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(identical(left[k], right[k]) for k in left)
    return bool(left == right)


def is_sealed(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether an array lies in bytes, which nobody can write to, and has one dimension and this very dtype.

    False says nothing: then :func:`seal` must look closer.
    """
    base: Any = array.base
    return type(base) is bytes and array.dtype is dtype and array.ndim == 1


def seal(values: object, dtype: np.dtype[Any], name: str, turn: int | None = None) -> NDArray[Any]:
    """Return ``values`` as a read-only one-dimensional array of ``dtype``; copies only if needed.

    Raises:
        TrajectoryError: it has another shape or dtype; the message names ``name`` and ``turn``.
    """
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=dtype)
    known = array.dtype is dtype or array.dtype == dtype
    if array.ndim != 1 or (not known and array.size):
        where = name if turn is None else f"turn {turn}: {name}"
        raise TrajectoryError(
            f"{where} must be a one-dimensional {dtype.name} array, got shape {array.shape} of {array.dtype}"
        )
    if not known:
        array = array.astype(dtype)
    base = array.base
    if array.flags.writeable or (isinstance(base, np.ndarray) and base.flags.writeable):
        array = array.copy()
        array.flags.writeable = False
    return array
