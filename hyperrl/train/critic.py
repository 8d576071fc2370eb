"""The critic: a value function on a backbone of its own, learned beside the policy (PPO).

Shapes: B episodes, N loss tokens of a minibatch, n of a microbatch, R rows and L columns of a
microbatch, H hidden.

The value of a token is that of the state in which it was drawn: what stood before it. Values and their
targets are compared in float32 or wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperrl.train.batching import Microbatch, Minibatch, TrainBatch
from hyperrl.train.config import CriticConfig, OptimizerConfig
from hyperrl.train.losses import token_weights
from hyperrl.train.metrics import summarise
from hyperrl.train.optimization import Optimizer
from hyperrl.train.scoring import model_inputs

__all__ = ["ValueLearner", "ValueModel", "compute_value_loss", "explained_variance"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VARIANCE_EPS = 1e-5
"""Added to the variance of the returns where the explained part is computed, as in verl."""


class ValueModel(nn.Module):
    """A scalar head on the backbone of a causal language model.

    The head is zero: before its first update it says 0 everywhere, so that advantages begin as plain
    returns.

    Args:
        model: a causal language model; its backbone is used, its output layer is not.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        causal: Any = model
        output = causal.get_output_embeddings().weight
        self.backbone = causal.base_model
        self.head = nn.Linear(output.shape[1], 1, bias=False).to(output.device, output.dtype)
        nn.init.zeros_(self.head.weight)

    def forward(self, input_ids: Tensor, positions: Tensor, **packing: Any) -> Tensor:
        """Return [n] values, float32 or wider.

        Args:
            input_ids: i64[R, L], padded on the right, or packed.
            positions: i64[n], index into the flattened [R * L] positions.
            **packing: what else the backbone reads of packed segments (``scoring.model_inputs``).
        """
        hidden = self.backbone(input_ids=input_ids, use_cache=False, **packing).last_hidden_state
        values = self.head(hidden.flatten(0, 1).index_select(0, positions)).squeeze(-1)
        return values.to(torch.promote_types(values.dtype, torch.float32))  # type: ignore[no-any-return]


