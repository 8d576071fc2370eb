"""Messages as data: what counts as the same message, and what a copy is safe from."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.agents.conversation import (
    assistant_message,
    canonical,
    keep,
    message_text,
    recall,
    same_message,
    snapshot,
)
from hyperrl.agents.rendering import ParsedAction
from hyperrl.errors import RolloutError
from hyperrl.sampling import ToolCall


def call(arguments: object, call_id: str = "c1", name: str = "add") -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def same(left: dict[str, object], right: dict[str, object]) -> bool:
    return same_message(canonical(left), canonical(right))


messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"])},
    optional={
        "content": st.none() | st.text() | st.lists(st.fixed_dictionaries({"text": st.text()}), max_size=2),
        "tool_call_id": st.text(),
        "tool_calls": st.just([call("{}")]),
    },
)


@given(message=messages)
def test_what_is_kept_of_a_message_is_out_of_reach(message: dict[str, object]) -> None:
    before = json.loads(json.dumps(message))
    kept = keep(message)
    for value in message.values():
        if isinstance(value, list):
            value.clear()
    message["role"] = "nobody"
    assert recall(kept) == before
    assert type(recall(kept)) is dict


@pytest.mark.parametrize("empty", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_the_ways_of_saying_nothing_are_the_same(empty: dict[str, object]) -> None:
    assert same({"role": "user", **empty}, {"role": "user"})


def test_developer_is_system_and_text_parts_are_text() -> None:
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "text", "text": "b", "cache_control": {"type": "x"}},
    ]
    assert same({"role": "developer", "content": "ab"}, {"role": "system", "content": parts})


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}', True),
        ('{"a": 1}', {"a": 1}, True),
        ('{"a": 1}', '{"a": 1.0}', False),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": ', "{}", True),
        (None, "{}", True),
    ],
)
def test_arguments_are_compared_as_json(left: object, right: object, expected: bool) -> None:
    message = {"role": "assistant", "content": ""}
    assert same({**message, "tool_calls": [call(left)]}, {**message, "tool_calls": [call(right)]}) is expected


def test_call_ids_and_names_matter() -> None:
    message = {"role": "assistant", "tool_calls": [call("{}")]}
    assert not same(message, {"role": "assistant", "tool_calls": [call("{}", call_id="c2")]})
    assert not same(message, {"role": "assistant", "tool_calls": [call("{}", name="sub")]})
    assert not same(message, {"role": "assistant"})


def test_reasoning_may_be_left_out_but_not_rewritten() -> None:
    recorded = {"role": "assistant", "content": "5", "reasoning_content": "2 + 3"}
    assert same(recorded, {"role": "assistant", "content": "5"})
    assert same(recorded, {"role": "assistant", "content": "5", "reasoning": "2 + 3"})
    assert not same(recorded, {"role": "assistant", "content": "5", "reasoning_content": "3 + 2"})


@pytest.mark.parametrize("bad", ["hello", None, {}, {"role": 3}])
def test_what_is_no_message_is_refused(bad: object) -> None:
    with pytest.raises(RolloutError, match="mapping with a 'role'"):
        canonical(bad)


def test_a_tool_call_must_be_a_mapping() -> None:
    with pytest.raises(RolloutError, match="tool call must be a mapping"):
        canonical({"role": "assistant", "tool_calls": ["add"]})


def test_a_snapshot_is_out_of_reach() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}],
        "tool_calls": [call({"a": [1]})],
    }
    (copy,) = snapshot([message])
    before = json.dumps(copy)
    message["content"][0]["text"] = "b"  # type: ignore[index]
    message["tool_calls"][0]["function"]["arguments"]["a"].append(2)
    message["role"] = "user"
    assert json.dumps(copy) == before


def test_unknown_parts_still_have_a_text() -> None:
    assert message_text({"role": "user", "content": [{"type": "image", "url": "x"}]})
    assert message_text({"role": "user", "content": {"odd": 1}}) == '{"odd": 1}'


def test_a_broken_call_keeps_its_place_in_the_message() -> None:
    calls = (
        ToolCall(call_id="c0", name="add", arguments={"a": "é"}, raw="..."),
        ToolCall(call_id="c1", name="", arguments=None, raw="<tool_call>{bad", status="unclosed"),
    )
    parsed = ParsedAction(content="hm", reasoning="", tool_calls=calls, text="")
    message = assistant_message(parsed)
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": "é"}'}
    assert message["tool_calls"][1]["function"] == {"name": "", "arguments": "<tool_call>{bad"}
    assert "reasoning_content" not in message
