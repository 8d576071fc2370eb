"""The recorder: answers chat requests token-first and keeps every token that was read or sampled.

A program speaks in messages. For each request the recorder finds the recorded turn that it continues
and renders only what is new: the prompt is that turn's tokens, exactly as they were sampled, and then
the ids of the new messages. Nothing sampled is ever rendered or encoded again. A request that
continues nothing starts a new root, counted by reason.

The prompt handed to ``Sampler.generate`` is a tuple of its own: a sampler may keep it, and what it does
cannot reach the record. (It is the one thing that is copied with every turn, at about 20 ns a token.)
"""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hyperrl.agents.conversation import assistant_message, snapshot
from hyperrl.agents.faults import EpisodeError, Faults
from hyperrl.agents.forest import Conversation, Forest, RecordedTurn
from hyperrl.agents.limits import Budget, LimitReached, RolloutLimits
from hyperrl.errors import (
    ConfigError,
    ContextOverflowError,
    InvariantError,
    RolloutError,
    SamplingError,
    TemplateError,
    nearest,
)
from hyperrl.sampling import (
    ChatPolicy,
    Completion,
    EpisodeKey,
    Message,
    Reply,
    RequestKey,
    Sampler,
    SamplingParams,
    ToolSchema,
    request_seed,
)
from hyperrl.trajectory import StopReason, TruncationReason, TurnUse

if TYPE_CHECKING:
    from hyperrl.agents.rendering import Renderer

