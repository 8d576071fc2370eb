"""Reading the bodies of requests: checked fields, texts of many shapes, one shape of conversation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hyperrl.harness.gateway.exchange import RefusedError

__all__ = ["ConversationReader", "at", "field", "invalid", "read_cap", "read_flag", "read_name"]

TEXT_PARTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
SMALLEST_CAP = 16
"""Fewer tokens are refused: a program that asks for so few misjudges what is left of the context."""


def invalid(message: str, parameter: str | None = None) -> RefusedError:
    """Return the error that says what is wrong with a request."""
    return RefusedError(400, "invalid_request", message, parameter)


def at(value: Any, kind: type, where: str, expected: str) -> Any:
    """Return ``value`` if it is a ``kind``.

    Raises:
        RefusedError: it is not.
    """
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise invalid(f"{where} must be {expected}, got {_shown(value)}", where)
    return value


def field(body: Mapping[str, Any], name: str, kind: type, expected: str) -> Any:
    """Return a field that may be absent or null; then ``None``.

    Raises:
        RefusedError: it is of another kind.
    """
    value = body.get(name)
    return None if value is None else at(value, kind, name, expected)


def read_name(body: Mapping[str, Any]) -> str:
    """Return the model's name."""
    return str(field(body, "model", str, "a text") or "")


def read_flag(body: Mapping[str, Any], name: str) -> bool:
    """Return a flag; absent is off."""
    return bool(field(body, name, bool, "true or false"))


def read_cap(body: Mapping[str, Any], *names: str) -> int | None:
    """Return the lowest cap on tokens under any of these names.

    Raises:
        RefusedError: one is no number, or so low that no answer can be meant.
    """
    caps = [field(body, name, int, "a whole number") for name in names]
    given = [cap for cap in caps if cap is not None]
    if given and min(given) < SMALLEST_CAP:
        raise invalid(
            f"{names[0]} is {min(given)}; at least {SMALLEST_CAP} are needed. Programs that cut it to what"
            " their own estimate of the context leaves have to be given a larger context window",
            names[0],
        )
    return min(given) if given else None


class ConversationReader:
    """Collects messages in the chat-completions shape.

    Attributes:
        messages: consecutive system messages are one, and so are consecutive user messages.
        echoed: by position, the id that came with an assistant message.
        references: ids that stand for what was answered under them.
        dropped: parts that were replaced by a note, by kind.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.echoed: dict[int, str] = {}
        self.references: list[str] = []
        self.dropped: Counter[str] = Counter()

    def text(self, content: Any, where: str, *, between: str = "\n") -> str:
        """Return the text of a content: a text, null, or a list of parts.

        Raises:
            RefusedError: it is none of these.
        """
        if isinstance(content, str):
            return content
        if content is None:
            return ""
        if isinstance(content, list):
            return between.join([self._part(part, where) for part in content])
        raise invalid(f"{where} must be a text or a list of parts, got {_shown(content)}", where)

    def say(self, role: str, text: str) -> None:
        """Add a system or user message, or add it to the one before."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last["role"] == role:
            last["content"] = f"{last['content']}\n\n{text}" if last["content"] else text
        else:
            self.messages.append({"role": role, "content": text})

    def answer_tool(self, call_id: str, text: str) -> None:
        """Add the result of a call."""
        self.messages.append({"role": "tool", "content": text, "tool_call_id": call_id})

    def reply(self, part: Mapping[str, Any], *, echoed: str = "", joined: bool = False) -> None:
        """Add an assistant message, or, where ``joined``, a part of the one that was begun.

        Args:
            part: ``content``, ``reasoning_content`` and ``tool_calls``, each where there is one.
            echoed: an id that came with it.
            joined: items of one answer stand side by side.
        """
        last = self.messages[-1] if joined and self.messages else None
        if last is None or last["role"] != "assistant":
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        last["content"] += part.get("content") or ""
        if part.get("reasoning_content"):
            last["reasoning_content"] = last.get("reasoning_content", "") + part["reasoning_content"]
        if part.get("tool_calls"):
            last.setdefault("tool_calls", []).extend(part["tool_calls"])
        if echoed:
            self.echoed.setdefault(len(self.messages) - 1, echoed)

    def refer(self, wire_id: str) -> None:
        """Add what was answered under an id, or a part of it."""
        self.references.append(wire_id)
        self.reply({}, echoed=wire_id, joined=True)

    def call(self, call_id: Any, name: Any, arguments: Any, where: str) -> dict[str, Any]:
        """Return a tool call in the chat-completions shape.

        Raises:
            RefusedError: id or name is no text.
        """
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return {
            "id": at(call_id, str, f"{where}.id", "a text"),
            "type": "function",
            "function": {"name": at(name, str, f"{where}.name", "a text"), "arguments": written},
        }

    def _part(self, part: Any, where: str) -> str:
        if isinstance(part, str):
            return part
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise invalid(f"{where}: a part must have a type, got {_shown(part)}", where)
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind in TEXT_PARTS or kind == "refusal":
            return str(at(text, str, f"{where}.{kind}", "a text"))
        self.dropped[f"parts_{_plain(kind)}"] += 1
        return f"[{_plain(kind)}: left out, this policy reads text only]"


def _plain(kind: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in kind[:32])


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.80}"
