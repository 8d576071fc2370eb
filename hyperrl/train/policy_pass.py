"""One forward and backward pass of the policy over a microbatch: its share of an update's gradient.

Shapes: N loss tokens of a minibatch, n of a microbatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.batching import Microbatch, Minibatch
from hyperrl.train.kl import compute_kl, estimate_drift
from hyperrl.train.losses import LOG_RATIO_LIMIT, LOSSES, LossInput, compute_token_losses
from hyperrl.train.scoring import Score, compute_logprobs, compute_observed, compute_score

__all__ = ["PassSums", "PolicyUpdate", "run_pass"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyUpdate:
    """What one optimizer step of the policy looks at, all of length N.

    Attributes:
        minibatch: its tokens and weights.
        old: denominators of the ratios; ``None`` where they are the logprobs of the very pass that learns
            from them, so that every ratio is 1.
        advantages: of each token.
        reference: the reference's logprobs, where a KL is part of the loss.
        correction: weights for the mismatch of sampler and learner, where they are on.
    """

    minibatch: Minibatch
    old: Tensor | None
    advantages: Floats
    reference: Tensor | None = None
    correction: Floats | None = None


class PassSums(NamedTuple):
    """What a pass adds up to, as scalars on the model's device (no synchronisation with the host).

    Attributes:
        loss: what was minimised.
        policy: the policy loss alone.
        clipped: how many tokens' losses clipping changed.
        capped: of these, how many ``dual_clip`` did.
        k1: sum of the k1 estimates of the KL from old to current.
        k3: sum of the k3 estimates.
        kl: weighted sum of the KL estimates to the reference.
        entropy: weighted sum of entropies, where there is a bonus for them.
        tokens: n.
        moved: largest magnitude of a log ratio.
    """

    loss: Tensor
    policy: Tensor
    clipped: Tensor
    capped: Tensor
    k1: Tensor
    k3: Tensor
    kl: Tensor
    entropy: Tensor
    tokens: Tensor
    moved: Tensor

    @classmethod
    def join(cls, parts: list[PassSums]) -> PassSums:
        """Return the sums over passes, on the host; of ``moved`` the largest."""
        columns = torch.stack([torch.stack(part) for part in parts]).to("cpu", torch.float64)
        return cls._make([*columns[:, :-1].sum(0).unbind(), columns[:, -1].max()])


def run_pass(
    model: nn.Module, update: PolicyUpdate, micro: Microbatch, config: AlgorithmConfig
) -> tuple[PassSums, Score]:
    """Add a microbatch's gradient to the parameters.

    Args:
        model: the policy.
        update: what is learned from.
        micro: a microbatch of ``update.minibatch``.
        config: the parts of the loss.

    Returns:
        Sums, and the microbatch's logprobs and entropies without gradient; the entropies are empty where
        neither ``update.old`` is missing nor the loss has an entropy bonus.
    """
    score = _score(model, micro, config, observe=update.old is None)
    logprobs = score.logprobs
    chosen = torch.from_numpy(micro.tokens)
    old = logprobs.detach() if update.old is None else _pick(update.old, chosen, logprobs)
    weights = _pick(update.minibatch.weights, chosen, logprobs)
    found = compute_token_losses(
        LOSSES.find(config.loss),
        LossInput(
            logprobs=logprobs,
            old_logprobs=old,
            advantages=_pick(update.advantages, chosen, logprobs),
            sequence=torch.from_numpy(micro.sequence).to(logprobs.device),
        ),
        config,
    )
    losses = found.losses
    if update.correction is not None:
        losses = losses * _pick(update.correction, chosen, logprobs)
    loss = policy = (weights * losses).sum()
    kl = bonus = torch.zeros_like(policy)
    if update.reference is not None:
        reference = _pick(update.reference, chosen, logprobs)
        kl = (weights * compute_kl(logprobs, reference, config.kl.estimator)).sum()
        loss = loss + config.kl.coef * kl
    if config.entropy_coef:
        bonus = (weights * score.entropy).sum()
        loss = loss - config.entropy_coef * bonus
    torch.autograd.backward(loss)
    moved = logprobs.detach() - old
    k1, k3 = estimate_drift(moved.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    none = policy.new_zeros(())
    clipped, capped = (none if one is None else one.sum().to(policy) for one in (found.clipped, found.capped))
    count = policy.new_full((), len(micro.tokens))
    sums = (loss, policy, clipped, capped, k1.sum(), k3.sum(), kl, bonus, count, moved.abs().max())
    return PassSums(*(value.detach() for value in sums)), Score(logprobs.detach(), score.entropy.detach())


def _score(model: nn.Module, micro: Microbatch, config: AlgorithmConfig, *, observe: bool) -> Score:
    if config.entropy_coef:
        return compute_score(model, micro)
    if observe:
        return compute_observed(model, micro)
    logprobs = compute_logprobs(model, micro)
    return Score(logprobs, logprobs.new_zeros(0))


def _pick(values: Tensor | Floats, chosen: Tensor, like: Tensor) -> Tensor:
    """Return the chosen values on the device and in the type of ``like``."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    return tensor[chosen.to(tensor.device)].to(like)
