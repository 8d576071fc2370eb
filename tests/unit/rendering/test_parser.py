from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed_calls import CASES, GOOD, Case, call

pytest.importorskip("tokenizers")

from hyperrl.agents.rendering import TemplateRenderer

STATUSES = {"ok", "invalid_json", "unclosed", "missing_name", "malformed"}


@pytest.fixture(scope="session", params=["qwen3", "smollm2", "chatml"])
def renderer(request: pytest.FixtureRequest) -> TemplateRenderer:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_malformed_calls_have_the_same_status_on_every_tokenizer(
    renderer: TemplateRenderer, case: Case
) -> None:
    ids = renderer.encode_action(case.text)
    parsed = renderer.parse(ids, id_prefix="call_0")
    assert tuple(c.status for c in parsed.tool_calls) == case.statuses
    assert parsed.text == case.text
    if case.arguments:
        assert tuple(c.arguments for c in parsed.tool_calls) == case.arguments
    if case.content is not None:
        assert parsed.content == case.content
    for read in parsed.tool_calls:
        assert read.span is not None
        assert read.raw in renderer.decode(ids[slice(*read.span)])
        if case.repairs:
            assert read.repairs == case.repairs


def test_markers_are_control_tokens_in_one_tokenizer_and_text_in_the_other(
    qwen3: TemplateRenderer, smollm2: TemplateRenderer
) -> None:
    assert len(qwen3.encode_action("<tool_call>")) == 2
    assert len(smollm2.encode_action("<tool_call>")) > 2


def test_spans_are_exactly_the_tokens_of_the_call(qwen3: TemplateRenderer) -> None:
    parts = ["Let me see.\n", call(GOOD), "\nand\n", call("oops")]
    ids = [i for part in parts for i in qwen3.encode_action(part)[:-1]]
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(qwen3.encode_action(part)) - 1)
    parsed = qwen3.parse([*ids, qwen3.stop_ids[0]], id_prefix="c")
    assert [c.span for c in parsed.tool_calls] == [(starts[1], starts[2]), (starts[3], starts[4])]
    assert [qwen3.decode(ids[slice(*c.span or ())]) for c in parsed.tool_calls] == [parts[1], parts[3]]


def test_only_a_stop_token_at_the_end_is_left_out(qwen3: TemplateRenderer) -> None:
    stop = qwen3.stop_ids[0]
    ids = qwen3.encode_action("a")[:-1]
    assert qwen3.parse([*ids, stop], id_prefix="c").text == "a"
    assert qwen3.parse([*ids, stop, *ids], id_prefix="c").text == "a<|im_end|>a"
    assert qwen3.parse([], id_prefix="c").text == ""


def test_a_character_cut_in_two_shows_as_a_replacement_and_is_not_encoded_again(
    renderer: TemplateRenderer,
) -> None:
    ids = renderer.encode_action("ok 𓀀")[:-1]
    cut = ids[:-1]
    parsed = renderer.parse(cut, id_prefix="c")
    assert parsed.text.endswith("\ufffd")
    assert renderer.encode_action(parsed.text)[:-1] != cut
    after = renderer.bridge(cut, [{"role": "user", "content": "go on"}])
    assert after[0] == renderer.stop_ids[0]


def test_calls_keep_their_place_behind_broken_characters(qwen3: TemplateRenderer) -> None:
    broken = qwen3.encode_action("𓀀")[:-2]
    good = qwen3.encode_action(call(GOOD))
    (read,) = qwen3.parse([*broken, *good], id_prefix="c").tool_calls
    assert (read.status, read.span) == ("ok", (len(broken), len(broken) + len(good) - 1))


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_no_ids_make_it_raise(renderer: TemplateRenderer, seed: int, length: int) -> None:
    drawn = random.Random(seed)
    marks = [i for text in ("<tool_call>", "</tool_call>", '{"name":') for i in renderer.encode_action(text)]
    ids = [
        drawn.choice(marks) if drawn.random() < 0.3 else drawn.randrange(renderer.vocab_size + 500)
        for _ in range(length)
    ]
    parsed = renderer.parse(ids, id_prefix="c")
    for read in parsed.tool_calls:
        assert read.status in STATUSES
        assert read.span is not None
        start, end = read.span
        assert 0 <= start < end <= len(ids)
        assert read.raw in renderer.decode(ids[start:end])


def test_deep_nesting_and_huge_numbers_are_no_crash(qwen3: TemplateRenderer) -> None:
    for body in ("[" * 100_000, "9" * 6000, '{"a":' * 50_000):
        parsed = qwen3.parse(qwen3.encode_action(call(body)), id_prefix="c")
        assert [c.status for c in parsed.tool_calls] == ["invalid_json"]