def compute_value_loss(
    values: Tensor, returns: Tensor, old_values: Tensor, *, clip: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of each token, and where clipping changed it.

    ``max((V - R)^2, (clamp(V, V_old - clip, V_old + clip) - R)^2) / 2`` (Schulman's PPO code; verl's
    ``compute_value_loss``).

    Args:
        values: [n], with gradient.
        returns: [n], targets.
        old_values: [n], before the first update of the batch.
        clip: how far a value may move in one batch; 0 is no limit.
    """
    free = (values - returns).square()
    if not clip:
        return 0.5 * free, torch.zeros_like(free, dtype=torch.bool)
    held = (old_values + (values - old_values).clamp(-clip, clip) - returns).square()
    return 0.5 * torch.maximum(free, held), (held > free).detach()


def explained_variance(returns: Floats, values: Floats) -> float:
    """Return 1 - var(R - V) / (var(R) + VARIANCE_EPS): 1 is perfect, 0 says nothing, below 0 misleads."""
    if len(returns) < 2:
        return 0.0
    return float(1 - (returns - values).var(ddof=1) / (returns.var(ddof=1) + VARIANCE_EPS))


class ValueLearner:
    """Owns a value model and its optimizer.

    Args:
        model: changed in place.
        config: learning rate and clipping.
        optimizer: AdamW's other settings, the policy's.
        microbatch_tokens: padded tokens of one forward pass where states after episodes are valued.
    """

    def __init__(
        self, model: ValueModel, config: CriticConfig, optimizer: OptimizerConfig, *, microbatch_tokens: int
    ) -> None:
        self.model = model.eval()
        self.config = config
        self._microbatch_tokens = microbatch_tokens
        own = {"lr": config.lr, "clip_norm": config.clip_norm, "warmup_steps": 0, "decay_steps": 0}
        self._optimizer = Optimizer(model, optimizer.model_copy(update=own))

    @torch.no_grad()
    def score(self, batch: TrainBatch) -> tuple[list[Floats], Floats]:
        """Return f64[N] values for each minibatch, and f64[B] values after truncated episodes.

        Where an episode was not truncated, or nothing was read after its last action, the latter is 0.
        """
        values = [self._values(minibatch) for minibatch in batch.minibatches]
        bootstrap = np.zeros(len(batch.episodes))
        for part in _by_budget(batch.bootstrap_ids, self._microbatch_tokens):
            bootstrap[part] = self._last_values([batch.bootstrap_ids[i] for i in part])
        return values, bootstrap

    def update(self, minibatch: Minibatch, values: Floats) -> dict[str, float]:
        """Make one update towards ``minibatch.returns``; return metrics.

        Args:
            minibatch: with ``returns``.
            values: f64[N], those of :meth:`score`.
        """
        returns = minibatch.returns
        if returns is None or not len(returns):
            return {}
        losses, clipped, new = [], 0, np.zeros(len(returns))
        for micro in minibatch.microbatches:
            loss, found, held = self._accumulate(minibatch, values, micro)
            new[micro.tokens] = found.to("cpu", torch.float64).numpy()
            losses.append(loss)
            clipped += int(held.sum())
        total = float(torch.stack(losses).sum())
        result = self._optimizer.step(total)
        return {
            "critic/vf_loss": total,
            "critic/vf_clipfrac": clipped / len(returns),
            "critic/vf_explained_var": explained_variance(returns, values),
            "critic/grad_norm": result.grad_norm,
            "critic/lr": result.lr,
            "critic/updates_applied": float(result.applied),
            "critic/updates_skipped": float(not result.applied),
            "critic/vpred_mean": float(new.mean()),
            **summarise("critic/values", values.tolist()),
            **summarise("critic/returns", returns.tolist()),
        }

    def probe(self, minibatch: Minibatch, values: Floats, micro: Microbatch) -> float:
        """Return the norm of a microbatch's gradient, NaN where its loss is not finite; change nothing."""
        loss, _, _ = self._accumulate(minibatch, values, micro)
        norm = float(self._optimizer.gradient_norm()) if bool(loss.isfinite()) else math.nan
        self._optimizer.clear()
        return norm

    def _accumulate(
        self, minibatch: Minibatch, values: Floats, micro: Microbatch
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add a microbatch's gradient; return its loss, its values and where clipping held them."""
        returns = np.zeros(0) if minibatch.returns is None else minibatch.returns
        weights = token_weights(minibatch.tokens.trajectory, "token_mean")
        found = self._forward(micro)
        target, old, weight = (
            torch.from_numpy(array[micro.tokens]).to(found) for array in (returns, values, weights)
        )
        token_losses, held = compute_value_loss(found, target, old, clip=self.config.clip)
        loss = (weight * token_losses).sum()
        torch.autograd.backward(loss)
        return loss.detach(), found.detach(), held

    def _values(self, minibatch: Minibatch) -> Floats:
        values = np.zeros(len(minibatch.tokens))
        for micro in minibatch.microbatches:
            found = self._forward(micro)
            values[micro.tokens] = found.to("cpu", torch.float64).numpy()
        return values

    def _last_values(self, prompts: Sequence[NDArray[np.int32]]) -> Floats:
        lengths = np.array([len(ids) for ids in prompts])
        input_ids = np.zeros((len(prompts), int(lengths.max())), np.int64)
        for row, ids in zip(input_ids, prompts, strict=True):
            row[: len(ids)] = ids
        last = np.arange(len(prompts)) * input_ids.shape[1] + lengths - 1
        device = self.model.head.weight.device
        values = self.model(torch.from_numpy(input_ids).to(device), torch.from_numpy(last).to(device))
        found: Floats = values.to("cpu", torch.float64).numpy()
        return found

    def _forward(self, micro: Microbatch) -> Tensor:
        device = self.model.head.weight.device
        positions = torch.from_numpy(micro.predictors).to(device)
        found: Tensor = self.model(positions=positions, **model_inputs(micro, device))
        return found


def _by_budget(prompts: Mapping[int, NDArray[np.int32]], budget: int) -> list[list[int]]:
    """Split prompts, longest first, into parts of at most ``budget`` padded tokens."""
    parts: list[list[int]] = []
    width = 0
    for index in sorted(prompts, key=lambda i: (-len(prompts[i]), i)):
        if parts and (len(parts[-1]) + 1) * width <= budget:
            parts[-1].append(index)
        else:
            parts.append([index])
            width = len(prompts[index])
    return parts
