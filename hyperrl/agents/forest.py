"""The forest of recorded turns, and the question which of them a request continues.

Tokens and messages of a conversation are kept once; a turn knows where in them it ends. A request that
continues the end of a conversation adds to it. One that continues an earlier turn, or a turn that something
else is being added to, starts a branch with a copy of everything up to there.

The ids of a path are the very prompt that the sampler was given last, a tuple, and what it answered: while
an episode waits, that takes 8 bytes a token, and the next prompt is made of it at 2 ns a token. What is only
looked at when the episode is sealed, logprobs and versions, lies packed in bytes: an eighth of a list.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any, Protocol

from hyperrl.agents.conversation import Canonical, Kept, canonical, keep, recall, same_message
from hyperrl.envs.messages import message_text
from hyperrl.errors import InvariantError, SamplingError, TemplateError
from hyperrl.sampling import Message, RequestSeeds, ToolCall, ToolSchema
from hyperrl.trajectory import StopReason, TruncationReason, TurnUse

__all__ = ["Bridging", "Conversation", "Forest", "RecordedTurn", "bridge_ids", "plain_values", "whole_ids"]


class Bridging(Protocol):
    """The part of a renderer that goes on with a conversation."""

    def bridge(self, action_ids: Sequence[int], new_messages: Sequence[Message]) -> list[int]:
        """Return the ids of messages that follow an action."""
        ...


class Conversation:
    """One path of the forest while it grows.

    Attributes:
        requests: names and seeds of what its seat is asked.
        prompt: every token up to where the policy spoke last.
        said: what it said then; empty while it has not answered.
        kept: the messages, sampled replies included, each as :func:`keep` gave it.
        tools: a copy of the tools that it was rendered with.
        end: index of the turn that it ends with; -1 while an answer is awaited.
    """

    __slots__ = ("_canonical", "_recalled", "end", "kept", "prompt", "requests", "said", "tools")

    def __init__(
        self, requests: RequestSeeds, ids: tuple[int, ...], kept: list[Kept], tools: Sequence[Any]
    ) -> None:
        self.requests = requests
        self.prompt = ids
        self.said: tuple[int, ...] = ()
        self.kept = kept
        self.tools = tools
        self.end = -1
        self._recalled: list[Message] | None = None
        self._canonical: list[Canonical] | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """Every token of the path, in order."""
        return self.prompt + self.said

    @property
    def messages(self) -> list[Message]:
        """The messages: copies that nobody else may change."""
        known = self._recalled = self._recalled or []
        known += map(recall, self.kept[len(known) :])
        return known

    def branch(self, turn: RecordedTurn) -> Conversation:
        """Return a conversation that ends with ``turn``, which does not end this one.

        Raises:
            InvariantError: tokens were added that belong to no message.
        """
        if len(self.kept) == turn.messages_end:
            raise InvariantError(
                f"the prompt after turn {turn.index} does not begin with that turn's tokens: expected"
                f" {turn.ids_end} of them, found {len(self.ids)}"
            )
        ids, kept = self.ids, self.kept[: turn.messages_end]
        branched = Conversation(self.requests, ids[: turn.action_start], kept, self.tools)
        branched.said = ids[turn.action_start : turn.ids_end]
        return branched

    def begins(self, messages: list[Message], end: int) -> bool:
        """Whether ``messages`` starts with the first ``end`` messages of this conversation."""
        known = self.messages
        return messages[:end] == (known if len(known) == end else known[:end])

    def canonical(self, end: int) -> list[Canonical]:
        """Return the canonical form of the first ``end`` messages."""
        known = self._canonical = self._canonical or []
        known.extend(map(canonical, self.messages[len(known) : end]))
        return known[:end]


class RecordedTurn:
    """One answered request, before the episode is sealed.

    Attributes:
        conversation: the path that it belongs to. In its ``ids`` the turn's context begins at
            ``ids_start``, its action at ``action_start``, and the turn ends at ``ids_end``; in its
            ``messages`` the reply is the last before ``messages_end``.
        logprobs_start: where its action begins in the forest's ``logprobs`` and ``policy_versions``;
            -1 if it was not sampled here.
        bound: the limit that would cut its action.
        parent, parent_index: the turn that it continues, and that turn's index; ``None`` for a root.
        observation: the text of what was new.
        given: the very message that the program was given; ``None`` where it promised not to ask again
            from an earlier one.
        usage: tokens read and sampled as an endpoint reports them; set where ``logprobs_start`` is -1.
    """

    __slots__ = (
        "action_start",
        "bound",
        "conversation",
        "given",
        "ids_end",
        "ids_start",
        "index",
        "logprobs_start",
        "messages_end",
        "observation",
        "parent",
        "parent_index",
        "seat",
        "stop_reason",
        "temperature",
        "text",
        "tool_calls",
        "usage",
        "use",
    )

    index: int
    parent: RecordedTurn | None
    parent_index: int | None
    observation: str
    conversation: Conversation
    ids_start: int
    action_start: int
    ids_end: int
    messages_end: int
    logprobs_start: int
    bound: TruncationReason
    given: Message | None
    seat: str
    stop_reason: StopReason
    temperature: float
    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: tuple[int, int] | None
    use: TurnUse

    @property
    def action_ids(self) -> tuple[int, ...]:
        """The sampled ids."""
        conversation = self.conversation
        if self.action_start == len(conversation.prompt):
            return conversation.said
        return conversation.prompt[self.action_start : self.ids_end]

    @property
    def reply_message(self) -> Message:
        """The reply: the very message that the program was given, or what it said then."""
        return self.conversation.messages[self.messages_end - 1] if self.given is None else self.given

    @property
    def new_messages(self) -> list[Message]:
        """What was read since the parent's reply."""
        start = 0 if self.parent is None else self.parent.messages_end
        return self.conversation.messages[start : self.messages_end - 1]

    def begin(self, conversation: Conversation, messages: Sequence[Message]) -> None:
        """Read a whole conversation."""
        self.parent = self.parent_index = None
        self.conversation = conversation
        self.observation = _read_text(messages)
        self.ids_start, self.action_start = 0, len(conversation.prompt)

    def follow(self, parent: RecordedTurn, new: Sequence[Message], renderer: Bridging) -> None:
        """Go on after ``parent`` with the ``new`` messages.

        Raises:
            TemplateError: they cannot follow what was sampled; then nothing has changed.
            SamplingError: they cannot be shown to a policy.
        """
        conversation, index = parent.conversation, parent.index
        if conversation.end != index:
            conversation = conversation.branch(parent)
        said = conversation.said
        text = keep(new[0]) if len(new) == 1 else None
        if type(text) is str:  # one message of the user's, as after most actions
            ids = renderer.bridge(said, new)
            context_ids = tuple(ids) if type(ids) is list else whole_ids(ids)
            conversation.kept.append(text)
        else:
            context_ids = bridge_ids(renderer, said, new)
            conversation.kept += map(keep, new)
            text = _read_text(new)
        prompt = conversation.prompt = conversation.prompt + (said + context_ids)
        conversation.said = ()
        conversation.end = -1
        self.conversation = conversation
        self.observation = text
        self.parent = parent
        self.parent_index = index
        self.ids_start = parent.ids_end
        self.action_start = len(prompt)


