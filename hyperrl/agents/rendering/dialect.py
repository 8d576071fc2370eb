"""What a template leaves out of a conversation, written into it by us: tools, calls, reasoning.

Many templates know nothing of tools (SmolLM2's). Then the tools go into the system message and the calls
into the assistant's text, in the Hermes form that Qwen's templates use and that our parser reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hyperrl.agents.rendering.template import ChatTemplate
from hyperrl.envs.tool_calls import parse_tool_calls
from hyperrl.errors import TemplateError

__all__ = ["Dialect"]

Prepared = list[dict[str, Any]]

TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_FOOT = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments"
    " within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)

_USER = {"role": "user", "content": "A question."}
_SYSTEM = {"role": "system", "content": "An instruction."}
_ARGUMENTS = {"word": "probe"}
_FUNCTION = {"name": "probe_tool", "arguments": _ARGUMENTS}
_CALLS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call00000", "type": "function", "function": _FUNCTION}],
}
_RESULT = {"role": "tool", "content": "A result.", "tool_call_id": "call00000", "name": "probe_tool"}
_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "A probe.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "A word."}},
        },
    },
}


class Dialect:
    """How tools, calls and reasoning are shown to a model, found out from its template.

    Attributes:
        writes_tools: the template shows the tools it is given; else we do.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._origin = template.origin
        self.writes_tools = any(
            "probe_tool" in _rendered(template, messages, [_TOOL]) for messages in ([_USER], [_SYSTEM, _USER])
        )
        self._call_text = _written_call(template)
        self._writes_reasoning = "reasoning_content" in template.source

    @property
    def readable(self) -> bool:
        """Whether calls, as the model will write them, are such that our parser reads them."""
        if not self.writes_tools:
            return True
        calls = parse_tool_calls(self._call_text, id_prefix="probe").tool_calls
        return any(call.name == "probe_tool" and call.arguments == _ARGUMENTS for call in calls)

    def write(self, messages: Prepared, tools: Prepared) -> tuple[Prepared, Prepared]:
        """Return the messages and tools to give to the template; the arguments stay as they are.

        Raises:
            TemplateError: the model writes calls in a form that our parser does not know.
        """
        if tools and not self.readable:
            raise TemplateError(
                f"{self._origin}: the chat template writes tool calls in a form that cannot be read:"
                f" {self._call_text[-120:]!r}. Expected JSON with name and arguments within <tool_call>:"
                " use a model of the Qwen or SmolLM families, or an environment without tools"
            )
        written = [self._assistant(m) if m["role"] == "assistant" else m for m in messages]
        if not tools or self.writes_tools:
            return written, tools
        text = _tools_text(tools)
        if written and written[0]["role"] == "system":
            head = {**written[0], "content": f"{written[0]['content']}\n\n{text}"}
            return [head, *written[1:]], []
        return [{"role": "system", "content": text}, *written], []

    def _assistant(self, message: Mapping[str, Any]) -> dict[str, Any]:
        message = dict(message)
        calls = message.get("tool_calls")
        if calls and not self.writes_tools:
            texts = [_call_text(call["function"]) for call in message.pop("tool_calls")]
            message["content"] = "\n".join([*filter(None, [message["content"]]), *texts])
        if message.get("reasoning_content") and not self._writes_reasoning:
            reasoning = message.pop("reasoning_content")
            message["content"] = f"<think>\n{reasoning}\n</think>\n\n{message['content']}"
        return message


def _rendered(template: ChatTemplate, messages: Prepared, tools: Prepared) -> str:
    try:
        return template.render(messages, tools)
    except TemplateError:
        return ""


def _written_call(template: ChatTemplate) -> str:
    """Return a conversation with a call in it, as the template writes it."""
    return _rendered(template, [_USER, _CALLS, _RESULT], []) or _rendered(template, [_USER, _CALLS], [])


def _tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    return TOOLS_HEAD + "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in tools) + TOOLS_FOOT


def _call_text(function: Mapping[str, Any]) -> str:
    shown = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{json.dumps(shown, ensure_ascii=False)}\n</tool_call>"
