"""A request and its answer as the gateway understands them, whatever wire format they came in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hyperrl.harness.gateway.offered_tools import OfferedTool, OfferedTools
from hyperrl.trajectory import StopReason

__all__ = ["Answer", "AnswerHead", "AnsweredCall", "ModelRequest", "RefusedError", "WireFormat"]


class RefusedError(Exception):
    """A request is answered with an error, in the words of its wire format.

    Attributes:
        status: HTTP status.
        code: what programs tell errors apart by, such as ``context_length_exceeded``.
        parameter: the field of the request that is at fault, if one is.
    """

    def __init__(self, status: int, code: str, message: str, parameter: str | None = None) -> None:
        self.status = status
        self.code = code
        self.parameter = parameter
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to a model.

    Attributes:
        model: the name that the program asked for; that of a seat chooses it.
        messages: the conversation in the chat-completions shape; consecutive system messages are one, and
            so are consecutive user messages.
        tools: what the program offers to run.
        stream: the answer is wanted as server-sent events.
        max_tokens: most tokens of the answer that the program accepts.
        include_usage: a stream of chat.completions ends with the token counts.
        echoed: by the position of an assistant message, an id that came with it and that may be ours.
        follows: the id of the response that the messages follow; empty if they are the whole conversation.
        instructions: the system prompt, where it comes beside messages that follow a response.
        references: ids that stand for what was answered under them.
        dropped: what could not be shown to the policy, by kind.
    """

    model: str
    messages: list[dict[str, Any]]
    tools: OfferedTools = field(default_factory=OfferedTools)
    stream: bool = False
    max_tokens: int | None = None
    include_usage: bool = False
    echoed: Mapping[int, str] = field(default_factory=dict)
    follows: str = ""
    instructions: str = ""
    references: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A tool call for a program to run.

    Attributes:
        call_id: globally unique; it comes back with the result.
        tool: what is called.
        arguments: JSON text of an object; where the policy wrote none, what it wrote.
        value: the arguments as an object; ``None`` where they are none.
    """

    call_id: str
    tool: OfferedTool
    arguments: str
    value: Mapping[str, Any] | None

    @property
    def input(self) -> str:
        """The text for a freeform tool."""
        text = (self.value or {}).get("input")
        return text if isinstance(text, str) else self.arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What is known of an answer before it is there.

    Attributes:
        key: names the answer, globally unique; the ids on the wire are made of it.
        model: the name that was asked for.
        created: seconds since 1970.
    """

    key: str
    model: str
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a policy answered.

    Attributes:
        head: its names.
        content: what is neither reasoning nor a call.
        reasoning: the reasoning; empty if there is none.
        calls: the tool calls; none where the answer was cut.
        stop_reason: why it ended.
        prompt_tokens, completion_tokens: tokens read and sampled.
    """

    head: AnswerHead
    content: str
    reasoning: str
    calls: tuple[AnsweredCall, ...]
    stop_reason: StopReason
    prompt_tokens: int
    completion_tokens: int

    @property
    def cut(self) -> bool:
        """Whether the answer was cut before its end."""
        return self.stop_reason is not StopReason.STOP


class WireFormat(Protocol):
    """Reads requests and writes answers as one vendor's interface has them. Holds no state."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """Read the body of a request.

        Raises:
            RefusedError: it is not one.
        """
        ...

    def write(self, answer: Answer) -> dict[str, Any]:
        """Return the body of a response."""
        ...

    def stream(self, answer: Answer, request: ModelRequest, signs: int) -> bytes:
        """Return the events of a streamed response, less those that ``signs`` signs of life began with."""
        ...

    def error(self, refused: RefusedError) -> dict[str, Any]:
        """Return the body of an error."""
        ...

    def stream_error(self, refused: RefusedError, signs: int) -> bytes:
        """Return the events that end a stream, begun by ``signs`` signs of life, with an error."""
        ...

    def sign_of_life(self, head: AnswerHead, number: int) -> bytes:
        """Return what is sent while a stream waits for its answer; ``number`` counts from 0."""
        ...
