"""What training promises about a batch, checked on every one of them."""

from __future__ import annotations

import logging

import numpy as np

from hyperrl.errors import ConfigError, InvariantError
from hyperrl.train.advantages import ADVANTAGES
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.batching import LossTokens, TrainBatch
from hyperrl.train.losses import LOSSES

__all__ = ["check_batch", "check_first_ratio", "check_parts"]

WEIGHT_SUM_TOLERANCE = 1e-9
"""How far float64 weights of a minibatch may sum away from 1."""

logger = logging.getLogger(__name__)


def check_parts(algorithm: AlgorithmConfig, *, reference: bool, critic: bool) -> None:
    """Check that the parts of an algorithm exist and have what they need; warn of one that does nothing.

    Args:
        algorithm: names the parts.
        reference: whether there is a reference policy.
        critic: whether there is a critic.

    Raises:
        ConfigError: an unknown part, or one that lacks its reference or critic.
    """
    ADVANTAGES.find(algorithm.advantage)
    LOSSES.find(algorithm.loss)
    if algorithm.kl.place != "none" and not reference:
        raise ConfigError(f"algorithm.kl.place is {algorithm.kl.place}, but there is no reference policy")
    if algorithm.kl.place == "loss" and algorithm.kl.estimator == "k1":
        logger.warning(
            "algorithm.kl: k1 in the loss holds nothing back, for its mean gradient is 0; take k2, k3 or k3+,"
            " or put it into the reward (place: reward)"
        )
    if algorithm.needs_critic and not critic:
        raise ConfigError(f"the advantage {algorithm.advantage!r} needs a critic, but there is none")


def check_batch(batch: TrainBatch, algorithm: AlgorithmConfig, *, version: int, max_staleness: int) -> None:
    """Check what training promises about a batch.

    Args:
        batch: what will be learned from.
        algorithm: how its weights were made.
        version: the policy version of the learner.
        max_staleness: how many versions its tokens may be behind.

    Raises:
        InvariantError: a reward is not finite, a loss token has no version or one that the batch may
            not hold, or the weights of a minibatch do not sum to 1.
    """
    if not np.isfinite(batch.rewards).all():
        worst = int(np.flatnonzero(~np.isfinite(batch.rewards))[0])
        raise InvariantError(f"the reward of {batch.episodes[worst]} is {batch.rewards[worst]}, not finite")
    for minibatch in batch.minibatches:
        _check_versions(batch, minibatch.tokens, version, max_staleness)
        total = float(minibatch.weights.sum())
        if "token_sum" not in algorithm.aggregation and abs(total - 1) > WEIGHT_SUM_TOLERANCE:
            raise InvariantError(
                f"the weights of a minibatch sum to {total!r}; {algorithm.aggregation} needs 1"
            )


def check_first_ratio(off: float, tokens: LossTokens) -> None:
    """Check that the first ratio of a batch is exactly 1.

    The learner scored these very arrays with these very weights, so nothing may differ. A NaN passes:
    the update is then skipped because its loss is not finite.

    Args:
        off: the largest distance of a log ratio from 0.
        tokens: the tokens that were compared.

    Raises:
        InvariantError: a ratio is not 1.
    """
    if off > 0:
        raise InvariantError(
            f"the first ratio must be exactly 1, but a log ratio of {off:.3g} was found among"
            f" {len(tokens)} tokens: scoring and updating did not compute the same. A kernel that is not"
            " deterministic, dropout, or weights changed in between can be the cause"
        )


def _check_versions(batch: TrainBatch, tokens: LossTokens, version: int, max_staleness: int) -> None:
    oldest = max(0, version - max_staleness)
    versions = tokens.policy_versions
    wrong = np.flatnonzero((versions < oldest) | (versions > version))
    if len(wrong):
        episode = batch.episodes[tokens.trajectory[wrong[0]]]
        raise InvariantError(
            f"{len(wrong)} of {len(tokens)} tokens come from a version that this batch may not hold: group"
            f" {episode.group_id}, sample {episode.sample_index} has version {versions[wrong[0]]}, but the"
            f" learner holds version {version} and max_staleness is {max_staleness}"
        )
