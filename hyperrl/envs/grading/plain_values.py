"""Plain values between processes: written as JSON, so that reading them runs nobody's code.

Plain are None, bool, int, float, complex, str, bytes, and lists, tuples, sets, frozensets and dicts of
those. An object of a subclass counts as the data it holds: an ``__eq__`` of its own does not travel.

In JSON, None, bools, strings and small integers stand for themselves; everything else is a list of a
letter and its content. The module is copied into sandboxes, so it imports the standard library only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

__all__ = ["MAX_DEPTH", "decode", "encode", "same"]

MAX_DEPTH = 60
"""Values are nested at most this deep."""

_SMALL = 1 << 53
_SEQUENCES: dict[str, Any] = {"l": list, "t": tuple, "s": set, "z": frozenset}


def encode(value: object, depth: int = MAX_DEPTH) -> Any:
    """Return ``value`` as data for ``json.dumps``.

    Raises:
        TypeError: something in it is not plain.
        ValueError: it is nested deeper than ``depth``.
    """
    if depth < 0:
        raise ValueError(f"the value is nested more than {MAX_DEPTH} deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float, complex, bytes, bytearray)):
        return _encode_atom(value)
    return _encode_collection(value, depth - 1)


def _encode_atom(value: Any) -> Any:
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -_SMALL < number < _SMALL else ["i", hex(number)]
    if isinstance(value, float):
        return ["f", float.hex(value)]
    if isinstance(value, (bytes, bytearray)):
        return ["b", bytes(value).hex()]
    return ["c", value.real.hex(), value.imag.hex()]


def _encode_collection(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return ["d", *([encode(key, depth), encode(item, depth)] for key, item in dict.items(value))]
    for letter, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return [letter, *(encode(item, depth) for item in kind.__iter__(value))]
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), depth)
    raise TypeError(f"a value of type {type(value).__name__} is not plain data")


def decode(data: Any, depth: int = MAX_DEPTH, *, most_keys: int | None = None) -> Any:
    """Return the value that :func:`encode` wrote.

    Args:
        data: what it wrote, or what somebody pretends that it wrote.
        depth: how deep it may be nested.
        most_keys: how many elements one set or dict may have. Whoever chooses them freely can make each
            collide with all others, so that time grows with the square.

    Raises:
        ValueError: ``data`` is nothing that it writes, or exceeds a limit.
    """
    if data is None or isinstance(data, (bool, str, int)):
        return data
    if not (isinstance(data, list) and data and isinstance(data[0], str)) or depth < 0:
        raise ValueError("this is no plain value")
    letter, content = data[0], data[1:]
    if most_keys is not None and letter in "szd" and len(content) > most_keys:
        raise ValueError(f"a set or dict has more than {most_keys} elements")
    inner = functools.partial(decode, depth=depth - 1, most_keys=most_keys)
    try:
        if letter in _SEQUENCES:
            return _SEQUENCES[letter](map(inner, content))
        if letter == "d":
            return {inner(key): inner(item) for key, item in content}
        return _decode_atom(letter, *content)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"this is no plain value: {error}") from error


def _decode_atom(letter: str, text: str, *more: str) -> Any:
    if letter == "i":
        return int(text, 16)
    if letter == "f":
        return float.fromhex(text)
    if letter == "b":
        return bytes.fromhex(text)
    if letter == "c":
        return complex(float.fromhex(text), float.fromhex(*more))
    raise ValueError(f"there are no plain values {letter!r}")


def same(got: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether two plain values are equal as ``==`` says, except that NaN equals NaN.

    Args:
        got: a plain value.
        expected: another one.
        tolerance: how far a float may be from what is expected, relatively (absolutely near 0),
            wherever it stands in lists, tuples and values of dicts.
    """
    if isinstance(expected, (list, tuple)):
        return type(got) is type(expected) and len(got) == len(expected) and _all(got, expected, tolerance)
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return False
        return _all((got[key] for key in expected), expected.values(), tolerance)
    if isinstance(got, (int, float)) and isinstance(expected, (int, float)):
        return _same_number(got, expected, tolerance)
    return bool(got == expected)


def _all(got: Iterable[Any], expected: Iterable[Any], tolerance: float) -> bool:
    return all(same(one, other, tolerance) for one, other in zip(got, expected, strict=True))


def _same_number(got: Any, expected: Any, tolerance: float) -> bool:
    if got == expected or (_is_nan(got) and _is_nan(expected)):
        return True
    if not tolerance or not (isinstance(got, float) or isinstance(expected, float)):
        return False
    try:
        return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer beyond all floats
        return False


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
