"""How to ask a policy: token ids in, token ids out; or messages in, a reply out.

Nothing here decides anything: these are the contracts that samplers, agents and the trainer share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hyperrl.errors import ConfigError
from hyperrl.trajectory import StopReason

__all__ = [
    "Attendance",
    "ChatPolicy",
    "Completion",
    "EpisodeKey",
    "Message",
    "PublishTarget",
    "Reply",
    "RequestKey",
    "RequestSeeds",
    "Sampler",
    "SamplingParams",
    "ToolCall",
    "ToolSchema",
    "request_seed",
]

_new = tuple.__new__  # makes a named tuple of all its values in half the time of its own constructor
_from_bytes = int.from_bytes
_seed_hash = blake2b(digest_size=8)
_DIGITS = [b"%d" % number for number in range(256)]

Message = Mapping[str, Any]
"""A chat message in the chat-completions shape: ``role``, ``content``, ``tool_calls``, ..."""

ToolSchema = Mapping[str, Any]
"""A function tool in the chat-completions shape: ``{"type": "function", "function": {...}}``."""


class EpisodeKey(NamedTuple):
    """Names an episode of a run; sorts in the order in which a batch is laid out."""

    group_id: tuple[int, int]
    sample_index: int


class RequestKey(NamedTuple):
    """Names one request of an episode; sorts by (group_id, sample_index, seat, ordinal)."""

    group_id: tuple[int, int]
    sample_index: int
    seat: str
    ordinal: int

    @property
    def episode(self) -> EpisodeKey:
        """The episode that asks."""
        return EpisodeKey(self.group_id, self.sample_index)

    def __str__(self) -> str:
        epoch, position = self.group_id
        return f"{epoch}-{position}-{self.sample_index}-{self.seat}-{self.ordinal}"


def request_seed(run_seed: int, key: RequestKey) -> int:
    """Return the 63-bit seed of a request: a hash of the run's seed and the request's name.

    It never depends on rank, order of arrival or policy version, so the same episode draws the same
    numbers wherever and whenever it is played.
    """
    return RequestSeeds(run_seed, key.episode, key.seat, key.ordinal).draw()[0]


class RequestSeeds:
    """Names and seeds of one seat's requests in one episode: :func:`request_seed` gives the same.

    Args:
        run_seed: seed of the run.
        episode: the episode that asks.
        seat: the seat that is asked.
        ordinal: number of the request that is drawn first.

    Attributes:
        seat: the seat that is asked.
    """

    __slots__ = ("_group_id", "_name", "_next", "_sample_index", "seat")

    def __init__(self, run_seed: int, episode: EpisodeKey, seat: str, ordinal: int = 0) -> None:
        self._group_id, self._sample_index = episode
        epoch, position = self._group_id
        name = f"{run_seed}|{epoch}|{position}|{self._sample_index}|{seat}|"
        self._name = name.encode("utf-8", "surrogatepass")
        self.seat = seat
        self._next = ordinal

    def draw(self) -> tuple[int, RequestKey]:
        """Return the seed and the name of the next request."""
        ordinal = self._next
        self._next = ordinal + 1
        hashed = _seed_hash.copy()  # in half the time of a new one
        hashed.update(self._name + (_DIGITS[ordinal] if ordinal < 256 else b"%d" % ordinal))
        key = _new(RequestKey, (self._group_id, self._sample_index, self.seat, ordinal))
        return _from_bytes(hashed.digest(), "big") >> 1, key


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How an action is drawn.

    Attributes:
        max_tokens: most tokens of one action, at least 1.
        temperature: logits are divided by it; 0 takes the most likely token.
        top_p: keep the smallest set of tokens with this mass, in (0, 1]; 1 keeps all.
        top_k: keep the k most likely tokens; 0 keeps all.
        stop_ids: the action ends with the first of these (it is part of the action).

    Raises:
        ConfigError: a value is out of range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if not 0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature must be finite and >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ConfigError(f"top_k must be >= 0 (0 keeps all tokens), got {self.top_k}")

    @property
    def truncates(self) -> bool:
        """Whether some tokens are ruled out, so that logprobs miss the renormalised mass."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a sampler drew; the three sequences have one entry per action token.

    Attributes:
        action_ids: the sampled ids, the stop token included.
        logprobs: fp32 nats under ``log_softmax(logits / temperature)``, before any truncation
            (at temperature 0: at temperature 1).
        policy_versions: the published version that drew each token.
        stop_reason: why it ended.
    """

    action_ids: Sequence[int]
    logprobs: Sequence[float]
    policy_versions: Sequence[int]
    stop_reason: StopReason


@runtime_checkable
class Sampler(Protocol):
    """Draws actions: ids in, ids out. ``generate`` may be called concurrently."""

    @property
    def policy_version(self) -> int:
        """The version that is served now; -1 before the first publication."""
        ...

    async def generate(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: int,
        request_id: RequestKey,
    ) -> Completion:
        """Sample one action after ``prompt_ids``.

        Raises:
            ContextOverflowError: prompt and one more token exceed the model's context.
            SamplerClosedError: nothing published, or closed.
        """
        ...


@runtime_checkable
class Attendance(Protocol):
    """A sampler that decodes in deterministic waves and so needs to know who may still ask."""

    def attend(self, episode: EpisodeKey) -> AbstractAsyncContextManager[None]:
        """While entered, the episode is live: a wave waits for its request or for its end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call as it was read from an action.

    Attributes:
        call_id: unique within the episode.
        name: the tool's name; empty if none could be read.
        arguments: the arguments as an object, ``None`` unless ``status`` is ``ok``.
        raw: the text of the whole call exactly as written.
        status: ``ok``, ``invalid_json``, ``unclosed``, ``missing_name`` or ``malformed``.
        repairs: what was mended to understand it.
        span: token positions ``(start, end)`` within the action, where known.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any] | None
    raw: str
    status: str = "ok"
    repairs: tuple[str, ...] = ()
    span: tuple[int, int] | None = None