class Forest:
    """The recorded turns of an episode.

    Attributes:
        turns: in the order in which they were answered; parents stand before their children.
        logprobs, policy_versions: of every sampled token, turn after turn: 4 bytes each, a C float or int.
        is_chain: all turns lie in one conversation, each continuing the one before.
    """

    __slots__ = ("_paths", "is_chain", "logprobs", "policy_versions", "turns")

    def __init__(self) -> None:
        self.turns: list[RecordedTurn] = []
        self.logprobs = bytearray()
        self.policy_versions = bytearray()
        self._paths: dict[str, Conversation | None] = {}  # by seat; None where a seat has several
        self.is_chain = True

    def draw(self, count: int, logprobs: Any, policy_versions: Any) -> int:
        """Keep what belongs to the ``count`` sampled tokens of a turn, and return where it begins.

        Raises:
            SamplingError: there is not one of each for every token.
        """
        if type(logprobs) is not list:
            logprobs = plain_values(logprobs)
        if type(policy_versions) is not list:
            policy_versions = plain_values(policy_versions)
        pack_logprobs, pack_versions = _packers(count)
        try:
            drawn, versions = pack_logprobs(*logprobs), pack_versions(*policy_versions)
        except error:
            if len(logprobs) != count or len(policy_versions) != count:
                raise SamplingError(
                    f"the sampler returned {count} action_ids with {len(logprobs)} logprobs and"
                    f" {len(policy_versions)} policy_versions; one of each per token is needed"
                ) from None
            # an array says better what is no number
            drawn, versions = array("f", logprobs).tobytes(), array("i", policy_versions).tobytes()
        start = len(self.logprobs) // 4
        self.logprobs += drawn
        self.policy_versions += versions
        return start

    def add(self, turn: RecordedTurn, kept: Kept, action_ids: tuple[int, ...]) -> int:
        """Record an answered request, and return its index: its conversation goes on with the reply.

        Args:
            turn: the request, and what else is known of the answer.
            kept: what :func:`keep` keeps of the reply's message.
            action_ids: what was sampled.
        """
        conversation, parent, turns = turn.conversation, turn.parent, self.turns
        if parent is None or parent.conversation is not conversation:
            self.is_chain = not turns
            self._paths[turn.seat] = None if turn.seat in self._paths else conversation
        index = len(turns)
        turns.append(turn)
        conversation.end = index
        conversation.said = action_ids
        messages = conversation.kept
        messages.append(kept)
        turn.index = index
        turn.messages_end = len(messages)
        turn.ids_end = turn.action_start + len(action_ids)
        return index

    def last_train_turn(self) -> int | None:
        """Return the index of the ``train`` turn that was answered last, of any seat."""
        return next((turn.index for turn in reversed(self.turns) if turn.use == "train"), None)

    def find_parent(
        self, seat: str, messages: list[Message], tools: Sequence[ToolSchema]
    ) -> RecordedTurn | None:
        """Return the turn that the request continues: the longest recorded conversation that it extends.

        Between conversations that read the same, the one whose reply object the request holds is
        taken, else the latest. Where a seat has a single conversation, this costs one comparison.
        """
        if seat not in self._paths:
            return None
        path = self._paths[seat]
        if path is not None and path.end >= 0:
            last = self.turns[path.end]
            end = last.messages_end
            if len(messages) > end and path.begins(messages, end) and _same_tools(path.tools, tools):
                return last
        return self._search(seat, messages, tools)

    def why_new_root(self, seat: str, messages: list[Message]) -> str:
        """Name why a request without a parent starts a new context.

        ``first``: the seat had not spoken; ``tools_changed``: it extends a conversation that had other
        tools; ``resampled``: it asks a recorded root's prompt again; ``rewritten_history``: it begins
        like a recorded conversation, then differs; ``new_conversation``: it begins differently.
        """
        if seat not in self._paths:
            return "first"
        if self._search(seat, messages, None) is not None:
            return "tools_changed"
        asked = [canonical(message) for message in messages]
        begun = False
        for turn in self._of(seat):
            known = turn.conversation.canonical(turn.messages_end)
            if turn.parent is None and _same(known[:-1], asked):
                return "resampled"
            begun = begun or _same(known[:1], asked[:1])
        return "rewritten_history" if begun else "new_conversation"

    def _of(self, seat: str) -> Iterator[RecordedTurn]:
        return (turn for turn in reversed(self.turns) if turn.seat == seat)

    def _search(
        self, seat: str, messages: list[Message], tools: Sequence[ToolSchema] | None
    ) -> RecordedTurn | None:
        best: RecordedTurn | None = None
        asked: list[Canonical] = []
        for turn in self._of(seat):
            end = turn.messages_end
            if end >= len(messages) or not _better(turn, best, messages):
                continue
            if tools is not None and not _same_tools(turn.conversation.tools, tools):
                continue
            if not turn.conversation.begins(messages, end):
                asked = asked or [canonical(message) for message in messages]
                if not _same(turn.conversation.canonical(end), asked[:end]):
                    continue
            best = turn
        return best