__all__ = ["PolicySeat", "RecordedPolicy", "Recorder", "RemoteSeat", "Seat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySeat:
    """Who answers for a seat: a sampler, the renderer of its model, and how actions are drawn.

    Attributes:
        sampler: draws the actions.
        renderer: turns messages into token ids and back.
        params: how actions are drawn; without ``stop_ids`` the renderer's are taken.
    """

    sampler: Sampler
    renderer: Renderer
    params: SamplingParams

    def __post_init__(self) -> None:
        if not self.params.stop_ids:
            params = dataclasses.replace(self.params, stop_ids=tuple(self.renderer.stop_ids))
            object.__setattr__(self, "params", params)

    def with_max_tokens(self, limit: int | None) -> PolicySeat:
        """Return a seat whose actions have at most ``limit`` tokens."""
        if limit is None or self.params.max_tokens <= limit:
            return self
        return dataclasses.replace(self, params=dataclasses.replace(self.params, max_tokens=limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSeat:
    """A seat answered by a policy without tokens: for evaluation and play, never for learning.

    Attributes:
        policy: answers; or a function from the key of an episode to what answers it, for policies that
            draw or keep something of their own in each.
    """

    policy: ChatPolicy | Callable[[EpisodeKey], ChatPolicy]

    def open(self, key: EpisodeKey) -> ChatPolicy:
        """Return what answers an episode."""
        return self.policy if isinstance(self.policy, ChatPolicy) else self.policy(key)


Seat = PolicySeat | RemoteSeat


class Recorder:
    """Answers and records the requests of one episode.

    Args:
        key: names the episode.
        run_seed: seed of the run; requests draw from ``request_seed(run_seed, request)``.
        seats: who answers, by name.
        limits: what the episode may use up.
        single_root: refuse every root of a seat but its first, as the built-in loop promises.

    Attributes:
        forest: the recorded turns.
        budget: what is left of the limits.
        faults: exceptions raised while answering, with their stage.
        roots: how many contexts were started, by reason (``first``, ``rewritten_history``, ...).
        policy_s: seconds spent waiting for policies, summed over requests.
    """

    def __init__(
        self,
        *,
        key: EpisodeKey,
        run_seed: int,
        seats: Mapping[str, Seat],
        limits: RolloutLimits | None = None,
        single_root: bool = False,
    ) -> None:
        self.forest = Forest()
        self.budget = Budget(limits or RolloutLimits())
        self.faults = Faults()
        self.roots: Counter[str] = Counter()
        self.policy_s = 0.0
        self._key = key
        self._run_seed = run_seed
        self._seats = seats
        self._single_root = single_root
        self._ordinals: dict[str, int] = dict.fromkeys(seats, 0)
        self._remote: dict[str, ChatPolicy] = {}
        self._closed = False

    def policy(self, seat: str = "main", *, use: TurnUse = "train") -> RecordedPolicy:
        """Return the policy of a seat. ``use="side"`` marks requests outside the task.

        Raises:
            ConfigError: there is no such seat.
        """
        if seat not in self._seats:
            raise ConfigError(
                f"no policy sits in seat {seat!r}; the seats are {sorted(self._seats)}."
                f"{nearest(seat, self._seats)}"
            )
        return RecordedPolicy(self, seat, use)

    def close(self) -> None:
        """Refuse every later request, also those that are being answered now."""
        self._closed = True

    async def answer(
        self, seat_name: str, use: TurnUse, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> Reply:
        """Answer a request and record it as a turn.

        Raises:
            LimitReached: the episode is over.
            RolloutError: the episode was sealed, or the request would start a second root where
                only one is allowed.
            SamplingError, TemplateError: the policy or its template cannot answer.
        """
        started = perf_counter()
        try:
            return await self._answer(seat_name, use, messages, tools)
        except LimitReached:
            await _let_others_run()
            raise
        except ContextOverflowError as error:
            await _let_others_run()
            raise self.budget.refuse(TruncationReason.CONTEXT, str(error)) from error
        except (Exception, asyncio.CancelledError) as error:
            self.faults.note(error, "policy")
            await _let_others_run()
            raise
        finally:
            self.policy_s += perf_counter() - started

    async def _answer(
        self, seat_name: str, use: TurnUse, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> Reply:
        self._check_open()
        asked = messages if type(messages) is list else list(messages)
        self.budget.admit_turn(use)
        seat = self._seats[seat_name]
        turn = self._open(seat_name, use, asked, tools)
        if isinstance(seat, RemoteSeat):
            if seat_name not in self._remote:
                self._remote[seat_name] = seat.open(self._key)
            reply = await self._remote[seat_name].respond(messages, tools)
            self._check_open()
            return self._record_remote(turn, reply)
        prompt = tuple(turn.conversation.ids.tolist())
        params = self.budget.admit_tokens(len(prompt), len(prompt) - turn.ids_start, seat.params)
        turn.bound = self.budget.bound
        group_id, sample_index = self._key
        ordinal = self._ordinals[seat_name]
        self._ordinals[seat_name] = ordinal + 1
        key = RequestKey(group_id, sample_index, seat_name, ordinal)
        seed = request_seed(self._run_seed, key)
        completion = await seat.sampler.generate(prompt, params, seed=seed, request_id=key)
        self._check_open()
        turn.stop_reason = StopReason(completion.stop_reason)
        turn.temperature = params.temperature
        if len(completion.action_ids) < params.max_tokens:
            turn.bound = TruncationReason.CONTEXT  # if it was cut, then by the sampler's own limit
        return self._record(turn, completion, seat.renderer, f"call_{seat_name}_{ordinal}")

    def _open(
        self, seat_name: str, use: TurnUse, asked: list[Message], tools: Sequence[ToolSchema]
    ) -> RecordedTurn:
        """Return a turn whose conversation ends with the prompt of the request."""
        seat = self._seats[seat_name]
        parent = self.forest.find_parent(seat_name, asked, tools)
        reason = "" if parent else self.forest.why_new_root(seat_name, asked)
        turn = RecordedTurn()
        turn.seat, turn.use = seat_name, use
        context_ids: Sequence[int] = ()
        if parent is not None:
            try:
                context_ids = _bridge(seat, parent, asked[parent.messages_end :])
            except TemplateError as error:
                if self._single_root:
                    text = f"the new messages cannot follow the recorded conversation: {error}"
                    raise EpisodeError("new_root", text) from error
                parent, reason = None, "bridge_refused"
        turn.parent = parent
        if parent is None:
            context_ids = self._start_root(seat, asked, tools, reason)
            conversation = Conversation(array("i"), [], snapshot(tools))
        else:
            conversation = parent.conversation.branch(parent)
            _check_prefix(conversation.ids, parent)
        turn.conversation = conversation
        turn.ids_start, turn.messages_start = len(conversation.ids), len(conversation.messages)
        conversation.ids.extend(context_ids)
        conversation.messages += snapshot(asked[turn.messages_start :])
        return turn

    def _start_root(
        self, seat: Seat, asked: list[Message], tools: Sequence[ToolSchema], reason: str
    ) -> Sequence[int]:
        """Return the ids of a whole prompt, and count why it had to be rendered."""
        if self._single_root and reason != "first":
            raise EpisodeError(
                "new_root",
                f"the request does not continue the recorded conversation ({reason}):"
                f" {len(asked)} messages after {len(self.forest.turns)} turns",
            )
        self.roots[reason] += 1
        return seat.renderer.first(asked, tools) if isinstance(seat, PolicySeat) else ()

    def _record(
        self, turn: RecordedTurn, completion: Completion, renderer: Renderer, id_prefix: str
    ) -> Reply:
        action_ids = _plain(completion.action_ids)
        logprobs = array("f", _plain(completion.logprobs))
        versions = array("i", _plain(completion.policy_versions))
        count = len(action_ids)
        if len(logprobs) != count or len(versions) != count:
            raise SamplingError(
                f"the sampler returned {count} action_ids with {len(logprobs)} logprobs and"
                f" {len(versions)} policy_versions; one of each per token is needed"
            )
        parsed = renderer.parse(action_ids, id_prefix=id_prefix)
        reply = Reply(
            message=assistant_message(parsed),
            text=parsed.text,
            tool_calls=parsed.tool_calls,
            stop_reason=turn.stop_reason,
            action_ids=tuple(action_ids),
            turn=len(self.forest.turns),
        )
        turn.logprobs_start = len(self.forest.logprobs)
        self.budget.spend(count)
        self._add(turn, reply)
        self.forest.logprobs += logprobs
        self.forest.policy_versions += versions
        return reply

    def _record_remote(self, turn: RecordedTurn, reply: Reply) -> Reply:
        stop_reason = turn.stop_reason = StopReason(reply.stop_reason)
        turn_index = len(self.forest.turns)
        reply = dataclasses.replace(reply, turn=turn_index, action_ids=(), stop_reason=stop_reason)
        turn.logprobs_start, turn.temperature, turn.bound = -1, 1.0, TruncationReason.MAX_TOKENS
        turn.usage = reply.usage
        self._add(turn, reply)
        return reply

    def _add(self, turn: RecordedTurn, reply: Reply) -> None:
        conversation = turn.conversation
        turn.action_start = len(conversation.ids)
        conversation.ids.extend(reply.action_ids)
        conversation.messages += snapshot((reply.message,))
        turn.ids_end, turn.messages_end = len(conversation.ids), len(conversation.messages)
        turn.reply_message, turn.text, turn.tool_calls = reply.message, reply.text, reply.tool_calls
        self.forest.add(turn)

    def bridge_after(self, turn: RecordedTurn, messages: Sequence[Message]) -> Sequence[int]:
        """Return the ids that ``messages`` would add after ``turn``; empty where they cannot be bridged."""
        if not messages:
            return []
        try:
            return _bridge(self._seats[turn.seat], turn, list(messages))
        except TemplateError:
            return []

    def _check_open(self) -> None:
        if self._closed:
            raise RolloutError("the episode is over and sealed; a late answer is not recorded")


class RecordedPolicy:
    """The policy of one seat in one episode; every answer becomes a turn of its trajectory."""

    __slots__ = ("_recorder", "seat", "use")

    def __init__(self, recorder: Recorder, seat: str, use: TurnUse) -> None:
        self._recorder = recorder
        self.seat = seat
        self.use: TurnUse = use

    async def respond(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Reply:
        """Answer the conversation; see :meth:`Recorder.answer` for what it raises.

        A request continues a recorded turn if its messages are that turn's prompt, its reply and at
        least one more message, under the same tools. Assistant messages that were never sampled
        here are read as context, and only at a root: one after a sampled reply starts a new root.
        """
        return await self._recorder.answer(self.seat, self.use, messages, tools)


async def _let_others_run() -> None:
    """Yield before a refusal, so that a program which asks again forever is still cut by the clock."""
    await asyncio.sleep(0)


def _check_prefix(prompt: array[int], parent: RecordedTurn) -> None:
    """Check that a prompt begins with its parent's tokens: it grows out of the array that holds them."""
    if len(prompt) != parent.ids_end:
        raise InvariantError(
            f"the prompt after turn {parent.index} does not begin with that turn's tokens: expected"
            f" {parent.ids_end} of them, found {len(prompt)}"
        )


def _bridge(seat: Seat, parent: RecordedTurn, new: list[Any]) -> Sequence[int]:
    if any(isinstance(message, Mapping) and message.get("role") == "assistant" for message in new):
        raise TemplateError("a reply that was not sampled here cannot follow a sampled one")
    return seat.renderer.bridge(parent.action_ids, new) if isinstance(seat, PolicySeat) else ()


def _plain(values: Any) -> Sequence[Any]:
    """Return values as Python numbers: those of an array, or of a tensor, are converted at once."""
    return values.tolist() if hasattr(values, "tolist") else values  # type: ignore[no-any-return]
