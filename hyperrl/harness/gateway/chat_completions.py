"""chat.completions on the wire: requests and answers as the OpenAI clients and their kin have them."""

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

__all__ = ["ChatCompletions", "openai_error"]

ROLES = {"developer": "system", "system": "system", "user": "user"}


class ChatCompletions:
    """``POST chat/completions``."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        if body.get("n") not in (None, 1):
            raise invalid("n must be 1: each request is one turn of an episode", "n")
        reader = ConversationReader()
        messages = at(body.get("messages"), list, "messages", "a list of messages")
        if not messages:
            raise invalid("messages must not be empty", "messages")
        for number, message in enumerate(messages):
            where = f"messages[{number}]"
            _read_message(reader, at(message, dict, where, "an object"), where)
        options = field(body, "stream_options", dict, "an object") or {}
        return ModelRequest(
            model=read_name(body),
            messages=reader.messages,
            tools=_read_tools(body),
            stream=read_flag(body, "stream"),
            max_tokens=read_cap(body, "max_tokens", "max_completion_tokens"),
            include_usage=options.get("include_usage") is True,
            dropped=reader.dropped,
        )

    def write(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.content or None, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [_write_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
        return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def stream(self, answer: Answer, request: ModelRequest, signs: int) -> bytes:  # noqa: ARG002
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if answer.reasoning:
            deltas.append({"reasoning_content": answer.reasoning})
        if answer.content:
            deltas.append({"content": answer.content})
        for number, call in enumerate(answer.calls):
            deltas.append({"tool_calls": [{"index": number, **_write_call(call)}]})
        head = _head(answer, "chat.completion.chunk")
        chunks = [_chunk(head, delta, None) for delta in deltas]
        chunks.append(_chunk(head, {}, _finish_reason(answer)))
        if request.include_usage:
            chunks.append({**head, "choices": [], "usage": _usage(answer)})
        return b"".join([*[b"data: %b\n\n" % json.dumps(c).encode() for c in chunks], b"data: [DONE]\n\n"])

    def error(self, refused: RefusedError) -> dict[str, Any]:
        return openai_error(refused)

    def stream_error(self, refused: RefusedError, signs: int) -> bytes:  # noqa: ARG002
        return b"data: %b\n\n" % json.dumps(openai_error(refused)).encode()

    def sign_of_life(self, head: AnswerHead, number: int) -> bytes:  # noqa: ARG002
        return b": keep-alive\n\n"


def openai_error(refused: RefusedError) -> dict[str, Any]:
    """Return the body of an error as OpenAI's interfaces have it."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error")
    error = {"message": str(refused), "type": kind, "param": refused.parameter, "code": refused.code}
    return {"error": error}


def _read_message(reader: ConversationReader, message: Mapping[str, Any], where: str) -> None:
    role = at(message.get("role"), str, f"{where}.role", "a text")
    content = message.get("content")
    if role in ROLES:
        reader.say(ROLES[role], reader.text(content, f"{where}.content"))
    elif role in ("tool", "function"):
        call_id = message.get("tool_call_id", message.get("name"))
        text = reader.text(content, f"{where}.content")
        reader.answer_tool(at(call_id, str, f"{where}.tool_call_id", "a text"), text)
    elif role == "assistant":
        text = reader.text(content, f"{where}.content", between="")
        reasoning = message.get("reasoning_content", message.get("reasoning"))
        calls = field(message, "tool_calls", list, "a list of calls") or []
        part = {
            "content": text,
            "reasoning_content": reasoning if isinstance(reasoning, str) else "",
            "tool_calls": [_read_call(reader, call, f"{where}.tool_calls") for call in calls],
        }
        reader.reply(part)
    else:
        known = "system, developer, user, assistant, tool"
        raise invalid(f"{where}.role {role!r:.40} is unknown; known are {known}", f"{where}.role")


def _read_call(reader: ConversationReader, call: Any, where: str) -> dict[str, Any]:
    call = at(call, dict, where, "a list of objects")
    custom = field(call, "custom", dict, "an object")
    if custom is not None:
        return reader.call(call.get("id"), custom.get("name"), {"input": custom.get("input")}, where)
    function = at(call.get("function"), dict, f"{where}.function", "an object")
    return reader.call(call.get("id"), function.get("name"), function.get("arguments", "{}"), where)


def _read_tools(body: Mapping[str, Any]) -> OfferedTools:
    tools = OfferedTools()
    for number, tool in enumerate(field(body, "tools", list, "a list of tools") or []):
        where = f"tools[{number}]"
        kind = at(tool, dict, where, "an object").get("type", "function")
        if kind not in ("function", "custom"):
            tools.hosted += 1
            continue
        offered = at(tool.get(kind), dict, f"{where}.{kind}", "an object")
        name = at(offered.get("name"), str, f"{where}.{kind}.name", "a text")
        description = field(offered, "description", str, "a text") or ""
        parameters = field(offered, "parameters", dict, "a JSON Schema")
        tools.add(OfferedTool(kind, name), description, parameters)
    return tools


def _write_call(call: AnsweredCall) -> dict[str, Any]:
    if call.tool.kind == "custom":
        return {
            "id": call.call_id,
            "type": "custom",
            "custom": {"name": call.tool.name, "input": call.input},
        }
    function = {"name": call.tool.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl_{answer.head.key}",
        "object": kind,
        "created": answer.head.created,
        "model": answer.head.model,
    }


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {**head, "choices": [choice]}


def _finish_reason(answer: Answer) -> str:
    if answer.cut:
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
