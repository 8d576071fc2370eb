"""Scripted policies and the renderer that needs no model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.rendering import Renderer
from hyperrl.agents.scripted import ScriptedPolicy, ScriptedSampler
from hyperrl.errors import ContextOverflowError, SamplingError
from hyperrl.sampling import ChatPolicy, Completion, RequestKey, Sampler, SamplingParams
from hyperrl.trajectory import StopReason

anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)


def ask(sampler: ScriptedSampler, ordinal: int = 0, max_tokens: int = 100) -> Completion:
    prompt = ByteRenderer().first([{"role": "user", "content": "hello"}])
    params = SamplingParams(max_tokens=max_tokens)
    key = RequestKey((0, 1), 2, "main", ordinal)
    return asyncio.run(sampler.generate(prompt, params, seed=0, request_id=key))


def test_they_are_what_they_stand_for() -> None:
    assert isinstance(ByteRenderer(), Renderer)
    assert isinstance(ScriptedSampler(ByteRenderer(), []), Sampler)
    assert isinstance(ScriptedPolicy([]), ChatPolicy)


def test_a_script_reads_the_prompt_and_the_request() -> None:
    sampler = ScriptedSampler(ByteRenderer(), lambda prompt, key: f"{key}: {prompt}", policy_version=3)
    completion = ask(sampler)
    text = ByteRenderer().decode(completion.action_ids)
    assert text == "0-1-2-main-0: <|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<|im_end|>"
    assert set(completion.logprobs) == {0.0}
    assert set(completion.policy_versions) == {3}
    assert completion.stop_reason is StopReason.STOP


def test_replies_come_in_order_and_run_out() -> None:
    sampler = ScriptedSampler(ByteRenderer(), ["a", "b"])
    assert [ByteRenderer().decode(ask(sampler, i).action_ids[:-1]) for i in range(2)] == ["a", "b"]
    with pytest.raises(SamplingError, match="2 replies; request 3 finds none"):
        ask(sampler, 2)


def test_limits_are_those_of_a_sampler() -> None:
    completion = ask(ScriptedSampler(ByteRenderer(), ["abcdef"]), max_tokens=3)
    assert ByteRenderer().decode(completion.action_ids) == "abc"
    assert completion.stop_reason is StopReason.LENGTH
    with pytest.raises(ContextOverflowError):
        ask(ScriptedSampler(ByteRenderer(), ["abcdef"], context=5))


def test_a_scripted_policy_counts_its_own_answers() -> None:
    policy = ScriptedPolicy(['<tool_call>{"name": "f", "arguments": {}}</tool_call>', "done"])
    first = asyncio.run(policy.respond([{"role": "user", "content": "x"}]))
    assert [call.name for call in first.tool_calls] == ["f"]
    second = asyncio.run(policy.respond([{"role": "user", "content": "x"}, first.message]))
    assert (second.text, second.turn, second.action_ids) == ("done", None, ())
    spoken = ScriptedPolicy(lambda messages, tools: f"{len(messages)} {len(tools)}")
    assert asyncio.run(spoken.respond([{"role": "user", "content": "x"}], [{}])).text == "1 1"


@given(anything, anything)
def test_no_text_becomes_a_control_token(text: str, reply: str) -> None:
    renderer = ByteRenderer()
    ids = renderer.first([{"role": "user", "content": text}])
    assert [i for i in ids if i > 255] == [256, 257, 256]
    parsed = renderer.parse(renderer.encode_action(reply), id_prefix="c")
    assert parsed.text == reply


@given(st.lists(st.integers(0, 257), max_size=30))
def test_the_byte_renderer_takes_any_ids(ids: list[int]) -> None:
    renderer = ByteRenderer()
    renderer.parse(ids, id_prefix="c")
    renderer.decode(ids)
    bridged: Any = [*ids, *renderer.bridge(ids, [{"role": "tool", "content": "x"}])]
    assert bridged[: len(ids)] == ids
