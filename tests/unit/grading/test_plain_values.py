"""Plain values between processes."""

import enum
import json
import math
import time
from collections import Counter, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs.grading.plain_values import MAX_DEPTH, decode, encode, same

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=1 << 200, max_value=1 << 300)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(ATOMS, inner)
        | st.sets(ATOMS)
        | st.frozensets(ATOMS)
    ),
    max_leaves=15,
)


class Sly(int):
    """Claims to be everything."""

    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class SlyText(str):
    __slots__ = ()

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__

    def __str__(self):
        return "what is expected"


@given(VALUES)
def test_values_come_back_as_they_were(value):
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)
    assert same(back, value)


@given(VALUES, VALUES)
def test_same_is_what_python_calls_equal(left, right):
    assert same(left, right) == (left == right)


def test_objects_count_as_the_data_they_hold():
    pair = namedtuple("pair", "a b")
    level = enum.IntEnum("level", "LOW HIGH")
    values = [Sly(3), SlyText("no"), pair(1, 2), Counter("aab"), level.HIGH, bytearray(b"x"), True]
    assert decode(encode(values)) == [3, "no", (1, 2), {"a": 2, "b": 1}, 2, b"x", True]
    assert [type(value) for value in decode(encode(values))] == [int, str, tuple, dict, int, bytes, bool]
    assert not same(decode(encode(Sly(3))), 4)


@pytest.mark.parametrize("value", [object(), len, iter([]), range(3), set, (x for x in "a")])
def test_what_is_not_plain_is_named(value):
    with pytest.raises(TypeError, match=type(value).__name__):
        encode(value)


def test_depth_is_bounded_on_both_sides():
    deep: list = []
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        encode(deep)
    data = ["l"]
    for _ in range(MAX_DEPTH + 5):
        data = ["l", data]
    with pytest.raises(ValueError, match="no plain value"):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        1.5,
        {},
        [],
        [1],
        ["q", 1],
        ["i", 5],
        ["i", "zz"],
        ["i"],
        ["f", "x"],
        ["f", "0x1p99999"],
        ["b", "0g"],
        ["c", "0x0p0"],
        ["d", 1],
        ["d", [1]],
        ["s", ["l"]],
        ["d", [["l"], 1]],
        ["l", ["l", 2.0]],
    ],
)
def test_nothing_else_is_read(data):
    with pytest.raises(ValueError, match=r"plain value|literal|hexadecimal|unpack"):
        decode(data)


def test_colliding_keys_cannot_cost_much():
    modulus = (1 << 61) - 1
    data = ["s", *(["i", hex(modulus * (n + 1))] for n in range(30_000))]
    before = time.process_time()
    with pytest.raises(ValueError, match="more than 256"):
        decode(["l", data], most_keys=256)
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "equal"),
    [
        (math.nan, math.nan, 0.0, True),
        ([math.nan], [math.nan], 0.0, True),
        (1, 1.0, 0.0, True),
        (True, 1, 0.0, True),
        ((1,), [1], 0.0, False),
        (0.1 + 0.2, 0.3, 0.0, False),
        (0.1 + 0.2, 0.3, 1e-9, True),
        ({"a": [0.1 + 0.2]}, {"a": [0.3]}, 1e-9, True),
        ({"b": 1}, {"a": 1}, 0.0, False),
        (3, 4, 0.5, False),
        (10**400, 1.0, 0.5, False),
        ({1, 2}, {2, 1}, 0.0, True),
        (None, 0, 0.0, False),
        ("1", 1, 1.0, False),
    ],
)
def test_tolerance_and_nan(got, expected, tolerance, equal):
    assert same(got, expected, tolerance) is equal
