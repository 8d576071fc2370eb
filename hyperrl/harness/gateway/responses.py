"""Responses on the wire: requests and answers as Codex and the OpenAI clients have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hyperrl.harness.gateway.chat_completions import openai_error
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

__all__ = ["Responses"]

ROLES = {"developer": "system", "system": "system", "user": "user"}
Items = list[dict[str, Any]]


class Responses:
    """``POST responses``."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        reader = ConversationReader()
        instructions = field(body, "instructions", str, "a text") or ""
        follows = field(body, "previous_response_id", str, "a text") or ""
        if instructions and not follows:
            reader.say("system", instructions)
        given = body.get("input")
        if isinstance(given, str):
            reader.say("user", given)
        else:
            for number, item in enumerate(at(given, list, "input", "a text or a list of items")):
                where = f"input[{number}]"
                _read_item(reader, at(item, dict, where, "an object"), where)
        if not reader.messages:
            raise invalid("input must not be empty", "input")
        return ModelRequest(
            model=read_name(body),
            messages=reader.messages,
            tools=_read_tools(body),
            stream=read_flag(body, "stream"),
            max_tokens=read_cap(body, "max_output_tokens"),
            echoed=reader.echoed,
            follows=follows,
            instructions=instructions if follows else "",
            references=tuple(reader.references),
            dropped=reader.dropped,
        )

    def write(self, answer: Answer) -> dict[str, Any]:
        status = "incomplete" if answer.cut else "completed"
        return {
            **_response(answer.head, status, cut=answer.cut),
            "output": _items(answer),
            "usage": _usage(answer),
        }

    def stream(self, answer: Answer, request: ModelRequest, signs: int) -> bytes:  # noqa: ARG002
        events: Items = [] if signs else _opening(answer.head)
        for index, item in enumerate(_items(answer)):
            events += _item_events(item, index)
        end = "response.incomplete" if answer.cut else "response.completed"
        events.append({"type": end, "response": self.write(answer)})
        return _numbered(events, _sent(signs))

    def error(self, refused: RefusedError) -> dict[str, Any]:
        return openai_error(refused)

    def stream_error(self, refused: RefusedError, signs: int) -> bytes:
        error = {"code": refused.code, "message": str(refused)}
        response = {
            "id": "resp_failed",
            "object": "response",
            "status": "failed",
            "output": [],
            "error": error,
        }
        return _numbered([{"type": "response.failed", "response": response}], _sent(signs))

    def sign_of_life(self, head: AnswerHead, number: int) -> bytes:
        # A comment would not do: programs restart their idle clocks with events only.
        return _numbered(_opening(head)[1 if number else 0 :], _sent(number))


