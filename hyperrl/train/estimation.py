"""From a batch to the advantages of its tokens, over the whole batch at once.

Shapes: B episodes of the batch, N loss tokens of a minibatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hyperrl.errors import InvariantError
from hyperrl.train.advantages import ADVANTAGES, AdvantageInput, Advantages
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.batching import LossTokens, TrainBatch

__all__ = ["estimate_advantages", "with_advantages"]

Floats = NDArray[np.float64]


def estimate_advantages(
    tokens: Sequence[LossTokens],
    token_rewards: Sequence[Floats],
    batch: AdvantageInput,
    config: AlgorithmConfig,
) -> list[Advantages]:
    """Return the advantages of each minibatch, estimated over all of them together.

    Args:
        tokens: loss tokens of each minibatch.
        token_rewards: f64[N] for each minibatch.
        batch: ``rewards``, ``groups`` and, with a critic, ``values`` and ``bootstrap`` of the batch.
        config: names the estimator.

    Raises:
        InvariantError: the estimator's result has the wrong length or is not finite.
        ConfigError: there is no such estimator.
    """
    if not tokens:
        return []
    counts = [len(one) for one in tokens]
    whole = replace(
        batch,
        episode=np.concatenate([np.zeros(0, np.int64), *(one.trajectory for one in tokens)]),
        token_rewards=np.concatenate([np.zeros(0), *token_rewards]),
    )
    found = ADVANTAGES.find(config.advantage)(whole, config)
    _check(found.advantages, sum(counts), config.advantage)
    if found.returns is not None:
        _check(found.returns, sum(counts), f"{config.advantage} (returns)")
    ends = np.cumsum(counts)[:-1]
    advantages = np.split(found.advantages, ends)
    if found.returns is None:
        return [Advantages(advantages=part) for part in advantages]
    returns = np.split(found.returns, ends)
    return [Advantages(advantages=a, returns=r) for a, r in zip(advantages, returns, strict=True)]


def with_advantages(batch: TrainBatch, found: Sequence[Advantages]) -> TrainBatch:
    """Return the batch with the advantages of each minibatch."""
    pairs = zip(batch.minibatches, found, strict=True)
    minibatches = tuple(replace(m, advantages=a.advantages, returns=a.returns) for m, a in pairs)
    return replace(batch, minibatches=minibatches)


def _check(values: Floats, tokens: int, name: str) -> None:
    if np.shape(values) != (tokens,) or not np.isfinite(values).all():
        raise InvariantError(
            f"the advantage {name!r} must return one finite number for each of {tokens} loss tokens, got"
            f" shape {np.shape(values)}"
            + ("" if np.shape(values) != (tokens,) else f", {int((~np.isfinite(values)).sum())} not finite")
        )
