"""Losses as fixed weights over token losses, and the policy losses by name.

Shapes: N loss tokens of a minibatch (or n of a microbatch; every function works on any part that
holds whole sequences), S sequences. A *sequence* is one segment: the loss tokens of one path.

A loss is ``sum(weights * token_losses)``. The weights are computed once for the whole minibatch,
from nothing but which episode and group each token belongs to, so neither the split into microbatches
nor padding nor masked sequences can change the result.

A policy loss is a function ``(batch: LossInput, config: AlgorithmConfig) -> TokenLosses``. Your own is
registered with :func:`register_loss`, or named by its dotted path in ``algorithm.loss``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperrl.errors import InvariantError
from hyperrl.train.registry import Registry

if TYPE_CHECKING:
    from hyperrl.train.algorithm_config import AlgorithmConfig

__all__ = [
    "LOG_RATIO_LIMIT",
    "LOSSES",
    "Aggregation",
    "LossFunction",
    "LossInput",
    "TokenLosses",
    "compute_clipped_surrogate",
    "compute_sequence_log_ratio",
    "compute_token_losses",
    "global_sum",
    "register_loss",
    "token_weights",
]

Aggregation = Literal[
    "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "group_mean"
]

LOG_RATIO_LIMIT = 20.0
"""The log ratio is clamped to this magnitude, so that the ratio stays finite in float32."""

SEQUENCE_LOG_RATIO_LIMIT = 10.0
"""The same for the ratio of a sequence, as in verl."""


def global_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over all processes that share a minibatch: the one seam where processes meet.

    Every denominator and every count goes through here. One process is its own sum.
    """
    return values


