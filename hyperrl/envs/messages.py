"""Texts that carry their structure: what the policy reads and what it answers.

Both are ``str`` first. A plain ``str`` works wherever one of them is expected, and gymnasium's
wrappers, vector environments, ``copy`` and ``pickle`` pass them on unharmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from hyperrl.errors import EnvError, nearest
from hyperrl.sampling import Message, ToolCall
from hyperrl.trajectory import StopReason

__all__ = [
    "Action",
    "Observation",
    "as_messages",
    "message_text",
    "new_text",
    "visible_text",
]

new_text = str.__new__
"""Makes a text of a class without its attributes, which the caller sets."""

_REASONING_OPENS = "<think>"
_REASONING_CLOSES = "</think>"
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The usual roles; a template may know others."""


class Observation(str):
    """The new text that the policy reads.

    Attributes:
        said: what it was made of: its messages, or the text of one user message.
    """

    __slots__ = ("said",)
    said: str | tuple[Message, ...]

    def __new__(cls, text: str = "", messages: Iterable[Message] | None = None) -> Observation:
        self = str.__new__(cls, text)
        self.said = text if messages is None else tuple(messages)
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        """The chat messages that are new since the last action, oldest first.

        The text is their readable content. One user message where none were given, made anew at each call.
        """
        said = self.said
        return ({"role": "user", "content": said},) if isinstance(said, str) else said

    @classmethod
    def from_messages(cls, messages: Iterable[Message]) -> Observation:
        """Make an observation whose text is the text of ``messages``, a blank line between two."""
        messages = tuple(messages)
        return cls("\n\n".join(filter(None, map(message_text, messages))), messages)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), None if isinstance(self.said, str) else self.said)


class Action(str):
    """The text that the policy answered.

    Attributes:
        token_ids: the sampled ids, where a sampler drew them.
        tool_calls: the calls in it, in order, malformed ones too; ``None`` while nobody has looked,
            so that the environment reads them out of the text.
        stop_reason: why the sampler stopped; ``None`` where nobody knows, taken as a natural stop.
        content: the answer without reasoning and tool calls; ``None`` lets the environment cut them.
    """

    __slots__ = ("content", "stop_reason", "token_ids", "tool_calls")
    content: str | None
    stop_reason: StopReason | None
    token_ids: tuple[int, ...] | None
    tool_calls: tuple[ToolCall, ...] | None

    def __new__(
        cls,
        text: str = "",
        *,
        token_ids: Iterable[int] | None = None,
        tool_calls: Iterable[ToolCall] | None = None,
        stop_reason: StopReason | None = None,
        content: str | None = None,
    ) -> Self:
        self = new_text(cls, text)
        self.token_ids = None if token_ids is None else tuple(token_ids)
        self.tool_calls = None if tool_calls is None else tuple(tool_calls)
        self.stop_reason = stop_reason
        self.content = content
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in Action.__slots__}
        return _rebuild_action, (type(self), str(self), values)


def _rebuild_action(kind: type[Action], text: str, values: dict[str, Any]) -> Action:
    return kind(text, **values)


def as_messages(said: object, where: str) -> list[Message]:
    """Return what an author's function said as new messages, so that nothing is shared with its objects.

    Raises:
        EnvError: it is neither a text nor a list of messages with a role.
    """
    if isinstance(said, str):
        return [{"role": "user", "content": str(said)}]
    if said and isinstance(said, (list, tuple)) and all(isinstance(m, Mapping) and "role" in m for m in said):
        for message in said:
            _check_message(message, where)
        return [dict(message) for message in said]
    raise EnvError(
        f"{where} must return a str or a list of messages with a role, at least one; got {said!r:.200}"
    )


def _check_message(message: Mapping[str, Any], where: str) -> None:
    """Refuse what no chat template can show. Raises EnvError."""
    role = message["role"]
    slip = "" if role in _ROLES else nearest(str(role), _ROLES)
    if slip or not isinstance(role, str):
        raise EnvError(
            f"{where} returned a message with the role {role!r}; usual are {', '.join(_ROLES)}.{slip}"
        )
    if not isinstance(message.get("content"), (str, list, tuple)) and not message.get("tool_calls"):
        raise EnvError(
            f"{where} returned a message without a text: its content must be a str or a list of parts;"
            f" got {message!r:.200}"
        )


def message_text(message: Message) -> str:
    """Return the readable text of a chat message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, (list, tuple)) else ()
    return "".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def visible_text(text: str) -> str:
    """Return ``text`` without reasoning: nothing inside ``<think>`` counts, nor in one left open.

    The opening tag may stand in the prompt, so everything up to the last closing tag is reasoning.
    """
    end = text.rfind(_REASONING_CLOSES)
    if end >= 0:
        text = text[end + len(_REASONING_CLOSES) :].lstrip("\n")
    start = text.find(_REASONING_OPENS)
    return text if start < 0 else text[:start]
