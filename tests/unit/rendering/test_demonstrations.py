"""Conversations of others as trajectories: what is read, what is learned, and in which context."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.agents.demonstrations import (
    Demonstration,
    DemonstrationKeys,
    make_demonstration,
    read_demonstrations,
)
from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.agents.round_trip import make_chatml_renderer
from hyperrl.errors import DataError, SamplingError, TemplateError
from hyperrl.train.batching import make_segments

USER = {"role": "user", "content": "What is 2 + 3?"}
THOUGHT = {"role": "assistant", "content": "5", "reasoning_content": "Two and three."}
AGAIN = {"role": "user", "content": "And twice that?"}
ANSWER = {"role": "assistant", "content": "10"}
CALL = {"id": "c0", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": null}'}}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number", "description": "One."}}},
    },
}
ASKS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TELLS = {"role": "tool", "content": "2", "tool_call_id": "c0", "name": "add"}


def learned(renderer: TemplateRenderer, messages: list[dict[str, Any]], **options: Any) -> list[list[str]]:
    """The texts that are learned from, and before each the text that it is said after, by segment."""
    made = make_demonstration(
        renderer, Demonstration(messages=messages, tools=options.pop("tools", ())), **options
    )
    found = []
    for segment in make_segments(made, learn="gold"):
        mask, ids = segment.loss_mask.tolist(), segment.token_ids.tolist()
        starts = [0, *(i for i in range(1, len(ids)) if mask[i] != mask[i - 1]), len(ids)]
        found.append([renderer.decode(ids[a:b]) for a, b in itertools.pairwise(starts)])
    return found


def test_only_what_the_assistant_says_is_learned(chatml: TemplateRenderer) -> None:
    assert learned(chatml, [{"role": "system", "content": "Be brief."}, USER, ANSWER, AGAIN, ANSWER]) == [
        [
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n"
            "<|im_start|>assistant\n",
            "10<|im_end|>",
            "\n<|im_start|>user\nAnd twice that?<|im_end|>\n<|im_start|>assistant\n",
            "10<|im_end|>",
        ]
    ]


def test_control_strings_in_texts_are_not_the_boundary(chatml: TemplateRenderer) -> None:
    sly = {"role": "assistant", "content": "<|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>"}
    ((prompt, said),) = learned(chatml, [{"role": "user", "content": sly["content"]}, sly])
    assert said == sly["content"] + "<|im_end|>"
    assert prompt.endswith("<|im_start|>assistant\n")
    turn = make_demonstration(chatml, Demonstration(messages=[USER, sly])).turns[0]
    assert [i for i in turn.action_ids.tolist() if i in chatml.stop_ids] == [turn.action_ids[-1]]


def test_calls_and_reasoning_are_learned_as_the_template_writes_them(qwen3: TemplateRenderer) -> None:
    ((_, asked, _, said),) = learned(
        qwen3, [USER, {**ASKS, "reasoning_content": "A tool helps."}, TELLS, ANSWER], tools=[TOOL]
    )
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": null}}\n</tool_call><|im_end|>'
    assert asked == f"<think>\nA tool helps.\n</think>\n\n{call}"
    assert said == "<think>\n\n</think>\n\n10<|im_end|>"


def test_history_is_what_was_said_or_what_the_template_makes_of_it(qwen3: TemplateRenderer) -> None:
    messages = [USER, THOUGHT, AGAIN, ANSWER]
    ((_, first, between, second),) = learned(qwen3, messages)
    assert first == "<think>\nTwo and three.\n</think>\n\n5<|im_end|>"
    assert between.startswith("\n<|im_start|>user")
    (prompt, stripped_second), (_, stripped_first) = learned(qwen3, messages, history="template")
    assert (stripped_first, stripped_second) == (first, second)
    assert "Two and three." not in prompt
    assert "<|im_start|>assistant\n5<|im_end|>" in prompt


def test_the_context_is_the_one_that_a_rollout_would_show(qwen3: TemplateRenderer) -> None:
    made = make_demonstration(qwen3, Demonstration(messages=[USER, THOUGHT, AGAIN, ANSWER]))
    first, second = made.turns
    assert first.context_ids.tolist() == qwen3.first([USER])
    assert second.context_ids.tolist() == qwen3.bridge(first.action_ids.tolist(), [AGAIN])
    parsed = qwen3.parse(first.action_ids.tolist(), id_prefix="call")
    assert (parsed.content, parsed.reasoning) == ("5", "Two and three.")


def test_a_message_of_weight_0_is_read_only(chatml: TemplateRenderer) -> None:
    ((prompt, said),) = learned(chatml, [USER, {**ANSWER, "weight": 0}, AGAIN, ANSWER])
    assert "10<|im_end|>" in prompt
    assert said == "10<|im_end|>"


def test_two_answers_in_a_row_are_two_turns(chatml: TemplateRenderer) -> None:
    ((_, first, between, second),) = learned(chatml, [USER, ANSWER, {**ANSWER, "content": "11"}])
    assert (first, second) == ("10<|im_end|>", "11<|im_end|>")
    assert between == "\n<|im_start|>assistant\n"


def test_an_answer_that_the_template_writes_otherwise_is_refused(
    family: Callable[[str], TemplateRenderer],
) -> None:
    opens = family("nemotron_3_nano_training")  # opens <think> before every answer
    with pytest.raises(TemplateError, match=r"opens an answer with .*<think>"):
        make_demonstration(opens, Demonstration(messages=[USER, ANSWER]))
    loses = family("qwen3_instruct_2507_training")
    with pytest.raises(TemplateError, match=r"leaves 'Two and three\.' out of an answer"):
        make_demonstration(loses, Demonstration(messages=[USER, THOUGHT]))
    with pytest.raises(SamplingError, match="the last message must be the assistant's"):
        loses.action([USER])


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4)
)
def test_every_text_is_learned_whole_and_once(texts: list[str]) -> None:
    renderer = make_chatml_renderer()
    messages = [m for text in texts for m in ({"role": "user", "content": text}, {**ANSWER, "content": text})]
    made = make_demonstration(renderer, Demonstration(messages=messages))
    said = [renderer.decode(turn.action_ids[:-1].tolist()) for turn in made.turns]
    assert said == [text.replace("\ufdd0", "\ufffd").replace("\ufdd1", "\ufffd") for text in texts]
    assert made == make_demonstration(renderer, Demonstration(messages=messages), history="template")


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ROWS = [
    {"messages": [USER, ASKS, TELLS, ANSWER], "tools": [TOOL], "enable_thinking": False},
    {"messages": [USER, THOUGHT], "tools": None, "enable_thinking": None},
]


def test_json_lines_and_parquet_hold_the_same(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "b.parquet")
    lines, columns = list(read_demonstrations(path)), list(read_demonstrations(tmp_path / "b.parquet"))
    for one, other in zip(lines, columns, strict=True):
        assert (one.messages, one.tools, one.template_options) == (
            other.messages,
            other.tools,
            other.template_options,
        )
    assert lines[0].template_options == {"enable_thinking": False}
    assert lines[1].tools == []
    assert [d.where for d in read_demonstrations(tmp_path)] == [
        "a.jsonl, row 0",
        "a.jsonl, row 1",
        "b.parquet, row 0",
        "b.parquet, row 1",
    ]


def test_keys_can_be_named_and_values_be_json_texts(tmp_path: Path) -> None:
    rows = [{"chat": json.dumps([USER, ANSWER]), "functions": json.dumps([TOOL])}]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    (one,) = read_demonstrations(path, DemonstrationKeys(messages="chat", tools="functions"))
    assert (one.messages, one.tools) == ([USER, ANSWER], [TOOL])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": []}, r"lacks \['messages'\].*found were \['prompt'\]"),
        ({"messages": []}, "at least one"),
        ({"messages": "hello"}, "is a text, but not JSON"),
        ({"messages": [{"from": "human", "value": "hi"}]}, "row 0: 'messages' must be a list of messages"),
        ({"messages": [USER], "tools": {"a": 1}}, "must be a list of tool schemas"),
    ],
)
def test_rows_that_are_no_conversation_are_named(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_demonstrations(write_jsonl(tmp_path / "a.jsonl", [row])))


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    pq.write_table(pa.table({"message": ["x"], "answer": ["y"]}), tmp_path / "a.parquet")
    with pytest.raises(
        DataError, match=r"no column 'messages'; found were \['message', 'answer'\]\. Did you"
    ):
        list(read_demonstrations(tmp_path / "a.parquet"))
    with pytest.raises(DataError, match=r"must be a \.jsonl or \.parquet file"):
        list(read_demonstrations(tmp_path / "a.csv"))
    with pytest.raises(DataError, match="there is no file"):
        list(read_demonstrations(tmp_path / "b.jsonl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no"):
        list(read_demonstrations(tmp_path / "empty"))
