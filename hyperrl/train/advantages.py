"""Advantages: how much better than expected an episode, or a token of it, turned out.

Shapes: B episodes, G episodes of one group, N loss tokens of a batch.

Statistics are float64 on the host and over the whole batch, so that neither its split into
minibatches nor the order of its episodes matters. In float32 six equal rewards of 10000.1 have a
standard deviation that is not zero, and every one of them an advantage of -0.9.

An estimator is a function ``(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages``. Your own is
registered with :func:`register_advantage`, or named by its dotted path in ``algorithm.advantage``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hyperrl.errors import InvariantError
from hyperrl.train.registry import Registry

if TYPE_CHECKING:
    from hyperrl.train.algorithm_config import AlgorithmConfig

__all__ = [
    "ADVANTAGES",
    "EQUAL_REWARDS",
    "STD_EPS",
    "AdvantageFunction",
    "AdvantageInput",
    "Advantages",
    "all_equal",
    "compute_gae",
    "compute_group_advantages",
    "compute_returns_to_go",
    "register_advantage",
    "whiten",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STD_EPS = 1e-6
"""Added to the standard deviation before dividing by it, as verl does."""

VARIANCE_EPS = 1e-8
"""Added to the variance where a batch is whitened, as verl does."""

EQUAL_REWARDS = 1e-8
"""Values whose range is at most this share of the largest magnitude count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdvantageInput:
    """What an estimator may look at: the episodes of one batch that are learned from.

    Attributes:
        rewards: f64[B], the sum of each episode's ``token_rewards``.
        groups: i64[B], index of each episode's group, from 0.
        episode: i64[N], the episode of each loss token. Tokens of one episode stand together, in the order
            in which they were sampled, whichever path they lie on; what was read between them is not here.
        token_rewards: f64[N], reward that was earned at each token, each at the last token of the turn
            that earned it.
        values: f64[N], the critic's value of the state in which each token was drawn; ``None`` without
            a critic.
        bootstrap: f64[B], the value of the state after the last token where an episode was truncated,
            0 where it ended; ``None`` without a critic.
    """

    rewards: Floats
    groups: Ints
    episode: Ints
    token_rewards: Floats
    values: Floats | None = None
    bootstrap: Floats | None = None

    def spread(self, per_episode: Floats) -> Floats:
        """Give every loss token its episode's value: f64[B] -> f64[N]."""
        return per_episode[self.episode]

    def by_group(self, compute: Callable[[Floats], Floats]) -> Floats:
        """Apply ``compute`` to the rewards of every group, f64[G] -> f64[G]; return f64[B]."""
        result = np.zeros_like(self.rewards)
        order = np.argsort(self.groups, kind="stable")
        starts = np.flatnonzero(np.diff(self.groups[order], prepend=-1))
        for members in np.split(order, starts[1:]) if len(order) else ():
            result[members] = compute(self.rewards[members])
        return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advantages:
    """What an estimator returns.

    Attributes:
        advantages: f64[N], one for each loss token.
        returns: f64[N], what a critic should have said; ``None`` where the estimator has no critic.
    """

    advantages: Floats
    returns: Floats | None = None


AdvantageFunction = Callable[[AdvantageInput, "AlgorithmConfig"], Advantages]

ADVANTAGES: Registry[AdvantageFunction] = Registry("advantage")
"""The estimators by name."""


def register_advantage(name: str) -> Callable[[AdvantageFunction], AdvantageFunction]:
    """Make a function an estimator that ``algorithm.advantage`` may name.

    Raises:
        ConfigError: the name is taken.
    """
    return ADVANTAGES.register(name)


def compute_group_advantages(
    rewards: Sequence[float] | Floats,
    *,
    scale: Literal["std", "none"] = "std",
    leave_one_out: bool = False,
) -> Floats:
    """Compare the episodes of one group with their mean (GRPO, Shao et al. 2024, section 4.1.2).

    ``std`` gives (r - mean) / (std + STD_EPS) with the sample standard deviation (ddof 1); ``none``
    gives r - mean (Dr. GRPO, Liu et al. 2025). With ``leave_one_out`` the mean is that of the other
    episodes (RLOO, Ahmadian et al. 2024), which is the difference times G / (G - 1). Equal rewards
    give exactly 0.

    Args:
        rewards: f64[G], one for each episode, G at least 2.
        scale: what the differences are divided by.
        leave_one_out: leave an episode's own reward out of the mean that it is compared with.

    Returns:
        f64[G].

    Raises:
        InvariantError: fewer than two rewards, or one that is not finite.
    """
    values = np.asarray(rewards, np.float64)
    if len(values) < 2:
        raise InvariantError(f"a group needs at least 2 scored episodes to be compared, got {len(values)}")
    if not np.isfinite(values).all():
        raise InvariantError(f"rewards must be finite, got {values.tolist()}")
    if all_equal(values):
        return np.zeros_like(values)
    centred: Floats = values - values.mean()
    if leave_one_out:
        centred = centred * (len(values) / (len(values) - 1))
    if scale == "none":
        return centred
    return np.asarray(centred / (values.std(ddof=1) + STD_EPS))


