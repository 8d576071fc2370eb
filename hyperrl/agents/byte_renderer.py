"""A renderer that needs no model: ChatML over the bytes of UTF-8.

For trying environments and programs with scripted policies where no tokenizer is at hand. It renders like
a model's renderer, with control tokens that no text can produce.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hyperrl.agents.rendering import ParsedAction, Pattern
from hyperrl.envs.messages import message_text
from hyperrl.envs.tool_calls import parse_action_bytes
from hyperrl.sampling import Message, ToolSchema

__all__ = ["ByteRenderer"]

_new = tuple.__new__  # makes a named tuple of all its values in half the time of its own constructor
START, END = 256, 257
NEWLINE, LESS_THAN = b"\n<"
CONTROL = {START: b"<|im_start|>", END: b"<|im_end|>"}
BYTES = [bytes([i]) for i in range(256)] + [CONTROL[START], CONTROL[END]]
NEXT = [END, NEWLINE, START]
"""Closes a message and opens the next."""
OPENING = list(b"assistant\n")


class ByteRenderer:
    """Ids 0 to 255 are bytes; 256 opens a message and 257 closes it. Lone surrogates survive."""

    stop_ids: tuple[int, ...] = (END,)
    pad_id = END
    vocab_size = 258

    def first(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """Return the ids of a whole conversation and the opening of the answer."""
        if tools:
            listed = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in tools)
            messages = [{"role": "system", "content": f"<tools>\n{listed}\n</tools>"}, *messages]
        return _read_on([START], messages)

    def bridge(self, action_ids: Sequence[int], new_messages: Sequence[Message]) -> list[int]:
        """Return the ids that follow an action: its close if it lacks one, the messages, the opening."""
        if action_ids and action_ids[-1] == END:
            return _read_on([NEWLINE, START], new_messages)
        return _read_on([END, NEWLINE, START], new_messages)

    def parse(self, action_ids: Sequence[int], *, id_prefix: str) -> ParsedAction:
        """Take an action apart; never raises."""
        said = action_ids[:-1] if action_ids and action_ids[-1] == END else action_ids
        try:
            data = bytes(said)
        except ValueError:  # a control token
            data = _with_control(said)
        if LESS_THAN not in data and data.isascii():  # neither reasoning nor calls
            text = data.decode()
            return _new(ParsedAction, (text, "", (), text))
        parts = parse_action_bytes(data, id_prefix=id_prefix, errors="replace")
        return ParsedAction(*parts, _text(data))

    def prove(self, pattern: Pattern) -> None:
        """Accept every pattern: each message is rendered by itself."""

    def encode_action(self, text: str) -> list[int]:
        """Return the ids of an action that says ``text`` and ends."""
        return [*text.encode("utf-8", "surrogatepass"), END]

    def decode(self, ids: Sequence[int]) -> str:
        """Return ids as text, control tokens included."""
        return _text(_with_control(ids))


def _with_control(ids: Sequence[int]) -> bytes:
    return b"".join([BYTES[i] for i in ids])


def _read_on(ids: list[int], messages: Sequence[Message]) -> list[int]:
    """Return ``ids``, which open a message, with the messages and the opening of the answer behind them."""
    for message in messages:
        content = message.get("content")
        text = content if type(content) is str else message_text(message)
        if calls := message.get("tool_calls"):
            text += "".join(map(_write_call, calls))
        ids += f"{message['role']}\n{text}".encode("utf-8", "surrogatepass")
        ids += NEXT
    ids += OPENING
    return ids


def _write_call(call: Any) -> str:
    function = call["function"]
    body = f'{{"name": {json.dumps(function["name"])}, "arguments": {function["arguments"]}}}'
    return f"<tool_call>{body}</tool_call>"


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
