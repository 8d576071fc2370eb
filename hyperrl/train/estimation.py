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

    The estimator sees the tokens by episode, each episode's in the order in which they were sampled: a
    recursion must reach the turns of every path, and minibatches must not change a sum.

    Args:
        tokens: loss tokens of each minibatch.
        token_rewards: f64[N] for each minibatch.
        batch: ``rewards``, ``groups`` and, with a critic, ``bootstrap`` of the batch; ``values`` of all loss
            tokens in the order of ``tokens``.
        config: names the estimator.

    Raises:
        InvariantError: the estimator's result is no ``Advantages``, has the wrong length or is not finite.
        ConfigError: there is no such estimator.
    """
    if not tokens:
        return []
    episode, turn, position = (
        np.concatenate([getattr(one, name) for one in tokens]) for name in ("trajectory", "turn", "position")
    )
    order = np.lexsort((position, turn, episode))
    whole = replace(
        batch,
        episode=episode[order],
        token_rewards=np.concatenate(token_rewards)[order],
        values=None if batch.values is None else batch.values[order],
    )
    found = ADVANTAGES.find(config.advantage)(whole, config)
    if not isinstance(found, Advantages):
        raise InvariantError(
            f"the advantage {config.advantage!r} must return hyperrl.train.advantages.Advantages,"
            f" got {type(found).__name__}"
        )
    if config.critic and found.returns is None:
        raise InvariantError(
            f"the advantage {config.advantage!r} has a critic, but gives no returns to learn"
        )
    ends = np.cumsum([len(one) for one in tokens])[:-1]
    advantages = np.split(_put_back(found.advantages, order, config.advantage), ends)
    if found.returns is None:
        return [Advantages(advantages=part) for part in advantages]
    returns = np.split(_put_back(found.returns, order, f"{config.advantage} (returns)"), ends)
    return [Advantages(advantages=a, returns=r) for a, r in zip(advantages, returns, strict=True)]


def with_advantages(batch: TrainBatch, found: Sequence[Advantages]) -> TrainBatch:
    """Return the batch with the advantages of each minibatch."""
    pairs = zip(batch.minibatches, found, strict=True)
    minibatches = tuple(replace(m, advantages=a.advantages, returns=a.returns) for m, a in pairs)
    return replace(batch, minibatches=minibatches)


def _put_back(values: Floats, order: NDArray[np.int64], name: str) -> Floats:
    """Check what an estimator gave, and return it in the order of the minibatches' tokens."""
    found = np.asarray(values, np.float64)
    tokens = len(order)
    if found.shape != (tokens,) or not np.isfinite(found).all():
        raise InvariantError(
            f"the advantage {name!r} must return one finite number for each of {tokens} loss tokens, got"
            f" shape {found.shape}"
            + ("" if found.shape != (tokens,) else f", {int((~np.isfinite(found)).sum())} not finite")
        )
    result = np.empty_like(found)
    result[order] = found
    return result
