"""Which of a request's messages are our own answers, and what was really said in them.

Programs echo what they were given in other clothes: arguments re-serialised or lost, reasoning left out,
white space trimmed. The ids that we issued come back as they are. So an echo is known by its id, or, where
a format has none for a text, by place and text, and the recorded message takes its place: an
assistant turn is never rebuilt from what a program sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperrl.agents.conversation import Canonical, canonical, same_message
from hyperrl.agents.forest import RecordedTurn
from hyperrl.harness.gateway.exchange import Answer, AnsweredCall, AnswerHead, ModelRequest
from hyperrl.harness.gateway.offered_tools import OfferedTools
from hyperrl.sampling import Reply, ToolCall
from hyperrl.trajectory import StopReason

__all__ = ["Echoes"]

Message = dict[str, Any]


class Echoes:
    """The answers of one session, and the ids under which they were sent."""

    def __init__(self) -> None:
        self._turns: dict[str, RecordedTurn] = {}
        self._texts: dict[tuple[int, str], list[RecordedTurn]] = {}

    def issue(self, head: AnswerHead, turn: RecordedTurn, reply: Reply, tools: OfferedTools) -> Answer:
        """Return a recorded reply as it is sent, and remember its ids.

        The calls of a reply that was cut are not sent: none of them may be run.

        Args:
            head: its key has no underscore; the ids on the wire have it between their first and second.
            turn: where the reply was recorded.
            reply: the reply.
            tools: what the program offered.
        """
        key = head.key
        self._turns[key] = turn
        cut = reply.stop_reason is not StopReason.STOP
        calls = () if cut else reply.tool_calls
        content = str(reply.message.get("content") or "")
        if not calls:
            place = (turn.messages_end - 1, content.strip())
            self._texts.setdefault(place, []).append(turn)
        prompt, completion = turn.action_start, turn.ids_end - turn.action_start
        if reply.usage is not None:
            prompt, completion = reply.usage
        return Answer(
            head=head,
            content=content,
            reasoning=str(reply.message.get("reasoning_content") or ""),
            calls=tuple(_sent(call, f"call_{key}_{n}", reply, n, tools) for n, call in enumerate(calls)),
            stop_reason=reply.stop_reason,
            prompt_tokens=prompt,
            completion_tokens=completion,
        )

    def turn_of(self, wire_id: str) -> RecordedTurn | None:
        """Return the turn that an id was issued for; ``None`` if it is not ours."""
        parts = wire_id.split("_", 2)
        return self._turns.get(parts[1]) if len(parts) > 1 else None

    def recorded(self, request: ModelRequest) -> list[Message]:
        """Return the messages of a request, with what was recorded in the place of every echo."""
        messages: list[Any] = []
        follows = self.turn_of(request.follows) if request.follows else None
        if follows is not None:
            known = follows.conversation.messages[: follows.messages_end]
            messages = _under(request.instructions, known)
        for place, message in enumerate(request.messages):
            messages.append(self._recorded(messages, message, request.echoed.get(place, "")))
        return messages

    def _recorded(self, before: list[Any], message: Message, echoed: str) -> Any:
        if message["role"] == "tool":
            return {**message, "tool_call_id": self._local_id(message["tool_call_id"])}
        if message["role"] != "assistant":
            return message
        turns = {self.turn_of(call["id"]) for call in message.get("tool_calls", ())}
        if not turns and echoed:
            turns = {self.turn_of(echoed)}
        if (not turns or turns == {None}) and not message.get("tool_calls"):
            turns = {self._said(before, message["content"].strip())}
        turn = turns.pop() if len(turns) == 1 else None
        return message if turn is None else turn.reply_message

    def _said(self, before: list[Any], text: str) -> RecordedTurn | None:
        """Return the turn that said a text at this place: of several, the last after the same messages."""
        said = self._texts.get((len(before), text), ())
        if len(said) < 2:
            return said[0] if said else None
        asked = [canonical(message) for message in before]
        same = (turn for turn in reversed(said) if _same(turn.conversation.canonical(len(before)), asked))
        return next(same, None)

    def _local_id(self, wire_id: str) -> str:
        turn = self.turn_of(wire_id)
        number = wire_id.rsplit("_", 1)[-1]
        if turn is None or not number.isdecimal() or int(number) >= len(turn.tool_calls):
            return wire_id
        return turn.tool_calls[int(number)].call_id


def _same(recorded: list[Canonical], asked: list[Canonical]) -> bool:
    return len(recorded) == len(asked) and all(map(same_message, recorded, asked))


def _under(instructions: str, known: list[Any]) -> list[Any]:
    """Return known messages under instructions that were given again; other ones take the first's place."""
    if not instructions or (known[0]["role"] == "system" and known[0]["content"].startswith(instructions)):
        return known
    return [{"role": "system", "content": instructions}, *known[known[0]["role"] == "system" :]]


def _sent(call: ToolCall, call_id: str, reply: Reply, number: int, tools: OfferedTools) -> AnsweredCall:
    function: Mapping[str, Any] = reply.message["tool_calls"][number]["function"]
    return AnsweredCall(
        call_id=call_id,
        tool=tools.called(call.name),
        arguments=str(function["arguments"]),
        value=call.arguments,
    )