def token_weights(
    episodes: NDArray[np.int64],
    mode: Aggregation,
    *,
    groups: NDArray[np.int64] | None = None,
    horizon: int = 0,
) -> NDArray[np.float64]:
    """Return the weight of every loss token of a minibatch.

    With n_b loss tokens in episode b, N tokens and S episodes that have any, N_g tokens in group g and
    P groups that have any:

    =========================  ===================  ===========
    mode                       weight               sum
    =========================  ===================  ===========
    token_mean                 1 / N                1
    seq_mean_token_mean        1 / n_b / S          1
    seq_mean_token_sum         1 / S                N / S
    seq_mean_token_sum_norm    1 / S / horizon      N / S / horizon
    group_mean                 1 / N_g / P          1
    =========================  ===================  ===========

    Args:
        episodes: i64[N], the episode of each loss token. An episode with several segments is one.
        mode: how token losses become one number.
        groups: i64[N], the group of each loss token, for ``group_mean``.
        horizon: the constant length of ``seq_mean_token_sum_norm`` (Dr. GRPO, Liu et al. 2025).

    Returns:
        f64[N].

    Raises:
        InvariantError: the mode needs ``groups`` or ``horizon``.
    """
    if not len(episodes):
        return np.zeros(0)
    if mode == "token_mean":
        return np.full(len(episodes), 1.0) / global_sum(np.array([len(episodes)], np.float64))
    if mode in ("seq_mean_token_mean", "group_mean"):
        if mode == "group_mean" and groups is None:
            raise InvariantError("the aggregation group_mean needs the group of every token")
        parts_of = episodes if mode == "seq_mean_token_mean" or groups is None else groups
        _, inverse, counts = np.unique(parts_of, return_inverse=True, return_counts=True)
        parts = global_sum(np.array([len(counts)], np.float64))
        return np.asarray(1.0 / counts[inverse] / parts)
    if mode == "seq_mean_token_sum_norm" and horizon < 1:
        raise InvariantError(f"the aggregation {mode} needs a horizon of at least 1, got {horizon}")
    sequences = global_sum(np.array([len(np.unique(episodes))], np.float64))
    return np.full(len(episodes), 1.0) / sequences / (horizon if mode == "seq_mean_token_sum_norm" else 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossInput:
    """What a policy loss may look at: the loss tokens of whole sequences.

    Attributes:
        logprobs: [n], current, with gradient.
        old_logprobs: [n], denominator of the ratio.
        advantages: [n].
        sequence: i64[n], the sequence of each token, from 0.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    sequence: Tensor

    @property
    def log_ratio(self) -> Tensor:
        """[n], current minus old logprobs within ``LOG_RATIO_LIMIT``, with gradient."""
        return (self.logprobs - self.old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


class TokenLosses(NamedTuple):
    """What a policy loss gives for each token.

    Attributes:
        losses: [n], with gradient.
        clipped: bool[n], clipping changed the token's loss; ``None`` where the loss has no clipping.
        capped: bool[n], of these, where ``dual_clip`` did; ``None`` where the loss has none.
    """

    losses: Tensor
    clipped: Tensor | None = None
    capped: Tensor | None = None


LossFunction = Callable[[LossInput, "AlgorithmConfig"], TokenLosses]

LOSSES: Registry[LossFunction] = Registry("loss")
"""The policy losses by name."""


def register_loss(name: str) -> Callable[[LossFunction], LossFunction]:
    """Make a function a policy loss that ``algorithm.loss`` may name.

    Raises:
        ConfigError: the name is taken.
    """
    return LOSSES.register(name)


def compute_clipped_surrogate(
    ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float, dual_clip: float = 0.0
) -> TokenLosses:
    """Return PPO's clipped loss of each token, and where clipping changed it.

    ``max(-A r, -A clamp(r, 1 - clip_low, 1 + clip_high))`` (Schulman et al. 2017, eq. 7; clip-higher:
    DAPO, Yu et al. 2025); where A < 0 and ``dual_clip`` is c > 1, at most ``-A c`` (Ye et al. 2020, eq. 5).

    Args:
        ratio: [n], current over old probabilities, with gradient.
        advantages: [n].
        clip_low: how far the ratio may move below 1.
        clip_high: how far the ratio may move above 1.
        dual_clip: the largest ratio that counts where the advantage is negative; 0 is no limit.
    """
    free = -advantages * ratio
    held = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    losses, clipped, capped = torch.maximum(free, held), held > free, None
    if dual_clip:
        most = -advantages * dual_clip
        capped = (advantages < 0) & (losses > most)
        losses, clipped = torch.where(capped, most, losses), clipped | capped
    return TokenLosses(losses, clipped, capped)


def compute_sequence_log_ratio(log_ratio: Tensor, sequence: Tensor) -> Tensor:
    """Return [n]: for every token the mean of its sequence's log ratios, with gradient.

    Args:
        log_ratio: [n].
        sequence: i64[n], from 0.
    """
    size = int(sequence.max()) + 1 if len(sequence) else 0
    sums = log_ratio.new_zeros(size).index_add(0, sequence, log_ratio)
    counts = log_ratio.new_zeros(size).index_add(0, sequence, torch.ones_like(log_ratio))
    return (sums / counts.clamp(min=1))[sequence]


def compute_token_losses(loss: LossFunction, batch: LossInput, config: AlgorithmConfig) -> TokenLosses:
    """Return what a policy loss gives, after a look at its shape: a mean would silently be spread again.

    Raises:
        InvariantError: it is no ``TokenLosses``, not one loss for each token, or has no gradient.
    """
    found: object = loss(batch, config)
    shape = tuple(batch.logprobs.shape)
    if not isinstance(found, TokenLosses):
        problem = f"a {type(found).__name__}"
    elif tuple(found.losses.shape) != shape:
        problem = f"losses of shape {tuple(found.losses.shape)}"
    elif other := [
        f"{name} of shape {tuple(m.shape)}" for name, m in _masks(found) if tuple(m.shape) != shape
    ]:
        problem = other[0]
    elif batch.logprobs.requires_grad and not found.losses.requires_grad:
        problem = "losses without a gradient to logprobs"
    else:
        return found
    raise InvariantError(
        f"the loss {config.loss!r} must return hyperrl.train.losses.TokenLosses with one loss for each of"
        f" {shape[0]} tokens, got {problem}"
    )


def _masks(found: TokenLosses) -> list[tuple[str, Tensor]]:
    masks = (("clipped", found.clipped), ("capped", found.capped))
    return [(name, mask) for name, mask in masks if mask is not None]


@register_loss("clipped")
def _clipped(batch: LossInput, config: AlgorithmConfig) -> TokenLosses:
    return compute_clipped_surrogate(
        batch.log_ratio.exp(),
        batch.advantages,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )


@register_loss("gspo")
def _gspo(batch: LossInput, config: AlgorithmConfig) -> TokenLosses:
    """GSPO (Zheng et al. 2025, eq. 14-16): the ratio is the sequence's, the gradient each token's own."""
    moved = (batch.logprobs - batch.old_logprobs).detach()
    of_sequence = compute_sequence_log_ratio(moved, batch.sequence)
    own = batch.logprobs - batch.logprobs.detach()  # 0, with each token's gradient
    ratio = (own + of_sequence).clamp(max=SEQUENCE_LOG_RATIO_LIMIT).exp()
    return compute_clipped_surrogate(
        ratio, batch.advantages, clip_low=config.clip_low, clip_high=config.clip_high
    )


@register_loss("cispo")
def _cispo(batch: LossInput, config: AlgorithmConfig) -> TokenLosses:
    """CISPO (MiniMax-M1 2025, eq. 4-5): the clipped ratio is a weight without gradient."""
    ratio = batch.log_ratio.detach().exp()
    held = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    return TokenLosses(-held * batch.advantages * batch.logprobs, held != ratio)


@register_loss("policy_gradient")
def _policy_gradient(batch: LossInput, config: AlgorithmConfig) -> TokenLosses:  # noqa: ARG001
    """REINFORCE (Williams 1992): -A log p, without ratio or clipping."""
    return TokenLosses(-batch.advantages * batch.logprobs)
