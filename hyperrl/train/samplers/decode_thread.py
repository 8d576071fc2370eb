"""The one thread that computes: it steps the batch, lets requests join and hands results back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from hyperrl.errors import SamplerClosedError, SamplingError
from hyperrl.sampling import EpisodeKey
from hyperrl.train.samplers.admission import Admission, Request
from hyperrl.train.samplers.batch import DecodeBatch, Ended

__all__ = ["DecodeThread"]

_LOG = logging.getLogger(__name__)


class DecodeThread:
    """Runs from construction to :meth:`close`. All methods may be called from any thread.

    Args:
        batch: the rows; only this thread steps it.
        admission: which requests start.
        deliver: takes what ended, on this thread, outside the lock.
    """

    def __init__(
        self, batch: DecodeBatch, admission: Admission, deliver: Callable[[list[Ended]], None]
    ) -> None:
        self._batch = batch
        self._admission = admission
        self._deliver = deliver
        self._changed = threading.Condition()
        self._version = -1
        self._stepping = False
        self._holds = 0
        self._paused = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hyperrl-sampler", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The policy version that draws; -1 before the first."""
        return self._version

    @property
    def decoding(self) -> int:
        """Rows in the batch."""
        return len(self._batch)

    def submit(self, request: Request) -> None:
        """Let a request wait for its start.

        Raises:
            SamplerClosedError: closed, or nothing was published yet.
        """
        with self._changed:
            if self._closed:
                raise SamplerClosedError(f"request {request.key}: the sampler is closed")
            if self._version < 0:
                raise SamplerClosedError(
                    f"request {request.key}: no policy version was published to this sampler yet"
                )
            self._admission.add(request)

    def cancel(self, request: Request) -> None:
        """Nobody waits for ``request`` any more; free its place."""
        with self._changed:
            request.cancelled = True
            self._admission.end(request)
            self._changed.notify_all()

    def enter(self, episode: EpisodeKey) -> None:
        """Announce a live episode."""
        with self._changed:
            self._admission.enter(episode)

    def leave(self, episode: EpisodeKey) -> None:
        """An episode asks no more."""
        with self._changed:
            self._admission.leave(episode)

    def settle(self) -> None:
        """Every event of this moment was told: start what may start."""
        with self._changed:
            self._admission.settle()
            self._changed.notify_all()

    def install(self, version: int, swap: Callable[[], None]) -> None:
        """Between two steps, call ``swap`` and draw from ``version`` after it."""
        with self._held():
            swap()
            self._batch.forget_cache()
            self._version = version

    def pause(self) -> None:
        """Start no step any more; return when none runs."""
        with self._held():
            self._paused = True

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def close(self) -> None:
        """Fail everything that waits or decodes, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep the thread from starting a step; entered when none runs."""
        with self._changed:
            self._holds += 1
            try:
                self._changed.wait_for(lambda: not self._stepping)
                yield
            finally:
                self._holds -= 1
                self._changed.notify_all()

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._await_work():
                    self._step()
        finally:  # also if this thread itself fails: nobody must wait for it in vain
            with self._changed:
                self._closed, self._stepping = True, False
                given_up = [*self._batch.drop_all(), *self._admission.drain()]
                self._changed.notify_all()
            self._deliver([_closed(request) for request in given_up])

    def _await_work(self) -> bool:
        """Wait until a step is due and let requests join; False when closed."""
        with self._changed:
            self._changed.wait_for(self._due)
            if self._closed:
                return False
            self._batch.add(self._admission.take(self._batch.free))
            self._stepping = True
            return True

    def _due(self) -> bool:
        if self._closed:
            return True
        if self._paused or self._holds:
            return False
        return len(self._batch) > 0 or self._admission.ready()

    def _step(self) -> None:
        try:
            ended = self._batch.step(self._version)
        except Exception as error:  # noqa: BLE001 - the thread must outlive a failing step
            _LOG.exception("a decoding step failed")
            ended = [_failed(request, error) for request in self._batch.drop_all()]
        with self._changed:
            for end in ended:
                self._admission.end(end.request)
            self._stepping = False
            self._changed.notify_all()
        if ended:
            self._deliver(ended)


def _failed(request: Request, error: Exception) -> Ended:
    explained = SamplingError(f"request {request.key}: decoding failed: {type(error).__name__}: {error}")
    explained.__cause__ = error
    return Ended(request=request, result=explained)


def _closed(request: Request) -> Ended:
    return Ended(request=request, result=SamplerClosedError(f"request {request.key}: the sampler was closed"))
