"""Sessions: the policies of one episode, as they are served to a program over HTTP."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

from hyperrl.agents.episode import FATAL
from hyperrl.agents.forest import RecordedTurn
from hyperrl.agents.limits import LimitReached
from hyperrl.agents.recorder import Recorder
from hyperrl.agents.session import Application
from hyperrl.errors import ConfigError, HyperrlError
from hyperrl.harness.gateway.echoes import Echoes
from hyperrl.harness.gateway.exchange import Answer, AnswerHead, ModelRequest, RefusedError
from hyperrl.harness.gateway.purposes import Purpose, Purposes
from hyperrl.trajectory import StopReason, TruncationReason, TurnUse

__all__ = ["Exchange", "GatewaySession", "GatewaySettings"]

RETRY_GRACE_S = 0.1
"""How long the loop gets to notice that the client of an identical request in flight has gone."""

DELIVERY_GRACE_S = 0.5
CANCEL_GRACE_S = 10.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """How a gateway serves.

    Attributes:
        host: address that it listens on.
        port: port; 0 takes a free one.
        keep_alive_s: seconds between signs of life in a stream that waits for its answer.
        max_body_bytes: largest request, after decompression.
        learn_from: side requests that are learned from nevertheless: ``title``, ``compaction``, ``subagent``.

    Raises:
        ConfigError: a value is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 0
    keep_alive_s: float = 3.0
    max_body_bytes: int = 256 * 2**20
    learn_from: frozenset[Purpose] = frozenset()

    def __post_init__(self) -> None:
        if not self.keep_alive_s > 0 or self.max_body_bytes < 1:
            raise ConfigError(
                f"keep_alive_s and max_body_bytes must be positive, got {self.keep_alive_s} and"
                f" {self.max_body_bytes}"
            )


_WARNED: set[TruncationReason] = set()
"""What was warned of in this process already: all episodes of a rollout would say the same."""


class Exchange:
    """One request while it is answered, and until its answer has been delivered.

    Attributes:
        head: the names that the answer will have.
        answer: the answer, when it is there.
        turn: the turn that was recorded for it.
        alone: set while no connection waits for the answer.
    """

    __slots__ = ("_waiting", "alone", "answer", "head", "turn")

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self.answer: asyncio.Task[Answer]
        self.turn: RecordedTurn | None = None
        self.alone = asyncio.Event()
        self._waiting = 0

    @property
    def orphaned(self) -> bool:
        """Whether its answer, there or still to come, is for nobody so far. An error is for no retry."""
        done = self.answer.done()
        return self.alone.is_set() and not (done and (self.answer.cancelled() or self.answer.exception()))

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """While entered, a connection waits for the answer."""
        self._waiting += 1
        self.alone.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.alone.set()


