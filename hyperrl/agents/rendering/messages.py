"""Chat messages and tool schemas, made safe and uniform for a template.

Templates are foreign code that compares roles, joins strings and fails on what it does not expect, so
they see plain data only: known roles, text content, escaped strings, arguments as objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyperrl.errors import SamplingError, ToolDefinitionError, nearest

__all__ = ["Escape", "prepare_messages", "prepare_tools"]

Escape = Callable[[str], str]
"""Makes untrusted text safe to insert into a template."""

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_SCHEMA_KEYS = (
    "type function name description parameters properties required items enum strict default format"
)
_SCHEMA_WORDS = frozenset(
    (*_SCHEMA_KEYS.split(), "string", "number", "integer", "boolean", "object", "array")
)
"""Words of a tool schema that templates look up and compare; never escaped where they stand alone."""

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_REASONING = ("reasoning_content", "reasoning", "thinking")


def prepare_messages(messages: Sequence[Any], escape: Escape) -> list[dict[str, Any]]:
    """Return the messages as a template may see them.

    Raises:
        SamplingError: a role, content or tool call that cannot be shown to a policy.
    """
    return [_message(message, index, escape) for index, message in enumerate(messages)]


def prepare_tools(tools: Sequence[Any], escape: Escape) -> list[dict[str, Any]]:
    """Return tool schemas as a template may see them.

    Raises:
        ToolDefinitionError: a schema is no function tool, or a control string stands where templates
            compare values.
    """

    def escape_unless_word(text: str) -> str:
        return text if text in _SCHEMA_WORDS else escape(text)

    prepared = []
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ToolDefinitionError(
                "a tool must look like {'type': 'function', 'function': {'name': ..., 'parameters': ...}},"
                f" got {tool!r:.200}"
            )
        _check_types(tool, function["name"], escape_unless_word)
        try:
            prepared.append(_escaped(tool, escape_unless_word))
        except TypeError as error:
            raise ToolDefinitionError(
                f"tool {function['name']!r}: its schema is not JSON: {error}"
            ) from error
    return prepared


def _message(message: Any, index: int, escape: Escape) -> dict[str, Any]:
    where = f"message {index}"
    if not isinstance(message, Mapping):
        raise SamplingError(f"{where} must be a mapping with 'role' and 'content', got {message!r:.200}")
    given = message.get("role")
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        known = ", ".join(_ROLES)
        raise SamplingError(
            f"{where} has the role {given!r}; known are {known}.{nearest(str(given), _ROLES)}"
        )
    prepared: dict[str, Any] = {"role": role, "content": escape(_text(message.get("content"), where))}
    for key in ("name", "tool_call_id"):
        if isinstance(message.get(key), str):
            prepared[key] = escape(message[key])
    if role == "assistant":
        prepared |= _assistant_parts(message, where, escape)
    return prepared


def _text(content: Any, where: str) -> str:
    """Return the text of a content; parts are joined *before* anything is escaped."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return "".join([_part(part, where) for part in content])
    raise SamplingError(
        f"{where}: content must be text or a list of text parts, got {type(content).__name__}"
    )


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type", "text") in _TEXT_PARTS:
        text = part.get("text")
        if isinstance(text, str):
            return text
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise SamplingError(f"{where}: a content part of the type {kind!r} cannot be shown to a text policy")


def _assistant_parts(message: Mapping[str, Any], where: str, escape: Escape) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    reasoning = next((message[key] for key in _REASONING if isinstance(message.get(key), str)), "")
    if reasoning:
        parts["reasoning_content"] = escape(reasoning)
    calls = message.get("tool_calls")
    if calls:
        parts["tool_calls"] = [_call(call, where, escape) for call in calls]
    return parts


def _call(call: Any, where: str, escape: Escape) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise SamplingError(
            f"{where}: a tool call must look like"
            f" {{'id': ..., 'function': {{'name': ..., 'arguments': ...}}}}, got {call!r:.200}"
        )
    try:
        arguments = _escaped(_arguments(function.get("arguments")), escape)
    except (TypeError, RecursionError) as error:
        raise SamplingError(
            f"{where}: the arguments of {function['name']!r} are not JSON: {error}"
        ) from error
    name = escape(function["name"])
    return {
        "id": escape(str(call.get("id") or "")),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _arguments(given: Any) -> Any:
    """Return arguments as an object where they are one; text that is none stays text."""
    if given is None:
        return {}
    if isinstance(given, str):
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            return given
        return value if isinstance(value, dict) else given
    return given


def _escaped(value: Any, escape: Escape) -> Any:
    """Return plain data with every string escaped. Raises TypeError on what is no JSON."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {escape(str(key)): _escaped(item, escape) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item, escape) for item in value]
    if value is None or type(value) in (bool, int, float):
        return value
    raise TypeError(f"{type(value).__name__} {value!r:.80}")


def _check_types(schema: Any, tool: str, escape: Escape) -> None:
    """Refuse control strings as ``type``: templates compare that value, and an escaped one differs."""
    if isinstance(schema, Mapping):
        kind = schema.get("type")
        for text in kind if isinstance(kind, list | tuple) else [kind]:
            if isinstance(text, str) and escape(text) != text:
                raise ToolDefinitionError(f"tool {tool!r}: {text!r} is not a type that a schema may name")
        for item in schema.values():
            _check_types(item, tool, escape)
    elif isinstance(schema, list | tuple):
        for item in schema:
            _check_types(item, tool, escape)
