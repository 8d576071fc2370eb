"""AdamW as every phase of training uses it: decay groups, clipping, and no update from bad numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hyperrl.train.config import OptimizerConfig
from hyperrl.train.device import has_fused_optimizers

__all__ = ["GradientStep", "Optimizer"]


SINGLE_BYTES = torch.float32.itemsize
"""Weights of fewer bytes are optimised through masters."""


class GradientStep(NamedTuple):
    """What became of accumulated gradients.

    Attributes:
        applied: the weights were changed; false if loss or gradient were not finite.
        grad_norm: norm of the gradient before clipping.
        lr: learning rate of this step.
    """

    applied: bool
    grad_norm: float
    lr: float


class Optimizer:
    """AdamW over a model's parameters; matrices decay, norms and biases do not.

    Weights of 16 bits are not what is optimised: small updates of them would round to nothing (bfloat16
    keeps 8 bits of a number). Each has a float32 *master*, which AdamW changes and the weight is rounded
    from; gradients of microbatches are added in float32. After anything else has changed such weights,
    call :meth:`reload`.

    Args:
        model: its parameters are changed in place.
        config: learning rate, moments, decay and clipping.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        trained = [p for p in model.parameters() if p.requires_grad]
        self._masters = {p: _make_master(p) for p in trained if p.element_size() < SINGLE_BYTES}
        self.parameters = [self._masters.get(p, p) for p in trained]
        decayed = [p for p in self.parameters if p.ndim >= 2]
        others = [p for p in self.parameters if p.ndim < 2]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}]
        groups += [{"params": others, "weight_decay": 0.0}] if others else []
        self._adamw = torch.optim.AdamW(
            groups,
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=all(has_fused_optimizers(p.device) for p in self.parameters),
        )
        self._applied_steps = 0

    @property
    def applied_steps(self) -> int:
        """Updates that changed the weights; skipped ones do not count."""
        return self._applied_steps

    @property
    def lr(self) -> float:
        """Learning rate of the next update; only applied updates advance the schedule.

        With n the number of the update, from 1: ``lr * n / warmup_steps`` up to update
        ``warmup_steps``; from there linearly down to ``lr * final_lr_fraction`` at ``decay_steps``.
        """
        config, number = self.config, self._applied_steps + 1
        if number < config.warmup_steps:
            return config.lr * number / config.warmup_steps
        if not config.decay_steps:
            return config.lr
        span = max(1, config.decay_steps - config.warmup_steps)
        done = min(1.0, (number - config.warmup_steps) / span)
        return config.lr * (1 - done * (1 - config.final_lr_fraction))

    def step(self, loss: float, *, lr: float | None = None) -> GradientStep:
        """Clip the accumulated gradients, apply them and clear them.

        If the loss or the gradient norm is not finite, nothing changes, the moments included.

        Args:
            loss: value of the loss whose gradients have been accumulated.
            lr: learning rate of this update, instead of the warm-up's.
        """
        lr = self.lr if lr is None else lr
        norm = self.gradient_norm()
        grad_norm = float(norm)
        applied = (
            any(p.grad is not None for p in self.parameters)
            and math.isfinite(loss)
            and math.isfinite(grad_norm)
        )
        if applied:
            self._apply(norm, lr)
        self.clear()
        return GradientStep(applied, grad_norm, lr)

    def gradient_norm(self) -> Tensor:
        """Return the norm of the accumulated gradients."""
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])

    def clear(self) -> None:
        """Forget accumulated gradients."""
        self._adamw.zero_grad(set_to_none=True)

    @torch.no_grad()
    def reload(self) -> None:
        """Take the masters from the weights as they are now."""
        for weight, master in self._masters.items():
            master.copy_(weight)

    def _apply(self, norm: Tensor, lr: float) -> None:
        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        with torch.no_grad():
            for weight, master in self._masters.items():
                weight.copy_(master)
        self._applied_steps += 1


def _make_master(weight: nn.Parameter) -> nn.Parameter:
    """Return a float32 copy of a weight that takes over every gradient that the weight is given."""
    master = nn.Parameter(weight.detach().to(torch.float32))

    def hand_over(_: Tensor) -> None:
        if weight.grad is not None:
            wide = weight.grad.to(torch.float32)
            master.grad = wide if master.grad is None else master.grad.add_(wide)
            weight.grad = None

    weight.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]
    return master
