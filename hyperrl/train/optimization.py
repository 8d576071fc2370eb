"""AdamW as every phase of training uses it: decay groups, clipping, and no update from bad numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hyperrl.train.config import OptimizerConfig
from hyperrl.train.device import has_fused_optimizers

__all__ = ["GradientStep", "Optimizer"]


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

    Args:
        model: its parameters are changed in place.
        config: learning rate, moments, decay and clipping.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        self.parameters = [p for p in model.parameters() if p.requires_grad]
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

    def _apply(self, norm: Tensor, lr: float) -> None:
        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip_norm, norm)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self._applied_steps += 1