class Reply(NamedTuple):
    """A policy's answer to messages.

    Attributes:
        message: the assistant message to append to the conversation.
        text: the whole action as text, tool-call markup and reasoning included.
        tool_calls: every attempted call, malformed ones too.
        stop_reason: why it ended; calls of an action cut by ``length`` are never executed.
        action_ids: the sampled ids; empty for a remote endpoint.
        turn: index of the recorded turn; ``None`` for a remote endpoint.
        usage: tokens read and sampled, as a remote endpoint reports them; ``None`` where nobody says.
    """

    message: Message
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: StopReason = StopReason.STOP
    action_ids: tuple[int, ...] = ()
    turn: int | None = None
    usage: tuple[int, int] | None = None


@runtime_checkable
class ChatPolicy(Protocol):
    """Answers messages: over a sampler and a renderer (recorded), or over a remote endpoint."""

    async def respond(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Reply:
        """Answer the conversation so far. ``messages`` is the whole history, oldest first."""
        ...


class PublishTarget(Protocol):
    """Where new weights go. Until ``commit``, the version before is served, byte for byte.

    A bucket maps parameter names to arrays that live as long as the call; the target copies.
    """

    @property
    def policy_version(self) -> int:
        """The version that is served now; -1 before the first publication."""
        ...

    def begin(self, manifest: Any) -> None:
        """Get ready to receive what ``manifest`` lists. Raises PublicationError if it cannot."""
        ...

    def stage(self, bucket: Mapping[str, Any]) -> None:
        """Take a copy of some of the listed tensors, without serving them."""
        ...

    def verify(self) -> None:
        """Check everything staged against the manifest. Raises PublicationError."""
        ...

    def commit(self) -> None:
        """Serve the staged version, from one moment to the next."""
        ...

    def abort(self) -> None:
        """Forget what was staged; go on serving the version before."""
        ...

    def pause(self) -> None:
        """Stop starting new work; return when nothing reads the served weights."""
        ...

    def resume(self) -> None:
        """Go on after ``pause``."""
        ...
