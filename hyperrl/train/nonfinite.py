"""Updates whose loss or gradient is not finite: who caused them, and when a run has had too many.

Shapes: n loss tokens of a microbatch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import nn

from hyperrl.errors import NonFiniteError
from hyperrl.sampling import EpisodeKey
from hyperrl.train.batching import LossTokens, Microbatch

__all__ = ["SkipWatch", "Skipped", "SkippedStep", "SkippedUpdate", "find_culprits", "unsound_weights"]

NAMED = 5
"""Culprits that a message names; the evidence has all of them."""

logger = logging.getLogger(__name__)

Probe = Callable[[Microbatch], float]
"""Returns the norm of a microbatch's own gradient, or NaN where its loss is not finite; changes nothing."""


class Skipped(Protocol):
    """An update that was left out, and why; ``str()`` says it in words."""

    def as_json(self) -> dict[str, Any]:
        """Return plain data; numbers that are not finite as text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedUpdate:
    """An update of reinforcement learning that was left out, and why.

    Attributes:
        model: ``policy`` or ``critic``.
        version: the policy version of the batch.
        minibatch: its index within the batch, from 0.
        loss: what was to be minimised.
        grad_norm: norm of the gradient before clipping.
        weights: parameters that are not finite themselves; then no episode is to blame.
        episodes: whose own loss or gradient is not finite; where none is, whose gradient is largest.
    """

    model: str
    version: int
    minibatch: int
    loss: float
    grad_norm: float
    weights: tuple[str, ...] = ()
    episodes: tuple[EpisodeKey, ...] = ()

    def __str__(self) -> str:
        cause = _cause(self.weights, (f"group {k.group_id}, sample {k.sample_index}" for k in self.episodes))
        return (
            f"the update of the {self.model} with minibatch {self.minibatch} of version {self.version} (loss"
            f" {self.loss:g}, gradient norm {self.grad_norm:g}), {cause}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain data; numbers that are not finite as text."""
        return _plain(asdict(self)) | {"episodes": [key._asdict() for key in self.episodes]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedStep:
    """A step of supervised learning that was left out, and why.

    Attributes:
        step: its number, from 1.
        loss: what was to be minimised.
        grad_norm: norm of the gradient before clipping.
        weights: parameters that are not finite themselves; then no conversation is to blame.
        conversations: whose own loss or gradient is not finite; where none is, whose gradient is largest.
    """

    step: int
    loss: float
    grad_norm: float
    weights: tuple[str, ...] = ()
    conversations: tuple[str, ...] = ()

    def __str__(self) -> str:
        cause = _cause(self.weights, self.conversations)
        return f"step {self.step} (loss {self.loss:g}, gradient norm {self.grad_norm:g}), {cause}"

    def as_json(self) -> dict[str, Any]:
        """Return plain data; numbers that are not finite as text."""
        return _plain(asdict(self))


LOOK_AT_EPISODES = (
    "Look at these episodes' rewards and logprobs; a smaller optimizer.lr or model.dtype float32 often helps;"
    " algorithm.skip_limit sets how many may be left out"
)
"""What somebody whose updates are left out may do."""


class SkipWatch:
    """Keeps the updates of one model that were left out in a row.

    Args:
        limit: as many in a row stop the run.
        advice: what to do about it.
    """

    def __init__(self, limit: int, *, advice: str = LOOK_AT_EPISODES) -> None:
        self._limit = limit
        self._advice = advice
        self._skipped: list[Skipped] = []

    def applied(self) -> None:
        """An update was made: the row has ended."""
        self._skipped.clear()

    def skipped(self, update: Skipped) -> None:
        """Log an update that was left out.

        Raises:
            NonFiniteError: it is one too many.
        """
        self._skipped.append(update)
        logger.warning("left out %s", update)
        if len(self._skipped) >= self._limit:
            raise NonFiniteError(
                f"{len(self._skipped)} updates in a row were left out because loss or gradient were not"
                f" finite; the last was {update}. {self._advice}",
                evidence=tuple(one.as_json() for one in self._skipped),
            )


def unsound_weights(model: nn.Module) -> tuple[str, ...]:
    """Return the names of a model's parameters that are not finite."""
    return tuple(name for name, p in model.named_parameters() if not bool(torch.isfinite(p).all()))


def find_culprits(microbatches: Sequence[Microbatch], tokens: LossTokens, probe: Probe) -> tuple[int, ...]:
    """Return whose own loss or gradient is not finite, as indices of trajectories.

    Each row is run by itself, which costs about as much as the update did. Where every row is finite and only
    their sum is not, the row with the largest gradient is returned.

    Args:
        microbatches: what the update was to learn from.
        tokens: the loss tokens that they predict.
        probe: runs one row.
    """
    rows = [row for micro in microbatches for row in micro.rows()]
    norms = [probe(row) for row in rows]
    chosen = [row for row, norm in zip(rows, norms, strict=True) if not math.isfinite(norm)]
    if not chosen and rows:
        chosen = [rows[max(range(len(rows)), key=norms.__getitem__)]]
    return tuple(sorted({int(tokens.trajectory[row.tokens[0]]) for row in chosen}))


def _cause(weights: Sequence[str], culprits: Iterable[str]) -> str:
    if weights:
        return f"the weights themselves are not finite: {_some(weights)}"
    return f"caused by {_some(culprits)}"


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    unsound = (name for name in ("loss", "grad_norm") if not math.isfinite(fields[name]))
    return fields | {name: str(fields[name]) for name in unsound}


def _some(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return "; ".join(known[:NAMED]) + more if known else "nothing that could be found"
