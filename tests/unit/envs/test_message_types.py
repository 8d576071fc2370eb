from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs import Action, Observation
from hyperrl.envs.messages import message_text, visible_text
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import StopReason

any_text = st.text(st.characters(exclude_categories=()))
COPIES = [
    lambda value: pickle.loads(pickle.dumps(value)),
    lambda value: pickle.loads(pickle.dumps(value, protocol=2)),
    copy.copy,
    copy.deepcopy,
]


@given(text=any_text)
def test_a_plain_observation_is_one_user_message(text):
    made = Observation(text)
    assert (made, type(made), made.messages) == (text, Observation, ({"role": "user", "content": text},))
    assert made.messages == Observation.from_messages([{"role": "user", "content": text}]).messages


@pytest.mark.parametrize("copied", COPIES)
@given(text=any_text)
def test_an_observation_survives_copies(copied, text):
    observation = Observation(text, [{"role": "tool", "content": text, "tool_call_id": "a"}])
    other = copied(observation)
    assert type(other) is Observation
    assert other == observation == text
    assert other.messages == observation.messages


@pytest.mark.parametrize("copied", COPIES)
def test_an_action_survives_copies(copied):
    call = ToolCall(call_id="c", name="f", arguments={"x": [1]}, raw="{}", repairs=("trailing_comma",))
    action = Action(
        "\ud800x", token_ids=[1, 2], tool_calls=[call], stop_reason=StopReason.LENGTH, content="x"
    )
    other = copied(action)
    assert type(other) is Action
    assert other == action == "\ud800x"
    assert other.token_ids == (1, 2)
    assert other.tool_calls == (call,)
    assert other.stop_reason is StopReason.LENGTH
    assert other.content == "x"


def test_they_are_strings_to_everybody_else():
    assert json.dumps(Observation("a")) == json.dumps(Action("a")) == '"a"'
    assert {Observation("a"): 1}["a"] == 1
    assert type(Observation("a") + "b") is str


def test_an_observation_without_messages_is_one_user_message():
    assert Observation("hi").messages == ({"role": "user", "content": "hi"},)
    assert Observation("", ()).messages == ()


def test_an_observation_of_messages_reads_as_their_texts():
    observation = Observation.from_messages(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": None},
        ]
    )
    assert observation == "Be brief.\n\nab"
    assert len(observation.messages) == 3


def test_an_action_knows_nothing_that_it_was_not_told():
    action = Action("x")
    assert (action.token_ids, action.tool_calls, action.stop_reason, action.content) == (None,) * 4
    assert Action("x", tool_calls=()).tool_calls == ()


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("42", "42"),
        ("<think>41?</think>\n\n42", "42"),
        ("41?</think>42", "42"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>never closed 42", ""),
        ("42 <think>or 43", "42 "),
        ("", ""),
        ("</think>", ""),
        ("a < b > c", "a < b > c"),
    ],
)
def test_reasoning_is_not_visible(text, visible):
    assert visible_text(text) == visible


def test_message_text_of_odd_content_is_empty():
    assert message_text({"role": "user"}) == ""
    assert message_text({"role": "user", "content": 3}) == ""
    assert message_text({"role": "user", "content": [{"type": "image_url"}, "x"]}) == ""
