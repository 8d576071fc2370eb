from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed_calls import CASES, GOOD, Case, call

from hyperrl.envs.tool_calls import parse_call_body, parse_tool_calls

STATUSES = {"ok", "invalid_json", "unclosed", "missing_name", "malformed"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_malformed_call_has_its_status(case: Case) -> None:
    parsed = parse_tool_calls(case.text, id_prefix="call_")
    assert tuple(c.status for c in parsed.tool_calls) == case.statuses
    if case.arguments:
        assert tuple(c.arguments for c in parsed.tool_calls) == case.arguments
    if case.content is not None:
        assert parsed.content == case.content
    for read in parsed.tool_calls:
        assert read.raw in case.text
        assert read.span is None
        assert (read.arguments is not None) == (read.status == "ok")
        if case.repairs:
            assert read.repairs == case.repairs


def test_ids_are_numbered_over_all_calls() -> None:
    parsed = parse_tool_calls(f"{call('[' + GOOD + ',' + GOOD + ']')}{call(GOOD)}", id_prefix="call_7")
    assert [c.call_id for c in parsed.tool_calls] == ["call_7_0", "call_7_1", "call_7_2"]


def test_nothing_of_the_text_is_lost() -> None:
    text = f"before {call('nonsense')} between {call(GOOD)} after"
    parsed = parse_tool_calls(text, id_prefix="c")
    assert parsed.content == "before  between  after"
    assert [c.raw for c in parsed.tool_calls] == [call("nonsense"), call(GOOD)]


def test_reasoning_is_split_off() -> None:
    parsed = parse_tool_calls("<think>\n2 + 2 is 4\n</think>\n\nFour.", id_prefix="c")
    assert (parsed.reasoning, parsed.content) == ("2 + 2 is 4", "Four.")


def test_lone_surrogates_stay_as_they_are() -> None:
    parsed = parse_tool_calls("a\ud800b" + call('{"name": "f", "arguments": {"x": "\udfff"}}'), id_prefix="c")
    assert parsed.content == "a\ud800b"
    assert parsed.tool_calls[0].arguments == {"x": "\udfff"}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 20_000,
        "<tool_call></tool_call>" * 10_000,
        '<tool_call>{"</tool_call>' * 10_000,
        "<tool_call>{'</tool_call>" * 10_000,
        '<tool_call>{\\"' * 10_000,
        call("'" * 50_000 + '\\"' * 50_000),
        call('"' + '\\"' * 100_000),
        call(",  " * 100_000),
        "<tool_call>{'a': 'b</tool_call>" * 10_000,
        call("[" + "\\'" * 9_000 + "]") * 20,
        call("[" + "\\'" * 9_000 + ", 'a']") * 20,
    ],
    ids=lambda text: f"{text[:24]}... {len(text)}",
)
@pytest.mark.timeout(20)
def test_long_degenerate_actions_are_read_in_linear_time(text: str) -> None:
    parsed = parse_tool_calls(text, id_prefix="c")
    assert all(c.status in STATUSES - {"ok"} for c in parsed.tool_calls)


MARKUP = ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": ', '"f"', ', "arguments": ']
SYNTAX = ["{", "}", "[", "]", '"', "'", "\\", "\n", ",", ":", "null", "True", "1e999", "-1.5"]
PIECES = st.sampled_from([*MARKUP, *SYNTAX, "\ud800", "é", "🧑‍🚀", "\x00"])


@given(st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
@settings(max_examples=400, deadline=None)
def test_no_text_makes_it_raise(text: str) -> None:
    parsed = parse_tool_calls(text, id_prefix="c")
    for read in parsed.tool_calls:
        assert read.status in STATUSES
        assert read.raw.startswith("<tool_call>")
        assert (read.arguments is not None) == (read.status == "ok")
        assert bool(read.name) or read.status != "ok"
    assert len({c.call_id for c in parsed.tool_calls}) == len(parsed.tool_calls)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.text(min_size=1).filter(str.strip), st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_json_writes_is_read_back_unrepaired(
    name: str, arguments: dict[str, object], ascii_only: bool
) -> None:
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=ascii_only)
    (read,) = parse_tool_calls(call(text), id_prefix="c").tool_calls
    assert (read.name, read.arguments, read.status) == (name, arguments, "ok")
    assert set(read.repairs) <= {"closer_in_string"}


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_a_body_is_never_nothing(text: str) -> None:
    assert parse_call_body(text)
