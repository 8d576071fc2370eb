"""Chat messages as data: copies, comparison, and the message that stands for an action.

The recorder must tell whether a request continues a conversation that it recorded. Programs echo
what they were given in slightly different clothes (``content`` absent or ``None`` or a list of text
parts, re-serialised arguments, reasoning left out), so two messages are compared in a canonical form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hyperrl.errors import RolloutError
from hyperrl.sampling import Message, ToolCall

__all__ = [
    "Canonical",
    "Kept",
    "Parsed",
    "assistant_message",
    "canonical",
    "keep",
    "message_text",
    "recall",
    "same_message",
    "snapshot",
]

ROLES = {"developer": "system", "function": "tool"}
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


Kept = str | tuple[str] | Message
"""A message while it is kept: the text of a user's, ``(text,)`` for an assistant's, else a copy of it."""


class Canonical(NamedTuple):
    """What two echoes of one message have in common.

    Attributes:
        role: ``developer`` is read as ``system``.
        content: text; absent, ``None`` and ``""`` are the same, text parts are joined.
        tool_calls: ``(id, name, arguments)`` each; arguments as sorted JSON, malformed ones as ``{}``.
        tool_call_id: the call that a tool message answers.
        reasoning: the reasoning, ``None`` where the message does not say.
    """

    role: str
    content: str
    tool_calls: tuple[tuple[str, str, str], ...]
    tool_call_id: str
    reasoning: str | None


def snapshot(messages: Iterable[Message]) -> list[Message]:
    """Return copies of messages (or tool schemas) that later changes by their owner do not reach."""
    return list(map(_copy_message, messages))


def keep(message: Message) -> Kept:
    """Return what stands for a message while it is only kept, which later changes by its owner do not reach.

    Most say nothing but a role and a text. A conversation of many turns then is a list of texts, of which
    the garbage collector has nothing to follow.
    """
    if type(message) is dict and len(message) == 2:
        try:
            role, content = message["role"], message["content"]
        except KeyError:
            return _copy_message(message)
        if type(content) is str:
            if role == "user":
                return content
            if role == "assistant":
                return (content,)
    return _copy_message(message)


def recall(kept: Kept) -> Message:
    """Return the message that :func:`keep` was given."""
    if type(kept) is str:
        return {"role": "user", "content": kept}
    if type(kept) is tuple:
        return {"role": "assistant", "content": kept[0]}
    return kept  # type: ignore[return-value]


def _copy_message(message: Message) -> Message:
    if type(message) is dict:
        copied = message.copy()
        for value in copied.values():
            if type(value) is not str:
                break
        else:
            return copied
    return _copy(message)  # type: ignore[no-any-return]


def canonical(message: Any) -> Canonical:
    """Return the comparable form of ``message``.

    Raises:
        RolloutError: it is not a mapping with a ``role``.
    """
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str):
        raise RolloutError(f"a chat message must be a mapping with a 'role', got {message!r:.200}")
    reasoning = message.get("reasoning_content", message.get("reasoning"))
    calls = message.get("tool_calls") or ()
    return Canonical(
        role=ROLES.get(role, role),
        content=message_text(message),
        tool_calls=tuple([_canonical_call(call) for call in calls]),
        tool_call_id=str(message.get("tool_call_id") or ""),
        reasoning=reasoning if isinstance(reasoning, str) else None,
    )


def same_message(recorded: Canonical, asked: Canonical) -> bool:
    """Whether ``asked`` is an echo of ``recorded``: reasoning may be missing, but not differ."""
    if recorded[:4] != asked[:4]:
        return False
    return asked.reasoning is None or asked.reasoning == (recorded.reasoning or "")


def message_text(message: Message) -> str:
    """Return the text of a message's content."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, Sequence):
        return "".join([_part_text(part) for part in content])
    return json.dumps(content, default=str, sort_keys=True)


class Parsed(Protocol):
    """An action, taken apart, whoever did it."""

    @property
    def content(self) -> str:
        """What is neither reasoning nor a call."""
        ...

    @property
    def reasoning(self) -> str:
        """The reasoning; empty if there is none."""
        ...

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Every attempted call, malformed ones too."""
        ...


def assistant_message(parsed: Parsed) -> dict[str, Any]:
    """Return the message that stands for a parsed action in the chat-completions shape.

    A call that could not be understood keeps its place, with what was written as its arguments, so
    that a tool message can answer it and the turn does not look like a final answer.
    """
    message: dict[str, Any] = {"role": "assistant", "content": parsed.content}
    if parsed.reasoning:
        message["reasoning_content"] = parsed.reasoning
    if parsed.tool_calls:
        message["tool_calls"] = [_wire_call(call) for call in parsed.tool_calls]
    return message


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _canonical_call(call: Any) -> tuple[str, str, str]:
    if not isinstance(call, Mapping):
        raise RolloutError(f"a tool call must be a mapping, got {call!r:.200}")
    function = call.get("function") or call
    return str(call.get("id") or ""), str(function.get("name") or ""), _arguments(function.get("arguments"))


def _arguments(written: Any) -> str:
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            written = {}
    return json.dumps(written or {}, sort_keys=True, default=str)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if (
        isinstance(part, Mapping)
        and part.get("type", "text") in TEXT_PARTS
        and isinstance(part.get("text"), str)
    ):
        return str(part["text"])
    return json.dumps(part, default=str, sort_keys=True)


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        copied = value.copy()
        for key, item in copied.items():
            if type(item) is not str and item is not None:
                copied[key] = _copy(item)
        return copied
    if kind is list:
        return [_copy(item) for item in value]
    if kind is tuple:
        return tuple([_copy(item) for item in value])
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return value
