"""Anthropic Messages on the wire: requests and answers as the Anthropic clients have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hyperrl.harness.gateway.exchange import Answer, AnsweredCall, AnswerHead, ModelRequest, RefusedError
from hyperrl.harness.gateway.offered_tools import OfferedTool, OfferedTools
from hyperrl.harness.gateway.reading import (
    ConversationReader,
    at,
    field,
    invalid,
    read_cap,
    read_flag,
    read_name,
)

__all__ = ["AnthropicMessages"]

VOLATILE_BLOCK = "x-anthropic-billing-header"
"""A block of the system prompt that differs in every request and is meant for the vendor."""

ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class AnthropicMessages:
    """``POST messages`` and ``POST messages/count_tokens``."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        reader = ConversationReader()
        system = _without_volatile(body.get("system"))
        if system:
            reader.say("system", reader.text(system, "system", between="\n\n"))
        messages = at(body.get("messages"), list, "messages", "a list of messages")
        if not messages:
            raise invalid("messages must not be empty", "messages")
        for number, message in enumerate(messages):
            where = f"messages[{number}]"
            _read_message(reader, at(message, dict, where, "an object"), where)
        return ModelRequest(
            model=read_name(body),
            messages=reader.messages,
            tools=_read_tools(body),
            stream=read_flag(body, "stream"),
            max_tokens=read_cap(body, "max_tokens"),
            echoed=reader.echoed,
            dropped=reader.dropped,
        )

    def write(self, answer: Answer) -> dict[str, Any]:
        return {
            **_head(answer),
            "content": _blocks(answer),
            "stop_reason": _stop_reason(answer),
            "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens},
        }

    def stream(self, answer: Answer, request: ModelRequest, signs: int) -> bytes:  # noqa: ARG002
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": 0}
        head = {**_head(answer), "content": [], "stop_reason": None, "usage": usage}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
        for index, block in enumerate(_blocks(answer)):
            empty, deltas = _opened(block)
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        events.append({"type": "message_stop"})
        return b"".join(map(_event, events))

    def error(self, refused: RefusedError) -> dict[str, Any]:
        default = "api_error" if refused.status >= 500 else "invalid_request_error"
        message = str(refused)
        if refused.code == "context_length_exceeded":
            message = f"prompt is too long: {message}"  # what programs recognise it by
        error = {"type": ERROR_TYPES.get(refused.status, default), "message": message}
        return {"type": "error", "error": error, "code": refused.code}

    def stream_error(self, refused: RefusedError, signs: int) -> bytes:  # noqa: ARG002
        return _event(self.error(refused))

    def sign_of_life(self, head: AnswerHead, number: int) -> bytes:  # noqa: ARG002
        return b'event: ping\ndata: {"type": "ping"}\n\n'


def _without_volatile(system: Any) -> Any:
    if not isinstance(system, list):
        return system
    return [block for block in system if not _is_volatile(block)]


def _is_volatile(block: Any) -> bool:
    text = block.get("text") if isinstance(block, Mapping) else None
    return isinstance(text, str) and text.startswith(VOLATILE_BLOCK)


def _read_message(reader: ConversationReader, message: Mapping[str, Any], where: str) -> None:
    role = at(message.get("role"), str, f"{where}.role", "a text")
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    if role == "assistant":
        for block in blocks:
            _read_reply_block(reader, block, f"{where}.content")
    elif role == "user":
        for kind, payload in _user_runs(blocks):
            if kind == "tool_result":
                call_id = at(payload.get("tool_use_id"), str, f"{where}.tool_use_id", "a text")
                text = reader.text(payload.get("content"), f"{where}.content")
                reader.answer_tool(call_id, text)
            else:
                reader.say("user", reader.text(payload, f"{where}.content"))
    elif role == "system":
        reader.say("system", reader.text(content, f"{where}.content"))
    else:
        raise invalid(
            f"{where}.role {role!r:.40} is unknown; known are user, assistant, system", f"{where}.role"
        )


def _user_runs(blocks: list[Any]) -> list[tuple[str, Any]]:
    """Return the results of tools one by one, and what stands between them as lists of parts."""
    runs: list[tuple[str, Any]] = []
    for block in blocks:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            runs.append(("tool_result", block))
        elif runs and runs[-1][0] == "parts":
            runs[-1][1].append(block)
        elif block is not None:
            runs.append(("parts", [block]))
    return runs


def _read_reply_block(reader: ConversationReader, block: Any, where: str) -> None:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind == "thinking":
        thinking = field(block, "thinking", str, "a text") or ""
        signature = field(block, "signature", str, "a text") or ""
        reader.reply({"reasoning_content": thinking}, echoed=signature, joined=True)
    elif kind == "redacted_thinking":
        reader.reply({}, joined=True)
    elif kind == "tool_use":
        call = reader.call(block.get("id"), block.get("name"), block.get("input", {}), where)
        reader.reply({"tool_calls": [call]}, joined=True)
    elif block is not None:
        reader.reply({"content": reader.text([block], where)}, joined=True)


def _read_tools(body: Mapping[str, Any]) -> OfferedTools:
    tools = OfferedTools()
    for number, tool in enumerate(field(body, "tools", list, "a list of tools") or []):
        where = f"tools[{number}]"
        kind = at(tool, dict, where, "an object").get("type") or "custom"
        if kind != "custom":
            tools.hosted += 1
            continue
        name = at(tool.get("name"), str, f"{where}.name", "a text")
        description = field(tool, "description", str, "a text") or ""
        tools.add(
            OfferedTool("function", name), description, field(tool, "input_schema", dict, "a JSON Schema")
        )
    return tools


def _head(answer: Answer) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.head.key}",
        "type": "message",
        "role": "assistant",
        "model": answer.head.model,
        "stop_sequence": None,
    }


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        blocks.append(
            {"type": "thinking", "thinking": answer.reasoning, "signature": f"sig_{answer.head.key}"}
        )
    if answer.content:
        blocks.append({"type": "text", "text": answer.content})
    blocks += [_tool_use(call) for call in answer.calls]
    return blocks


def _tool_use(call: AnsweredCall) -> dict[str, Any]:
    """Return a call; its input has to be an object, also where the policy wrote none."""
    given = call.value if call.value is not None else {"invalid_arguments": call.arguments}
    return {"type": "tool_use", "id": call.call_id, "name": call.tool.name, "input": given}


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it begins, and the deltas that fill it."""
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    written = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]


def _stop_reason(answer: Answer) -> str:
    if answer.cut:
        return "max_tokens"
    return "tool_use" if answer.calls else "end_turn"


def _event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