class GatewaySession:
    """The policies of one episode, served over HTTP.

    Attributes:
        name: its part of the URL.
        api_key: the secret that a client has to show.
        base_url: where a client is pointed at.
        error: what first kept a policy from answering since its last answer; ``None`` if nothing did, or
            only a limit.
        counts: requests, by kind.
        mounted: applications that are served beside the policies, by route.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        address: str,
        settings: GatewaySettings,
        on_close: Callable[[GatewaySession], None],
    ) -> None:
        self.name = secrets.token_hex(8)
        self.api_key = f"sk-hyperrl-{secrets.token_urlsafe(24)}"
        self.base_url = f"{address}/s/{self.name}/v1"
        self.error: BaseException | None = None
        self.counts: Counter[str] = Counter()
        self.mounted: dict[str, Application] = {}
        self.closed = False
        self._recorder = recorder
        self._settings = settings
        self._on_close = on_close
        self._answers = 0
        self._echoes = Echoes()
        self._purposes = Purposes()
        self._exchanges: dict[bytes, list[Exchange]] = {}
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._undelivered: set[RecordedTurn] = set()
        self._over: RefusedError | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The counts, each as ``gateway_<kind>``."""
        return {f"gateway_{kind}": float(count) for kind, count in self.counts.items()}

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats, which are the models that a program can ask for; the default is the first."""
        names = self._recorder.seats
        return tuple(sorted(names, key=lambda name: name != "main"))

    def mount(self, route: str, application: Application) -> str:
        """Serve an application at a route of the session, to whoever shows the secret; return its URL."""
        self.mounted[route] = application
        return f"{self.base_url.removesuffix('/v1')}/{route}"

    async def exchange(
        self, request: ModelRequest, headers: Mapping[str, str], fingerprint: bytes
    ) -> Exchange:
        """Begin to answer a request, or join the answer to an earlier one that it repeats.

        An identical request is a retry if no client waits for the earlier answer any more and it was never
        delivered; then nothing is sampled. Where it was delivered, or somebody still waits for it, a
        program wants another answer.

        Raises:
            RefusedError: the episode is over, or the request makes no sense.
        """
        self.counts["requests"] += 1
        self._check_open()
        earlier = await self._orphan(fingerprint)
        if earlier is not None:
            self.counts["coalesced"] += 1
            return earlier
        self._check_references(request)
        self._check_open()
        self._answers += 1
        key, model = f"{self.name}x{self._answers}", request.model or self._seat(request)
        begun = Exchange(AnswerHead(key=key, model=model, created=int(time.time())))
        self._exchanges.setdefault(fingerprint, []).append(begun)
        begun.answer = asyncio.create_task(self._answer(begun, request, self._use(request, headers)))
        self._tasks.add(begun.answer)
        begun.answer.add_done_callback(self._ended)
        return begun

    async def _orphan(self, fingerprint: bytes) -> Exchange | None:
        """Return the answer to an identical request whose client has gone, after a moment to notice that."""
        same = list(self._exchanges.get(fingerprint, ()))
        if same and not any(exchange.alone.is_set() for exchange in same):
            leaving = [asyncio.create_task(exchange.alone.wait()) for exchange in same]
            try:
                await asyncio.wait(leaving, timeout=RETRY_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in leaving:
                    task.cancel()
        same = self._exchanges.get(fingerprint, [])
        return next((exchange for exchange in same if exchange.orphaned), None)

    def delivered(self, exchange: Exchange, fingerprint: bytes) -> None:
        """Note that a client has the whole answer."""
        if exchange.turn is not None:
            self._undelivered.discard(exchange.turn)
        self._forget(exchange, fingerprint)

    def failed(self, exchange: Exchange, fingerprint: bytes) -> None:
        """Note that a request got an error, so that a retry is a request of its own."""
        self._forget(exchange, fingerprint)

    def count_tokens(self, request: ModelRequest) -> int:
        """Return how many tokens the prompt of a request has.

        Raises:
            RefusedError: the episode is over, or it cannot be rendered.
        """
        self._check_open()
        messages = self._echoes.recorded(request)
        try:
            return self._recorder.count_prompt(self._seat(request), messages, request.tools.schemas)
        except HyperrlError as error:
            raise RefusedError(400, "invalid_request", str(error)) from error

    async def aclose(self) -> None:
        """Refuse every later request, cancel those in flight; what was never delivered is not learned."""
        if self.closed:
            return
        self.closed = True
        self._on_close(self)
        self.mounted.clear()
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=CANCEL_GRACE_S)
            await self._let_deliveries_end()
        finally:
            self._exchanges.clear()
            followed = {turn.parent for turn in self._recorder.forest.turns}
            for turn in self._undelivered - followed:
                turn.use = "side"
                self.counts["undelivered"] += 1

    async def _let_deliveries_end(self) -> None:
        """Give answers that are being sent a moment: a fast program may have all of one before we know."""
        begun = chain.from_iterable(self._exchanges.values())
        sending = [exchange for exchange in begun if not exchange.alone.is_set()]
        with suppress(TimeoutError):
            async with asyncio.timeout(DELIVERY_GRACE_S):
                for exchange in sending:
                    await exchange.alone.wait()

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read here: where no client waits for it any more, nobody else does

    async def _answer(self, exchange: Exchange, request: ModelRequest, use: TurnUse) -> Answer:
        messages = self._echoes.recorded(request)
        try:
            reply = await self._recorder.answer(
                self._seat(request), use, messages, request.tools.schemas, request.max_tokens
            )
        except LimitReached as limit:
            overflow = limit.reason is TruncationReason.CONTEXT
            if not self._recorder.forest.turns:
                _warn_of_no_room(limit)
            code = "context_length_exceeded" if overflow else "episode_over"
            self._over = RefusedError(400, code, f"the episode is over: {limit}")
            raise self._over from limit
        except RecursionError as error:
            raise RefusedError(400, "invalid_request", "the body is nested too deeply") from error
        except Exception as error:  # a program is told in its own format
            self._note(error)
            raise RefusedError(400, "policy_error", f"the policy cannot answer: {error}") from error
        turn = self._recorder.forest.turns[reply.turn or 0]
        exchange.turn = turn
        self._undelivered.add(turn)
        if reply.stop_reason is StopReason.ABORT:
            raise RefusedError(503, "aborted", "the sampler aborted the answer before it ended")
        if not isinstance(self.error, FATAL):
            self.error = None  # the program got over it
        return self._echoes.issue(exchange.head, turn, reply, request.tools)

    def _note(self, error: BaseException) -> None:
        logger.debug("a request of session %s failed", self.name, exc_info=error)
        self.counts["policy_errors"] += 1
        if self.error is None or (isinstance(error, FATAL) and not isinstance(self.error, FATAL)):
            self.error = error

    def _seat(self, request: ModelRequest) -> str:
        return request.model if request.model in self._recorder.seats else self.seats[0]

    def _use(self, request: ModelRequest, headers: Mapping[str, str]) -> TurnUse:
        begun = self._recorder.forest.last_train_turn() is not None
        purpose = self._purposes.tell(request, headers, begun=begun)
        if request.tools.hosted:
            self.counts["hosted_tools"] += request.tools.hosted
        self.counts.update({f"dropped_{kind}": count for kind, count in request.dropped.items()})
        if purpose == "task":
            return "train"
        self.counts[f"{purpose}_requests"] += 1
        return "train" if purpose in self._settings.learn_from else "side"

    def _check_references(self, request: ModelRequest) -> None:
        if request.follows and self._echoes.turn_of(request.follows) is None:
            text = f"no response {request.follows!r:.80} was given in this session"
            raise RefusedError(400, "previous_response_not_found", text, "previous_response_id")
        for wire_id in request.references:
            if self._echoes.turn_of(wire_id) is None:
                text = f"no item {wire_id!r:.80} was given in this session; send it as it was"
                raise RefusedError(400, "item_not_found", text, "input")

    def _check_open(self) -> None:
        if self._over is not None:
            raise self._over
        if self.closed:
            raise RefusedError(400, "episode_over", "the episode is over; a late request changes nothing")

    def _forget(self, exchange: Exchange, fingerprint: bytes) -> None:
        same = self._exchanges.get(fingerprint, [])
        if exchange in same:
            same.remove(exchange)
        if not same:
            self._exchanges.pop(fingerprint, None)


def _warn_of_no_room(limit: LimitReached) -> None:
    if limit.reason not in _WARNED:
        _WARNED.add(limit.reason)
        logger.warning("an episode of a program ended before its first answer: %s", limit)