def bridge_ids(renderer: Bridging, action_ids: tuple[int, ...], new: Sequence[Any]) -> tuple[int, ...]:
    """Return the ids of messages that follow an action.

    Raises:
        TemplateError: they cannot follow it.
        SamplingError: they cannot be shown to a policy.
    """
    for message in new:
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            raise TemplateError("a reply that was not sampled here cannot follow a sampled one")
    ids = renderer.bridge(action_ids, new)
    return tuple(ids) if type(ids) is list else whole_ids(ids)


def whole_ids(ids: Any) -> tuple[int, ...]:
    """Return ids as Python integers; a sampler may give an array, a tensor, or a list of NumPy's."""
    known = ids if type(ids) is list else plain_values(ids)
    return tuple(known) if not known or type(known[0]) is int else tuple(map(operator.index, known))


@lru_cache(maxsize=1024)
def _packers(count: int) -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Return what packs ``count`` logprobs and what packs as many versions: twice as fast as an array."""
    return Struct(f"{count}f").pack, Struct(f"{count}i").pack


def plain_values(values: Any) -> list[Any]:
    """Return values as a list of Python's own: those of an array, or of a tensor, are converted at once."""
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _read_text(new: Sequence[Message]) -> str:
    """Return the text of what a turn read."""
    if len(new) == 1:
        content = new[0].get("content")
        return content if type(content) is str else message_text(new[0])
    return "\n\n".join(filter(None, map(message_text, new)))


def _better(turn: RecordedTurn, best: RecordedTurn | None, messages: list[Message]) -> bool:
    """Whether ``turn`` would be preferred to ``best``, which is the later of the two."""
    if best is None or turn.messages_end > best.messages_end:
        return True
    if turn.messages_end < best.messages_end:
        return False
    place = turn.messages_end - 1
    return messages[place] is turn.given and messages[place] is not best.given


def _same_tools(known: Sequence[Any], tools: Sequence[ToolSchema]) -> bool:
    return len(known) == len(tools) and (not known or list(known) == list(tools))


def _same(recorded: list[Canonical], asked: list[Canonical]) -> bool:
    return len(recorded) == len(asked) and all(map(same_message, recorded, asked))
