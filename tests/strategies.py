"""Hypothesis strategies for the contracts: valid trajectories of any shape, and text of any kind."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hyperrl.trajectory import (
    NOT_SAMPLED,
    Event,
    Failure,
    Group,
    RewardTerm,
    StopReason,
    ToolRecord,
    Trajectory,
    TruncationReason,
    Turn,
)

SURROGATES = st.characters(categories=["Cs"])

unicode_text = st.text(st.one_of(st.characters(), SURROGATES, st.sampled_from("\x00\ufdd0\ufffe\U0010ffff")))
"""Any ``str``: control and astral characters, lone surrogates and surrogate pairs in two code points."""

any_float = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([-0.0, 5e-324, -5e-324, float("inf")]),
    st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack(">d", raw)[0]),
)
"""Every bit pattern of a float64, NaN payloads included."""

finite_float = st.floats(allow_nan=False, allow_infinity=False)
int64 = st.integers(-(2**63), 2**63 - 1)
small = st.integers(0, 2**31 - 1)
short_text = st.one_of(st.text("abc_-", max_size=5), unicode_text)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | finite_float | unicode_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(unicode_text, inner, max_size=3),
    max_leaves=8,
)
json_mappings = st.dictionaries(unicode_text, json_values, max_size=3)
number_mappings = st.dictionaries(unicode_text, any_float, max_size=4)

failures = st.builds(Failure, kind=short_text, stage=short_text, reason=unicode_text, exclude=st.booleans())
tool_records = st.builds(
    ToolRecord,
    call_id=short_text,
    name=short_text,
    arguments=unicode_text,
    status=short_text,
    result=unicode_text,
    duration_s=any_float,
    repairs=st.lists(short_text, max_size=2).map(tuple),
)


def token_ids(length: st.SearchStrategy[int] | int) -> st.SearchStrategy[np.ndarray]:
    """i32[n] of token ids."""
    return hnp.arrays(np.int32, length, elements=small)


def logprobs(length: int) -> st.SearchStrategy[np.ndarray]:
    """f32[n], finite and at most 0: negative zero and subnormals included."""
    one = st.floats(max_value=0.0, width=32, allow_infinity=False) | st.sampled_from([0.0, -0.0, -1e-45])
    return hnp.arrays(np.float32, length, elements=one)


def last_version(turns: list[Turn], parent: int | None, policy: str) -> int:
    """The version that the next token of ``policy`` below ``parent`` may not go under."""
    while parent is not None:
        turn = turns[parent]
        if turn.sampled and turn.policy == policy and len(turn.policy_versions):
            return int(turn.policy_versions[-1])
        parent = turn.parent
    return 0


@st.composite
def turn_forests(draw: st.DrawFn, max_turns: int = 5) -> tuple[Turn, ...]:
    """Chains, trees and several roots, of several seats and uses, with rising versions."""
    turns: list[Turn] = []
    for index in range(draw(st.integers(0, max_turns))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        policy = draw(st.sampled_from(["main", "critic", "\udc80"]))
        use = draw(st.sampled_from(["train", "context", "side"]))
        length = draw(st.integers(0, 5))
        sampled = use != "context" and draw(st.booleans())
        least = last_version(turns, parent, policy)
        versions = draw(st.lists(st.integers(least, least + 3), min_size=length, max_size=length))
        turns.append(
            Turn(
                parent=parent,
                context_ids=draw(token_ids(st.integers(0, 5))),
                action_ids=draw(token_ids(length)),
                behavior_logprobs=draw(logprobs(length)) if sampled else None,
                policy_versions=np.array(sorted(versions) if sampled else [NOT_SAMPLED] * length, np.int32),
                temperature=draw(st.sampled_from([0.0, 0.7, 1.0]) | st.floats(0, 1e6)),
                stop_reason=draw(st.sampled_from(StopReason)),
                policy=policy,
                use=use,
            )
        )
    return tuple(turns)


def turn_indices(count: int) -> st.SearchStrategy[int | None]:
    """``None``, or the index of one of ``count`` turns."""
    return st.none() | st.integers(0, count - 1) if count else st.none()


def events(count: int) -> st.SearchStrategy[Event]:
    """An event of an episode of ``count`` turns."""
    return st.builds(
        Event,
        turn=turn_indices(count),
        observation=unicode_text,
        action=unicode_text,
        tool_calls=st.lists(tool_records, max_size=2).map(tuple),
        stepped=st.booleans(),
    )


@st.composite
def reward_terms(draw: st.DrawFn, count: int = 0) -> RewardTerm:
    """A scored or unscored term of an episode of ``count`` turns."""
    score = draw(st.none() | finite_float)
    return RewardTerm(
        name=draw(short_text),
        score=score,
        weight=draw(st.sampled_from([1.0, 0.0, -0.0]) | finite_float),
        turn=draw(turn_indices(count)),
        error=draw(failures) if score is None else draw(st.none() | failures),
        cause=draw(st.none() | short_text),
    )


@st.composite
def trajectories(draw: st.DrawFn, max_turns: int = 5) -> Trajectory:
    """Any valid trajectory that a store can keep."""
    turns = draw(turn_forests(max_turns))
    reason = draw(st.none() | st.sampled_from(TruncationReason))
    return Trajectory(
        run_id=draw(short_text),
        group_id=draw(st.tuples(int64, int64)),
        sample_index=draw(st.integers(0, 2**63 - 1)),
        task_id=draw(unicode_text),
        env_id=draw(short_text),
        env_version=draw(short_text),
        env_kwargs=draw(json_mappings),
        reset_options=draw(json_mappings),
        seed=draw(int64),
        program=draw(short_text),
        sandbox_level=draw(short_text),
        turns=turns,
        final_context_ids=draw(token_ids(st.integers(0, 4))),
        events=tuple(draw(st.lists(events(len(turns)), max_size=3))),
        reward_terms=tuple(draw(st.lists(reward_terms(len(turns)), max_size=3))),
        terminated=draw(st.booleans()),
        truncated=reason is not None,
        truncation_reason=reason,
        failure=draw(st.none() | failures),
        metrics=draw(number_mappings),
        timings=draw(number_mappings),
    )


@st.composite
def groups(draw: st.DrawFn, max_size: int = 4) -> Group:
    """Trajectories of one task."""
    group_id = draw(st.tuples(int64, int64))
    members = draw(st.lists(trajectories(max_turns=2), max_size=max_size))
    return Group(group_id, tuple(_in_group(member, group_id) for member in members))


def _in_group(member: Trajectory, group_id: tuple[int, int]) -> Trajectory:
    values = {name: getattr(member, name) for name in member.__dataclass_fields__}
    return Trajectory(**(values | {"group_id": group_id}))


def identical(left: object, right: object) -> bool:
    """Whether two values are of the same kind and equal bit for bit, at any depth."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return list(left) == list(right) and all(identical(left[key], right[key]) for key in left)
    if type(left) is not type(right):
        return False
    if dataclasses.is_dataclass(left):
        names = [part.name for part in dataclasses.fields(left)]
        return all(identical(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    return left == right
