"""Taking a sampled action apart: reasoning, content and tool calls, with the tokens that each call took."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hyperrl.agents.rendering.encoder import SafeTokenizer
from hyperrl.envs.tool_calls import parse_action_bytes
from hyperrl.sampling import ToolCall

__all__ = ["ParsedAction", "parse_action"]


class ParsedAction(NamedTuple):
    """A sampled action, taken apart.

    Attributes:
        content: what is neither reasoning nor a call.
        reasoning: what stands in a leading ``<think>`` block; an unclosed one takes all the rest.
        tool_calls: every attempted call, malformed ones too; ``span`` counts tokens of the action.
        text: the whole action as text, the stop token left out.
    """

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    text: str


def parse_action(
    tokenizer: SafeTokenizer,
    action_ids: Sequence[int],
    *,
    id_prefix: str,
    stop_ids: Sequence[int] = (),
    reasoning_opened: bool = False,
) -> ParsedAction:
    """Take an action apart; never raises.

    Args:
        tokenizer: of the policy that was sampled.
        action_ids: what was sampled; a stop token at its end is no part of the text.
        id_prefix: call ``n`` gets the id ``<id_prefix>_<n>``.
        stop_ids: the tokens that end an action.
        reasoning_opened: the prompt ended in an open ``<think>``.
    """
    ended = bool(action_ids) and action_ids[-1] in stop_ids
    pieces = [tokenizer.token_bytes(i) for i in (action_ids[:-1] if ended else action_ids)]
    data = b"".join(pieces)
    parsed = parse_action_bytes(data, id_prefix=id_prefix, reasoning_opened=reasoning_opened)
    calls = parsed.tool_calls
    if calls:
        ends = list(accumulate(map(len, pieces)))
        calls = tuple([_with_token_span(call, ends) for call in calls])
    return ParsedAction(parsed.content, parsed.reasoning, calls, data.decode("utf-8", "replace"))


def _with_token_span(call: ToolCall, ends: Sequence[int]) -> ToolCall:
    """Return the call with its span in tokens: all those that hold a byte of it."""
    if call.span is None:
        return call
    first = bisect_right(ends, call.span[0])
    last = bisect_left(ends, call.span[1])
    return dataclasses.replace(call, span=(first, last + 1))
