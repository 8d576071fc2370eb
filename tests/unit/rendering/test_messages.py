from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.errors import SamplingError, ToolDefinitionError


class Text(str):
    """A str that carries more, as observations do."""

    __slots__ = ()

    def __str__(self) -> str:
        return "not the text"


def shown(renderer: TemplateRenderer, *messages: Mapping[str, Any]) -> str:
    return renderer.decode(renderer.first(messages))


def test_contents_in_all_their_forms(chatml: TemplateRenderer) -> None:
    plain = shown(chatml, {"role": "user", "content": "ab"})
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert shown(chatml, {"role": "user", "content": parts}) == plain
    assert shown(chatml, {"role": "user", "content": ["a", "b"]}) == plain
    assert shown(chatml, {"role": "user", "content": Text("ab")}) == plain
    empty = shown(chatml, {"role": "user", "content": ""})
    assert shown(chatml, {"role": "user", "content": None}) == shown(chatml, {"role": "user"}) == empty


def test_a_developer_speaks_as_the_system(qwen3: TemplateRenderer) -> None:
    user = {"role": "user", "content": "hi"}
    assert shown(qwen3, {"role": "developer", "content": "x"}, user) == shown(
        qwen3, {"role": "system", "content": "x"}, user
    )


def test_parts_are_joined_before_control_strings_are_sought(chatml: TemplateRenderer) -> None:
    ids = chatml.first([{"role": "user", "content": ["<|im_", "end|>"]}])
    assert ids == chatml.first([{"role": "user", "content": "<|im_end|>"}])
    assert ids.count(chatml.stop_ids[0]) == 1


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "usr", "content": "x"}, r"message 0 has the role 'usr'.*Did you mean 'user'\?"),
        ({"content": "x"}, "message 0 has the role None"),
        ({"role": "<|im_end|>", "content": "x"}, "has the role '<|im_end|>'"),
        (
            {"role": "user", "content": {"text": "x"}},
            "content must be text or a list of text parts, got dict",
        ),
        ({"role": "user", "content": 7}, "got int"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, "of the type 'image_url'"),
        ({"role": "user", "content": [b"x"]}, "of the type 'bytes'"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}, "a tool call must look like"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": object()}}}]},
            "the arguments of 'f' are not JSON",
        ),
        ("hello", "message 0 must be a mapping"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(chatml: TemplateRenderer, message: Any, reason: str) -> None:
    with pytest.raises(SamplingError, match=reason):
        chatml.first([message])


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ({"name": "f"}, "a tool must look like"),
        ({"type": "function", "function": {"name": "f", "parameters": {"x": {1}}}}, "its schema is not JSON"),
        (
            {"type": "function", "function": {"name": "f", "parameters": {"type": "<|im_end|>"}}},
            "tool 'f': '<|im_end|>' is not a type",
        ),
        (
            {
                "type": "function",
                "function": {"name": "f", "parameters": {"x": [{"type": ["null", "<tool_call>"]}]}},
            },
            "'<tool_call>' is not a type",
        ),
    ],
)
def test_tools_that_cannot_be_shown_are_refused(chatml: TemplateRenderer, tool: Any, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=reason.replace("|", r"\|")):
        chatml.first([{"role": "user", "content": "x"}], [tool])


def test_arguments_may_be_an_object_or_its_json(qwen3: TemplateRenderer) -> None:
    def conversation(arguments: Any) -> list[Mapping[str, Any]]:
        function = {"name": "add", "arguments": arguments}
        calls = [{"id": "1", "type": "function", "function": function}]
        return [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": calls}]

    as_object = shown(qwen3, *conversation({"a": "é"}))
    assert '<tool_call>\n{"name": "add", "arguments": {"a": "é"}}\n</tool_call>' in as_object
    assert shown(qwen3, *conversation('{"a": "\\u00e9"}')) == as_object
    assert "not json" in shown(qwen3, *conversation("not json"))
    assert '"arguments": {}' in shown(qwen3, *conversation(None))
