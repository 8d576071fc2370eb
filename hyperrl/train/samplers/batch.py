"""The rows that are decoded together: one token for each of them a step.

A row's slot in the decoder's cache is its place in the batch. Rows whose keys and values are
cached come first; rows that join, and every row after a publication, are read again as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hyperrl.errors import SamplingError
from hyperrl.sampling import Completion
from hyperrl.train.device import memory_exhausted
from hyperrl.train.samplers.admission import Request
from hyperrl.train.samplers.decoder import Decoder
from hyperrl.train.samplers.drawing import Uniforms, draw
from hyperrl.trajectory import StopReason

__all__ = ["DecodeBatch", "Ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request that needs no more tokens: ``result`` is its completion, its error, or nothing."""

    request: Request
    result: Completion | SamplingError | None


@dataclass(slots=True, kw_only=True, eq=False)
class _Row:
    request: Request
    tokens: list[int]
    uniforms: Uniforms
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stop_reason: StopReason | None = None
    error: SamplingError | None = None

    @property
    def drawn(self) -> int:
        return len(self.logprobs)

    def take(self, token: int, logprob: float, version: int) -> None:
        if not math.isfinite(logprob):
            self.error = SamplingError(
                f"request {self.request.key}: the model's logits are not finite after"
                f" {len(self.tokens)} tokens (policy version {version}). The weights hold NaN or"
                " infinite numbers, or the number format overflows."
            )
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if token in self.request.params.stop_ids:
            self.stop_reason = StopReason.STOP
        elif self.drawn >= self.request.limit:
            self.stop_reason = StopReason.LENGTH

    def ended(self) -> Ended:
        if self.error is not None:
            return Ended(request=self.request, result=self.error)
        if self.request.cancelled or self.stop_reason is None:
            return Ended(request=self.request, result=None)
        completion = Completion(
            action_ids=self.tokens[len(self.request.prompt_ids) :],
            logprobs=self.logprobs,
            policy_versions=self.versions,
            stop_reason=self.stop_reason,
        )
        return Ended(request=self.request, result=completion)


class DecodeBatch:
    """Up to ``capacity`` rows over one decoder. Used by one thread at a time."""

    def __init__(self, decoder: Decoder, *, capacity: int) -> None:
        self._decoder = decoder
        self._capacity = capacity
        self._rows: list[_Row] = []
        self._cached = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def free(self) -> int:
        """Rows that may join."""
        return self._capacity - len(self._rows)

    def add(self, requests: Sequence[Request]) -> None:
        """Let requests join; they are read at the next step."""
        self._rows += [
            _Row(request=r, tokens=list(r.prompt_ids), uniforms=Uniforms(r.seed)) for r in requests
        ]

    def step(self, version: int) -> list[Ended]:
        """Draw one token a row from policy ``version``; return the rows that ended."""
        ended = self._remove_ended()
        self._read(self._rows[self._cached :])
        if self._cached == len(self._rows):
            self._draw(version)
        return ended + self._remove_ended()

    def forget_cache(self) -> None:
        """Drop cached keys and values: the weights that made them are gone."""
        self._cached = 0
        self._decoder.clear()

    def drop_all(self) -> list[Request]:
        """Empty the batch and return its requests."""
        requests = [row.request for row in self._rows]
        self._rows = []
        self.forget_cache()
        return requests

    def _read(self, fresh: list[_Row]) -> None:
        """Cache what the next token of the ``fresh`` rows at the end needs."""
        if not fresh:
            return
        with _answering(fresh):
            self._decoder.prefill([row.tokens for row in fresh], self._cached)
            self._cached = len(self._rows)

    def _draw(self, version: int) -> None:
        """Draw a token for every row."""
        rows = self._rows
        if not rows:
            return
        with _answering(rows):
            tokens, logprobs = draw(
                self._decoder.decode([row.tokens for row in rows]),
                [row.request.params for row in rows],
                [row.uniforms[row.drawn] for row in rows],
            )
            for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
                row.take(token, logprob, version)

    def _remove_ended(self) -> list[Ended]:
        """Take ended rows out; a row from the end moves into each place that becomes free."""
        over = [
            slot
            for slot, row in enumerate(self._rows)
            if row.stop_reason is not None or row.error is not None or row.request.cancelled
        ]
        ended = [self._rows[slot].ended() for slot in over]
        for slot in reversed(over):  # so that what moves in has not ended
            self._remove(slot)
        if any(isinstance(end.result, SamplingError) for end in ended):
            # What a failed row left in the cache may be NaN, which no mask keeps from its neighbours.
            self.forget_cache()
        return ended

    def _remove(self, slot: int) -> None:
        if slot >= self._cached:
            del self._rows[slot]
            return
        self._cached -= 1
        moved = self._rows.pop(self._cached)
        if slot < self._cached:
            self._rows[slot] = moved
            self._decoder.move(self._cached, slot, len(moved.tokens))


@contextmanager
def _answering(rows: Sequence[_Row]) -> Iterator[None]:
    """Make what is raised the answer to the requests of ``rows``."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever the model raises
        for row in rows:
            row.error = _explained(row.request, error, len(rows))


def _explained(request: Request, error: Exception, rows: int) -> SamplingError:
    if memory_exhausted(error):
        text = (
            f"request {request.key}: memory ran out while decoding {rows} rows. Lower the sampler's"
            " max_batch or the token limits of the rollout."
        )
    else:
        text = f"request {request.key}: decoding failed: {type(error).__name__}: {error}"
    explained = SamplingError(text)
    explained.__cause__ = error
    return explained
