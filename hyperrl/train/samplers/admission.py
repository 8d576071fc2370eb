"""Which waiting requests may start. Plain bookkeeping: no threads, no tensors.

``waves`` makes the make-up of every batch a function of the requests alone: the last bit of a
float32 logit depends on what shares the batch, so a batch must not depend on who was faster.
``immediate`` lets a request join at the next token.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hyperrl.errors import ConfigError, nearest
from hyperrl.sampling import Completion, EpisodeKey, RequestKey, SamplingParams

__all__ = ["Admission", "AdmissionMode", "ImmediateAdmission", "Request", "WaveAdmission", "make_admission"]

AdmissionMode = Literal["waves", "immediate"]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One waiting or decoding call of ``generate``.

    Attributes:
        key: the request's name.
        prompt_ids: what the action follows.
        params: how it is drawn.
        seed: of its own stream of uniform numbers.
        limit: most tokens of the action: ``max_tokens``, or what the context leaves.
        future: takes the completion or the error, on the caller's loop.
        cancelled: the caller has gone; its row is dropped before the next token.
    """

    key: RequestKey
    prompt_ids: list[int]
    params: SamplingParams
    seed: int
    limit: int
    future: asyncio.Future[Completion]
    cancelled: bool = field(default=False)


class Admission(Protocol):
    """Orders waiting requests. Callers hold the sampler's lock."""

    def enter(self, episode: EpisodeKey) -> None:
        """An episode is live from now on."""
        ...

    def leave(self, episode: EpisodeKey) -> None:
        """An episode asks no more."""
        ...

    def add(self, request: Request) -> None:
        """A request waits."""
        ...

    def settle(self) -> None:
        """Decide what may start; called when the events of a moment have all been told."""
        ...

    def ready(self) -> bool:
        """Whether :meth:`take` would give anything."""
        ...

    def take(self, count: int) -> list[Request]:
        """Up to ``count`` requests to start now, in order."""
        ...

    def end(self, request: Request) -> None:
        """A request is answered, failed or cancelled; it may have been waiting still."""
        ...

    def drain(self) -> list[Request]:
        """Give up and return everything that waits."""
        ...


class ImmediateAdmission:
    """First come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()

    def enter(self, episode: EpisodeKey) -> None:
        """Nothing depends on who is live."""

    def leave(self, episode: EpisodeKey) -> None:
        """Nothing depends on who is live."""

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def settle(self) -> None:
        """Nothing waits for others."""

    def ready(self) -> bool:
        return bool(self._waiting)

    def take(self, count: int) -> list[Request]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def end(self, request: Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)

    def drain(self) -> list[Request]:
        return self.take(len(self._waiting))


class WaveAdmission:
    """A wave starts when the one before has ended and every live episode waits.

    Its requests start in the order of their keys; those that find no slot follow in that order as
    slots become free. A request of an episode that nobody announced starts at once.
    """

    def __init__(self) -> None:
        self._live: Counter[EpisodeKey] = Counter()
        self._waiting: list[Request] = []
        self._wave: deque[Request] = deque()
        self._decoding: set[Request] = set()
        self._strangers: deque[Request] = deque()

    def enter(self, episode: EpisodeKey) -> None:
        self._live[episode] += 1

    def leave(self, episode: EpisodeKey) -> None:
        self._live[episode] -= 1
        if self._live[episode] <= 0:
            del self._live[episode]

    def add(self, request: Request) -> None:
        known = request.key.episode in self._live
        (self._waiting if known else self._strangers).append(request)

    def settle(self) -> None:
        if self._wave or self._decoding or len(self._waiting) < max(1, len(self._live)):
            return
        asking = {request.key.episode for request in self._waiting}
        if all(episode in asking for episode in self._live):
            self._wave = deque(sorted(self._waiting, key=lambda request: request.key))
            self._waiting = []

    def ready(self) -> bool:
        return bool(self._wave or self._strangers)

    def take(self, count: int) -> list[Request]:
        taken = [self._strangers.popleft() for _ in range(min(count, len(self._strangers)))]
        for _ in range(min(count - len(taken), len(self._wave))):
            request = self._wave.popleft()
            self._decoding.add(request)
            taken.append(request)
        return taken

    def end(self, request: Request) -> None:
        self._decoding.discard(request)
        for queue in (self._waiting, self._wave, self._strangers):
            if request in queue:
                queue.remove(request)

    def drain(self) -> list[Request]:
        given_up = [*self._waiting, *self._wave, *self._strangers]
        self._waiting, self._wave, self._strangers = [], deque(), deque()
        return given_up


def make_admission(mode: AdmissionMode) -> Admission:
    """Return the admission called ``mode``.

    Raises:
        ConfigError: there is none of that name.
    """
    known: dict[str, type[Admission]] = {"immediate": ImmediateAdmission, "waves": WaveAdmission}
    if mode not in known:
        raise ConfigError(f"admission must be one of {', '.join(known)}, got {mode!r}.{nearest(mode, known)}")
    return known[mode]()
