"""The recorder: answers chat requests token-first and keeps every token that was read or sampled.

A program speaks in messages. For each request the recorder finds the recorded turn that it continues
and renders only what is new: the prompt is that turn's tokens, exactly as they were sampled, and then
the ids of the new messages. Nothing sampled is ever rendered or encoded again. A request that
continues nothing starts a new root, counted by reason.

The prompt handed to ``Sampler.generate`` is a tuple of its own: a sampler may keep it, and what it does
cannot reach the record. (It is the one thing that is copied with every turn, at about 2 ns a token.)
"""

from __future__ import annotations

import asyncio
import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hyperrl.agents.conversation import assistant_message, copy_message, snapshot
from hyperrl.agents.faults import EpisodeError, Faults
from hyperrl.agents.forest import Conversation, Forest, RecordedTurn
from hyperrl.agents.limits import Budget, LimitReached, RolloutLimits
from hyperrl.errors import (
    ConfigError,
    ContextOverflowError,
    InvariantError,
    RolloutError,
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
    RequestSeeds,
    Sampler,
    SamplingParams,
    ToolSchema,
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
        self._ordinals: dict[str, int] = {}
        self._seeds: dict[str, RequestSeeds] = {}
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

    @property
    def seats(self) -> Collection[str]:
        """The names of the seats."""
        return self._seats.keys()

    def close(self) -> None:
        """Refuse every later request, also those that are being answered now."""
        self._closed = True

    async def answer(
        self,
        seat_name: str,
        use: TurnUse,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        max_tokens: int | None = None,
    ) -> Reply:
        """Answer a request and record it as a turn.

        Args:
            seat_name: who is asked.
            use: what the turn is for.
            messages: the whole conversation, oldest first.
            tools: the tools that the policy is shown.
            max_tokens: most tokens of the answer, where that is lower than what the seat samples.

        Raises:
            LimitReached: the episode is over.
            RolloutError: the episode was sealed, or the request would start a second root where
                only one is allowed.
            SamplingError, TemplateError: the policy or its template cannot answer.
        """
        started = perf_counter()
        try:
            self._check_open()
            self.budget.admit_turn(use)
            seat = self._seats[seat_name]
            asked = messages if type(messages) is list else list(messages)
            turn = self._open(seat_name, use, asked, tools)
            if isinstance(seat, RemoteSeat):
                if seat_name not in self._remote:
                    self._remote[seat_name] = seat.open(self._key)
                return self._record_remote(turn, await self._remote[seat_name].respond(messages, tools))
            prompt = tuple(turn.conversation.ids)
            asked_params = seat.with_max_tokens(max_tokens).params
            params = self.budget.admit_tokens(len(prompt), len(prompt) - turn.ids_start, asked_params)
            turn.bound = self.budget.bound
            turn.temperature = params.temperature
            key, seed = self._next_request(seat_name)
            completion = await seat.sampler.generate(prompt, params, seed=seed, request_id=key)
            if len(completion.action_ids) < params.max_tokens:
                turn.bound = TruncationReason.CONTEXT  # if it was cut, then by the sampler's own limit
            return self._record(turn, completion, seat.renderer, f"call_{seat_name}_{key.ordinal}")
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

    def _next_request(self, seat_name: str) -> tuple[RequestKey, int]:
        """Return the name and the seed of the seat's next request."""
        group_id, sample_index = self._key
        ordinal = self._ordinals.get(seat_name, 0)
        self._ordinals[seat_name] = ordinal + 1
        if not ordinal:
            self._seeds[seat_name] = RequestSeeds(self._run_seed, self._key, seat_name)
        seeds = self._seeds[seat_name]
        return RequestKey(group_id, sample_index, seat_name, ordinal), seeds.seed(ordinal)

    def _open(
        self, seat_name: str, use: TurnUse, asked: list[Message], tools: Sequence[ToolSchema]
    ) -> RecordedTurn:
        """Return a turn whose conversation ends with the prompt of the request."""
        seat = self._seats[seat_name]
        parent = self.forest.find_parent(seat_name, asked, tools)
        reason = "" if parent is not None else self.forest.why_new_root(seat_name, asked)
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
            conversation = Conversation([], [], snapshot(tools))
        else:
            conversation = parent.conversation.branch(parent)
            _check_prefix(conversation.ids, parent)
        turn.conversation = conversation
        known = conversation.messages
        turn.ids_start, turn.messages_start = len(conversation.ids), len(known)
        conversation.ids += context_ids if type(context_ids) is list else _whole(context_ids)
        known += [copy_message(message) for message in asked[len(known) :]]
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
        self._check_open()
        turn.stop_reason = _stop_reason(completion.stop_reason)
        action_ids = _whole(completion.action_ids)
        parsed = renderer.parse(action_ids, id_prefix=id_prefix)
        turn.logprobs_start = self.forest.draw(
            len(action_ids), _plain(completion.logprobs), _plain(completion.policy_versions)
        )
        reply = Reply(
            assistant_message(parsed),
            parsed.text,
            parsed.tool_calls,
            turn.stop_reason,
            action_ids,
            len(self.forest.turns),
        )
        self.budget.spend(len(action_ids))
        self._add(turn, reply)
        return reply

    def _record_remote(self, turn: RecordedTurn, reply: Reply) -> Reply:
        self._check_open()
        stop_reason = turn.stop_reason = _stop_reason(reply.stop_reason)
        turn_index = len(self.forest.turns)
        reply = reply._replace(turn=turn_index, action_ids=(), stop_reason=stop_reason)
        turn.logprobs_start, turn.temperature, turn.bound = -1, 1.0, TruncationReason.MAX_TOKENS
        turn.usage = reply.usage
        self._add(turn, reply)
        return reply

    def _add(self, turn: RecordedTurn, reply: Reply) -> None:
        conversation = turn.conversation
        ids, messages = conversation.ids, conversation.messages
        turn.action_start = len(ids)
        ids += reply.action_ids
        messages.append(copy_message(reply.message))
        turn.ids_end, turn.messages_end = len(ids), len(messages)
        turn.reply_message, turn.text, turn.tool_calls = reply.message, reply.text, reply.tool_calls
        self.forest.add(turn)

    def count_prompt(self, seat_name: str, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> int:
        """Return how many tokens the prompt of a request would have; nothing is recorded.

        Raises:
            SamplingError, TemplateError, ToolDefinitionError: it cannot be rendered.
        """
        seat, asked = self._seats[seat_name], list(messages)
        if isinstance(seat, RemoteSeat):
            return 0
        parent = self.forest.find_parent(seat_name, asked, tools)
        if parent is not None:
            try:
                return parent.ids_end + len(_bridge(seat, parent, asked[parent.messages_end :]))
            except TemplateError:
                pass  # then a root is counted
        return len(seat.renderer.first(asked, tools))

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

    def respond(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> Coroutine[Any, Any, Reply]:
        """Answer the conversation when awaited; see :meth:`Recorder.answer` for what it raises.

        A request continues a recorded turn if its messages are that turn's prompt, its reply and at
        least one more message, under the same tools. Assistant messages that were never sampled
        here are read as context, and only at a root: one after a sampled reply starts a new root.
        """
        return self._recorder.answer(self.seat, self.use, messages, tools)


async def _let_others_run() -> None:
    """Yield before a refusal, so that a program which asks again forever is still cut by the clock."""
    await asyncio.sleep(0)


def _check_prefix(prompt: list[int], parent: RecordedTurn) -> None:
    """Check that a prompt begins with its parent's tokens: it grows out of the array that holds them."""
    if len(prompt) != parent.ids_end:
        raise InvariantError(
            f"the prompt after turn {parent.index} does not begin with that turn's tokens: expected"
            f" {parent.ids_end} of them, found {len(prompt)}"
        )


def _bridge(seat: Seat, parent: RecordedTurn, new: list[Any]) -> Sequence[int]:
    for message in new:
        if (type(message) is dict or isinstance(message, Mapping)) and message.get("role") == "assistant":
            raise TemplateError("a reply that was not sampled here cannot follow a sampled one")
    return seat.renderer.bridge(parent.action_ids, new) if isinstance(seat, PolicySeat) else ()


def _plain(values: Any) -> Sequence[Any]:
    """Return values as Python numbers: those of an array, or of a tensor, are converted at once."""
    if type(values) is list:
        return values
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _whole(ids: Any) -> tuple[int, ...]:
    """Return ids as Python integers; a sampler may give an array, a tensor, or a list of NumPy's."""
    plain = _plain(ids)
    return tuple(plain) if not plain or type(plain[0]) is int else tuple(map(operator.index, plain))


def _stop_reason(given: str) -> StopReason:
    return given if type(given) is StopReason else StopReason(given)
