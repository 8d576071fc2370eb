from __future__ import annotations

import json
from collections.abc import Callable

import pytest

pytest.importorskip("tokenizers")

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.errors import TemplateError

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}},
}
USER = {"role": "user", "content": "What is 2 + 3?"}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
ASKS = {
    "role": "assistant",
    "content": "Let me add.",
    "tool_calls": [CALL],
    "reasoning_content": "Two and three.",
}
TELLS = {"role": "tool", "content": "5", "tool_call_id": "c"}


def test_a_template_that_ignores_tools_gets_them_in_the_system_message(smollm2: TemplateRenderer) -> None:
    text = smollm2.decode(smollm2.first([{"role": "system", "content": "Be brief."}, USER], [TOOL]))
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n")
    assert json.dumps(TOOL) in text
    assert text.count("<|im_start|>system") == 1
    without = smollm2.decode(smollm2.first([USER], [TOOL]))
    assert without.startswith("<|im_start|>system\n# Tools\n")
    plain = smollm2.decode(smollm2.first([USER]))
    assert "You are a helpful AI assistant named SmolLM" in plain
    assert "# Tools" not in plain


def test_it_gets_calls_and_reasoning_in_the_text(smollm2: TemplateRenderer) -> None:
    text = smollm2.decode(smollm2.first([USER, ASKS, TELLS], [TOOL]))
    said = (
        "<|im_start|>assistant\n<think>\nTwo and three.\n</think>\n\nLet me add.\n"
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>\n'
    )
    assert said in text
    assert text.endswith("<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n")


def test_tools_are_written_alike_by_qwen3s_template_and_by_us(
    qwen3: TemplateRenderer, chatml: TemplateRenderer
) -> None:
    theirs = qwen3.decode(qwen3.first([USER], [TOOL]))
    ours = chatml.decode(chatml.first([USER], [TOOL]))
    assert ours == theirs


def test_our_own_markup_is_control_tokens_where_the_model_has_them(chatml: TemplateRenderer) -> None:
    ids = chatml.first([USER, ASKS, TELLS], [TOOL])
    assert ids.count(chatml.tokenizer.control_ids["<tool_call>"]) == 3  # two in the instructions


def test_tools_are_refused_where_calls_could_not_be_read(family: Callable[[str], TemplateRenderer]) -> None:
    for name in ("llama3_1", "qwen3_5_think", "lfm2"):
        renderer = family(name)
        assert renderer.first([USER])
        with pytest.raises(TemplateError, match=f"{name}: .*writes tool calls in a form that cannot be read"):
            renderer.first([USER], [TOOL])
