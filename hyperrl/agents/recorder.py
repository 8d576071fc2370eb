"""The recorder: answers chat requests token-first and keeps every token that was read or sampled.

A program speaks in messages. For each request the recorder finds the recorded turn that it continues
and renders only what is new: the prompt is that turn's tokens, exactly as they were sampled, and then
the ids of the new messages. Nothing sampled is ever rendered or encoded again. A request that
continues nothing starts a new root, counted by reason.

The prompt handed to ``Sampler.generate`` is a tuple, which the record shares: a sampler may keep it, and
nothing that it does can reach the record. (Making the next prompt of it costs about 2 ns a token.)
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from hyperrl.agents.conversation import assistant_message, keep, snapshot
from hyperrl.agents.faults import EpisodeError, Faults
from hyperrl.agents.forest import Conversation, Forest, RecordedTurn, bridge_ids, whole_ids
from hyperrl.agents.limits import Budget, LimitReached, RolloutLimits
from hyperrl.errors import (
    ConfigError,
    ContextOverflowError,
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
        frozen: it is another model than the one that learns, such as an opponent or a judge: all its turns
            are recorded with ``use="side"``, never learned from and no turns of the task.
    """

    sampler: Sampler
    renderer: Renderer
    params: SamplingParams
    frozen: bool = False

    def __post_init__(self) -> None:
        if not self.params.stop_ids:
            params = dataclasses.replace(self.params, stop_ids=tuple(self.renderer.stop_ids))
            object.__setattr__(self, "params", params)

    def with_max_tokens(self, limit: int | None) -> PolicySeat:
        """Return a seat whose actions have at most ``limit`` tokens."""
        if limit is None or self.params.max_tokens <= limit:
            return self
        return dataclasses.replace(self, params=dataclasses.replace(self.params, max_tokens=limit))


class _Tokenless:
    """Stands where another seat has a renderer: nobody here sees the tokens that an endpoint reads."""

    def first(self, _messages: Sequence[Message], _tools: Sequence[ToolSchema]) -> list[int]:
        return []

    def bridge(self, _action_ids: Sequence[int], _new_messages: Sequence[Message]) -> list[int]:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSeat:
    """A seat answered by a policy without tokens: for evaluation and play, never for learning.

    Attributes:
        policy: answers; or a function from the key of an episode to what answers it, for policies that
            draw or keep something of their own in each.
        frozen: it is not the one that plays the task, but an opponent or a judge; see :class:`PolicySeat`.
    """

    policy: ChatPolicy | Callable[[EpisodeKey], ChatPolicy]
    frozen: bool = False
    renderer: ClassVar[_Tokenless] = _Tokenless()

    def open(self, key: EpisodeKey) -> ChatPolicy:
        """Return what answers an episode."""
        return self.policy if isinstance(self.policy, ChatPolicy) else self.policy(key)


Seat = PolicySeat | RemoteSeat
_new = tuple.__new__  # makes a named tuple of all its values in half the time of its own constructor
_CONTEXT, _MAX_TOKENS = TruncationReason.CONTEXT, TruncationReason.MAX_TOKENS
_TOO_LATE = "the episode is over and sealed; a late answer is not recorded"