def whiten(values: Floats) -> Floats:
    """Return values with mean 0 and variance 1: (x - mean) / sqrt(var + VARIANCE_EPS), ddof 1.

    Equal values, and a single one, give exactly 0.
    """
    if len(values) < 2 or all_equal(values):
        return np.zeros_like(values)
    return np.asarray((values - values.mean()) / np.sqrt(values.var(ddof=1) + VARIANCE_EPS))


def compute_returns_to_go(token_rewards: Floats, episode: Ints, *, gamma: float) -> Floats:
    """Return what each token's episode earns from it on, discounted: f64[N].

    The chain runs over loss tokens only: what was read between two of them neither breaks nor
    discounts it (verl #7278).
    """
    returns, _ = _backward(token_rewards, np.zeros_like(token_rewards), episode, gamma=gamma, lam=1.0)
    return returns


def compute_gae(batch: AdvantageInput, *, gamma: float, lam: float) -> Advantages:
    """Return generalised advantage estimates (Schulman et al. 2016, eq. 11-16) and the critic's targets.

    With the loss tokens of an episode numbered t = 0, 1, ...: delta_t = r_t + gamma V_{t+1} - V_t and
    A_t = delta_t + gamma lam A_{t+1}; after the last token stands ``bootstrap``. Targets are A + V.

    Raises:
        InvariantError: the batch has no values.
    """
    if batch.values is None:
        raise InvariantError("the advantage 'gae' needs a critic's values; a preset such as 'ppo' has one")
    advantages, returns = _backward(
        batch.token_rewards, batch.values, batch.episode, gamma=gamma, lam=lam, bootstrap=batch.bootstrap
    )
    return Advantages(advantages=advantages, returns=returns)


def _backward(
    rewards: Floats,
    values: Floats,
    episode: Ints,
    *,
    gamma: float,
    lam: float,
    bootstrap: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Run the recursion of GAE from each episode's last token to its first, all episodes side by side."""
    found, row, counts = np.unique(episode, return_inverse=True, return_counts=True)
    if not len(found):
        return np.zeros(0), np.zeros(0)
    order = np.argsort(row, kind="stable")
    rows = row[order]
    column = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = int(counts.max())
    shape = (len(found), width)
    r, v, advantages = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    r[rows, column], v[rows, column] = rewards[order], values[order]
    following = np.zeros(len(found)) if bootstrap is None else bootstrap[found]
    advantage = np.zeros(len(found))
    for t in reversed(range(width)):
        real = t < counts
        delta = r[:, t] + gamma * following - v[:, t]
        advantage = np.where(real, delta + gamma * lam * advantage, 0.0)
        following = np.where(real, v[:, t], following)
        advantages[:, t] = advantage
    result = np.empty_like(rewards)
    result[order] = advantages[rows, column]
    return result, result + values


def all_equal(values: Floats) -> bool:
    """Whether values differ by rounding at most (``EQUAL_REWARDS``): comparing them says nothing."""
    return not len(values) or bool(np.ptp(values) <= EQUAL_REWARDS * np.abs(values).max())


@register_advantage("group")
def _group(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages:
    def compare(rewards: Floats) -> Floats:
        return compute_group_advantages(rewards, scale=config.scale, leave_one_out=config.leave_one_out)

    return Advantages(advantages=batch.spread(batch.by_group(compare)))


@register_advantage("batch")
def _batch(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """Compare each episode with all of the batch: (r - mean) / std over episodes."""
    return Advantages(advantages=batch.spread(whiten(batch.rewards)))


@register_advantage("reinforce_pp")
def _reinforce_pp(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages:
    """REINFORCE++ (Hu et al. 2025): returns to go, whitened over the tokens of the batch."""
    returns = compute_returns_to_go(batch.token_rewards, batch.episode, gamma=config.gamma)
    return Advantages(advantages=whiten(returns))


@register_advantage("reinforce_pp_baseline")
def _reinforce_pp_baseline(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages:  # noqa: ARG001
    """REINFORCE++ with the mean of the group as baseline, whitened over the tokens of the batch.

    Whitening moves every advantage by the mean of the batch. A group of equal rewards stays at 0.
    """
    centred = batch.by_group(lambda rewards: compute_group_advantages(rewards, scale="none"))
    silent = batch.by_group(lambda rewards: np.full_like(rewards, all_equal(rewards)))
    return Advantages(advantages=np.where(batch.spread(silent), 0.0, whiten(batch.spread(centred))))


@register_advantage("return")
def _return(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages:
    """REINFORCE (Williams 1992): returns to go without a baseline."""
    returns = compute_returns_to_go(batch.token_rewards, batch.episode, gamma=config.gamma)
    return Advantages(advantages=returns)


@register_advantage("gae")
def _gae(batch: AdvantageInput, config: AlgorithmConfig) -> Advantages:
    found = compute_gae(batch, gamma=config.gamma, lam=config.lam)
    if not config.whiten:
        return found
    return Advantages(advantages=whiten(found.advantages), returns=found.returns)