def _read_item(reader: ConversationReader, item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _read_message(reader, item, where)
    elif kind == "reasoning":
        text = reader.text(item.get("content"), f"{where}.content", between="")
        text = text or reader.text(item.get("summary"), f"{where}.summary", between="")
        reader.reply({"reasoning_content": text}, echoed=_id(item), joined=True)
    elif kind == "function_call":
        name = _shown_name(item, where)
        call = reader.call(item.get("call_id"), name, item.get("arguments", "{}"), where)
        reader.reply({"tool_calls": [call]}, echoed=_id(item), joined=True)
    elif kind == "custom_tool_call":
        name = _shown_name(item, where)
        call = reader.call(item.get("call_id"), name, {"input": item.get("input")}, where)
        reader.reply({"tool_calls": [call]}, echoed=_id(item), joined=True)
    elif kind == "item_reference":
        reader.refer(at(item.get("id"), str, f"{where}.id", "a text"))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        call_id = at(item.get("call_id"), str, f"{where}.call_id", "a text")
        reader.answer_tool(call_id, reader.text(item.get("output"), f"{where}.output"))
    elif isinstance(kind, str):
        reader.dropped["items"] += 1
    else:
        raise invalid(f"{where}.type must be a text", f"{where}.type")


def _read_message(reader: ConversationReader, item: Mapping[str, Any], where: str) -> None:
    role = at(item.get("role"), str, f"{where}.role", "a text")
    content = item.get("content")
    if role in ROLES:
        reader.say(ROLES[role], reader.text(content, f"{where}.content"))
    elif role == "assistant":
        text = reader.text(content, f"{where}.content", between="")
        reader.reply({"content": text}, echoed=_id(item), joined=True)
    else:
        known = "system, developer, user, assistant"
        raise invalid(f"{where}.role {role!r:.40} is unknown; known are {known}", f"{where}.role")


def _id(item: Mapping[str, Any]) -> str:
    given = item.get("id")
    return given if isinstance(given, str) else ""


def _shown_name(item: Mapping[str, Any], where: str) -> str:
    name = at(item.get("name"), str, f"{where}.name", "a text")
    namespace = field(item, "namespace", str, "a text") or ""
    return OfferedTool("function", name, namespace).shown_name


def _read_tools(body: Mapping[str, Any]) -> OfferedTools:
    tools = OfferedTools()
    _offer(tools, field(body, "tools", list, "a list of tools") or [], "", "tools")
    return tools


def _offer(tools: OfferedTools, given: list[Any], namespace: str, place: str) -> None:
    for number, tool in enumerate(given):
        where = f"{place}[{number}]"
        kind = at(tool, dict, where, "an object").get("type")
        if kind == "namespace" and not namespace:
            name = at(tool.get("name"), str, f"{where}.name", "a text")
            _offer(tools, field(tool, "tools", list, "a list of tools") or [], name, f"{where}.tools")
        elif kind in ("function", "custom"):
            name = at(tool.get("name"), str, f"{where}.name", "a text")
            description = field(tool, "description", str, "a text") or ""
            parameters = field(tool, "parameters", dict, "a JSON Schema")
            tools.add(OfferedTool(kind, name, namespace), description, parameters)
        else:
            tools.hosted += 1


def _sent(signs: int) -> int:
    """Return how many events so many signs of life had: the first has two."""
    return signs + 1 if signs else 0


def _opening(head: AnswerHead) -> Items:
    response = {**_response(head, "in_progress"), "output": [], "usage": None}
    kinds = ("response.created", "response.in_progress")
    return [{"type": kind, "response": response} for kind in kinds]


def _response(head: AnswerHead, status: str, *, cut: bool = False) -> dict[str, Any]:
    return {
        "id": f"resp_{head.key}",
        "object": "response",
        "created_at": head.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": head.model,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _items(answer: Answer) -> Items:
    items: Items = []
    if answer.reasoning:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{answer.head.key}", "summary": [], "content": content})
    if answer.content:
        part = {"type": "output_text", "text": answer.content, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{answer.head.key}", "role": "assistant"}
        items.append({**message, "status": _status(answer), "content": [part]})
    items += [_call_item(call, f"{answer.head.key}_{number}") for number, call in enumerate(answer.calls)]
    return items


def _status(answer: Answer) -> str:
    return "incomplete" if answer.cut else "completed"


def _call_item(call: AnsweredCall, key: str) -> dict[str, Any]:
    tool = call.tool
    item: dict[str, Any] = {"call_id": call.call_id, "name": tool.name, "status": "completed"}
    if tool.namespace:
        item["namespace"] = tool.namespace
    if tool.kind == "custom":
        return {"type": "custom_tool_call", "id": f"ctc_{key}", **item, "input": call.input}
    return {"type": "function_call", "id": f"fc_{key}", **item, "arguments": call.arguments}


def _item_events(item: dict[str, Any], index: int) -> Items:
    place = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    if kind == "reasoning":
        text = item["content"][0]["text"]
        begun: dict[str, Any] = {**item, "content": []}
        middle = _text_events("response.reasoning_text", {**place, "content_index": 0}, "text", text)
    elif kind == "message":
        begun = {**item, "status": "in_progress", "content": []}
        middle = _message_events(item["content"][0], {**place, "content_index": 0})
    elif kind == "custom_tool_call":
        begun = {**item, "status": "in_progress", "input": ""}
        middle = _text_events("response.custom_tool_call_input", place, "input", item["input"])
    else:
        begun = {**item, "status": "in_progress", "arguments": ""}
        named = {**place, "name": item["name"]}
        middle = _text_events("response.function_call_arguments", named, "arguments", item["arguments"])
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [added, *middle, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _message_events(part: dict[str, Any], place: dict[str, Any]) -> Items:
    text = _text_events("response.output_text", place, "text", part["text"])
    for event in text:
        event["logprobs"] = []
    begun = {**part, "text": ""}
    return [
        {"type": "response.content_part.added", **place, "part": begun},
        *text,
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _text_events(kind: str, place: Mapping[str, Any], whole: str, text: str) -> Items:
    """Return the events of a text that comes in one piece; ``whole`` is where the last one has it."""
    return [{"type": f"{kind}.delta", **place, "delta": text}, {"type": f"{kind}.done", **place, whole: text}]


def _usage(answer: Answer) -> dict[str, Any]:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


def _numbered(events: Items, start: int) -> bytes:
    return b"".join([_event({**event, "sequence_number": n}) for n, event in enumerate(events, start)])


def _event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