class Recorder:
    """Answers and records the requests of one episode.

    Args:
        key: names the episode.
        run_seed: seed of the run; requests draw from ``request_seed(run_seed, request)``.
        seats: who answers, by name.
        limits: what the episode may use up.
        single_root: refuse every root of a seat but its first, as the built-in loop promises; and do not
            keep the messages that it was given, which nobody will ask with again.

    Attributes:
        forest: the recorded turns.
        budget: what is left of the limits.
        faults: exceptions raised while answering, with their stage.
        roots: how many contexts were started, by reason (``first``, ``rewritten_history``, ...).
        policy_s: seconds spent waiting for policies, summed over requests.
    """

    __slots__ = (
        "_closed",
        "_key",
        "_limited",
        "_remote",
        "_run_seed",
        "_seats",
        "_seeds",
        "_single_root",
        "budget",
        "faults",
        "forest",
        "policy_s",
        "roots",
    )

    def __init__(
        self,
        key: EpisodeKey,
        run_seed: int,
        seats: Mapping[str, Seat],
        limits: RolloutLimits | None = None,
        single_root: bool = False,
    ) -> None:
        self.forest = Forest()
        self.budget = Budget(limits or RolloutLimits())
        self._limited = self.budget.limited
        self.faults = Faults()
        self.roots: dict[str, int] = {}
        self.policy_s = 0.0
        self._key = key
        self._run_seed = run_seed
        self._seats = seats
        self._single_root = single_root
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
        """The names of the seats, those that are frozen last."""
        return sorted(self._seats, key=lambda name: self._seats[name].frozen)

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
        after: Reply | None = None,
    ) -> Reply:
        """Answer a request and record it as a turn.

        Args:
            seat_name: who is asked.
            use: what the turn is for.
            messages: the whole conversation; or, where ``after`` is given, what came after that reply.
            tools: the tools of a whole conversation, as the policy is shown them.
            max_tokens: most tokens of the answer, where that is lower than what the seat samples.
            after: the reply that is followed up.

        Raises:
            LimitReached: the episode is over.
            RolloutError: the episode was sealed, the reply is none of the seat's, or the request would
                start a second root where only one is allowed.
            SamplingError, TemplateError: the policy or its template cannot answer.
        """
        started = perf_counter()
        try:
            if self._closed:
                raise RolloutError(_TOO_LATE)
            seat, limited = self._seats[seat_name], self._limited
            if seat.frozen:
                use = "side"
            if limited:
                self.budget.admit_turn(use)
            turn = RecordedTurn()
            turn.seat = seat_name
            turn.use = use
            if after is None:
                self._open(turn, seat, messages if type(messages) is list else list(messages), tools)
            else:
                self._follow(turn, seat, after, messages)
            if isinstance(seat, RemoteSeat):
                return await self._ask_remote(turn, seat, messages, tools, after)
            del messages, after  # a waiting episode keeps no more than it must
            conversation = turn.conversation
            prompt = conversation.prompt
            params = seat.params if max_tokens is None else seat.with_max_tokens(max_tokens).params
            turn.bound = _MAX_TOKENS
            if limited:
                params = self.budget.admit_tokens(len(prompt), len(prompt) - turn.ids_start, params)
                turn.bound = self.budget.bound
            seed, key = conversation.requests.draw()
            completion = await seat.sampler.generate(prompt, params, seed=seed, request_id=key)
            return self._record(turn, completion, seat.renderer, params, key)
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

    def _open(
        self, turn: RecordedTurn, seat: Seat, asked: list[Message], tools: Sequence[ToolSchema]
    ) -> None:
        """Let ``turn`` end with the prompt of a request that holds the whole conversation."""
        parent = self.forest.find_parent(turn.seat, asked, tools)
        if parent is None:
            self._open_root(turn, seat, asked, tools, self.forest.why_new_root(turn.seat, asked))
            return
        try:
            turn.follow(parent, asked[parent.messages_end :], seat.renderer)
        except TemplateError as error:
            self._open_anew(turn, seat, asked, tools, error)

    def _follow(self, turn: RecordedTurn, seat: Seat, reply: Reply, new: Sequence[Message]) -> None:
        """Let ``turn`` end with what came after a reply."""
        turns, index = self.forest.turns, reply.turn
        if index is None or index >= len(turns) or turns[index].conversation.requests.seat != turn.seat:
            raise RolloutError(
                f"only a reply of the same seat can be followed up; seat {turn.seat!r} has not given turn"
                f" {index} of {len(turns)}: ask with the whole conversation, policy.respond(messages)"
            )
        parent = turns[index]
        try:
            turn.follow(parent, new, seat.renderer)
        except TemplateError as error:
            path = parent.conversation
            asked = [*path.messages[: parent.messages_end], *new]
            self._open_anew(turn, seat, asked, path.tools, error)

    def _open_anew(
        self,
        turn: RecordedTurn,
        seat: Seat,
        asked: list[Message],
        tools: Sequence[ToolSchema],
        error: TemplateError,
    ) -> None:
        """Let ``turn`` be a root because what is new cannot follow what was sampled."""
        if self._single_root:
            text = f"the new messages cannot follow the recorded conversation: {error}"
            raise EpisodeError("new_root", text) from error
        self._open_root(turn, seat, asked, tools, "bridge_refused")

    def _open_root(
        self,
        turn: RecordedTurn,
        seat: Seat,
        asked: list[Message],
        tools: Sequence[ToolSchema],
        reason: str,
    ) -> None:
        """Let ``turn`` be a root, and count why its prompt had to be rendered."""
        if self._single_root and reason != "first":
            raise EpisodeError(
                "new_root",
                f"the request does not continue the recorded conversation ({reason}):"
                f" {len(asked)} messages after {len(self.forest.turns)} turns",
            )
        self.roots[reason] = self.roots.get(reason, 0) + 1
        ids = whole_ids(seat.renderer.first(asked, tools))
        if turn.seat not in self._seeds:
            self._seeds[turn.seat] = RequestSeeds(self._run_seed, self._key, turn.seat)
        kept, tools = list(map(keep, asked)), snapshot(tools) if tools else ()
        turn.begin(Conversation(self._seeds[turn.seat], ids, kept, tools), asked)

    def _record(
        self,
        turn: RecordedTurn,
        completion: Completion,
        renderer: Renderer,
        params: SamplingParams,
        key: RequestKey,
    ) -> Reply:
        if self._closed:
            raise RolloutError(_TOO_LATE)
        forest = self.forest
        stop_reason = completion.stop_reason
        if type(stop_reason) is not StopReason:
            stop_reason = StopReason(stop_reason)
        ids = completion.action_ids
        action_ids = tuple(ids) if type(ids) is list and ids and type(ids[0]) is int else whole_ids(ids)
        count = len(action_ids)
        parsed = renderer.parse(action_ids, id_prefix=f"call_{turn.seat}_{key.ordinal}")
        content, reasoning, calls, text = parsed
        message: Message
        if reasoning or calls:
            message = assistant_message(parsed)
            kept = keep(message)
        else:
            message = {"role": "assistant", "content": content}
            kept = (content,)
        turn.logprobs_start = forest.draw(count, completion.logprobs, completion.policy_versions)
        turn.text = text
        turn.tool_calls = calls
        turn.stop_reason = stop_reason
        turn.temperature = params.temperature
        if count < params.max_tokens:
            turn.bound = _CONTEXT  # if it was cut, then by the sampler's own limit
        if self._limited:
            self.budget.spend(count)
        turn.given = None if self._single_root else message
        index = forest.add(turn, kept, action_ids)
        return _new(Reply, (message, text, calls, stop_reason, action_ids, index, None))

    async def _ask_remote(
        self,
        turn: RecordedTurn,
        seat: RemoteSeat,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        after: Reply | None,
    ) -> Reply:
        if after is not None:
            messages, tools = snapshot(turn.conversation.messages), turn.conversation.tools
        if turn.seat not in self._remote:
            self._remote[turn.seat] = seat.open(self._key)
        reply = await self._remote[turn.seat].respond(messages, tools)
        if self._closed:
            raise RolloutError(_TOO_LATE)
        turn.stop_reason = StopReason(reply.stop_reason)
        turn.text, turn.tool_calls, turn.usage = reply.text, reply.tool_calls, reply.usage
        turn.logprobs_start, turn.temperature, turn.bound = -1, 1.0, TruncationReason.MAX_TOKENS
        turn.given = None if self._single_root else reply.message
        index = self.forest.add(turn, keep(reply.message), ())
        return reply._replace(turn=index, action_ids=(), stop_reason=turn.stop_reason)

    def count_prompt(self, seat_name: str, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> int:
        """Return how many tokens the prompt of a request would have; nothing is recorded.

        Raises:
            SamplingError, TemplateError, ToolDefinitionError: it cannot be rendered.
        """
        seat, asked = self._seats[seat_name], list(messages)
        parent = self.forest.find_parent(seat_name, asked, tools)
        if parent is not None:
            try:
                new = asked[parent.messages_end :]
                return parent.ids_end + len(bridge_ids(seat.renderer, parent.action_ids, new))
            except TemplateError:
                pass  # then a root is counted
        return len(seat.renderer.first(asked, tools))

    def bridge_after(self, turn: RecordedTurn, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids that ``messages`` would add after ``turn``; empty where they cannot be bridged."""
        if not messages:
            return ()
        try:
            return bridge_ids(self._seats[turn.seat].renderer, turn.action_ids, messages)
        except TemplateError:
            return ()


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

    def follow_up(self, reply: Reply, messages: Sequence[Message]) -> Coroutine[Any, Any, Reply]:
        """Answer what came after ``reply``, which this seat gave in this episode, when awaited.

        The same as :meth:`respond` with the conversation so far, the reply and ``messages``, under the same
        tools, but what was said before is not looked at again: the cost does not grow with it.
        """
        return self._recorder.answer(self.seat, self.use, messages, (), after=reply)


async def _let_others_run() -> None:
    """Yield before a refusal, so that a program which asks again forever is still cut by the clock."""
    await asyncio.sleep(0)
