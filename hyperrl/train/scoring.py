"""Logprobs of chosen tokens under a causal language model, without logits of any others.

Shapes: n tokens that are scored, V vocabulary, B rows and L columns of a microbatch, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hyperrl.train.batching import Microbatch

__all__ = [
    "Score",
    "compute_logprobs",
    "compute_observed",
    "compute_score",
    "model_inputs",
    "score_microbatch",
    "select_logprobs",
]

CHUNK_ELEMENTS = 2**23
"""Logits that are widened at once: 32 MiB in float32."""


class Score(NamedTuple):
    """What a policy says about tokens.

    Attributes:
        logprobs: [n] nats, float32 or wider.
        entropy: [n] nats, of the distribution that the token was drawn from.
    """

    logprobs: Tensor
    entropy: Tensor


def compute_logprobs(model: nn.Module, microbatch: Microbatch) -> Tensor:
    """Return [n] logprobs of a microbatch's loss tokens, with gradient; float32 or wider.

    Args:
        model: a causal language model with ``get_output_embeddings``.
        microbatch: the tokens.
    """
    targets, temperature, logits = _forward(model, microbatch)
    return select_logprobs(logits, targets, temperature)


def compute_score(model: nn.Module, microbatch: Microbatch) -> Score:
    """Return logprobs as :func:`compute_logprobs` does, and entropies, both with gradient."""
    targets, temperature, logits = _forward(model, microbatch)
    entropy: Tensor = _Entropy.apply(logits, temperature)  # type: ignore[no-untyped-call]
    return Score(select_logprobs(logits, targets, temperature), entropy)


def compute_observed(model: nn.Module, microbatch: Microbatch) -> Score:
    """Return logprobs with gradient, bit for bit those of :func:`compute_logprobs`, and entropies without."""
    targets, temperature, logits = _forward(model, microbatch)
    return Score(*_SelectLogprobs.apply(logits, targets, temperature, True))  # type: ignore[no-untyped-call]


@torch.no_grad()
def score_microbatch(model: nn.Module, microbatch: Microbatch) -> Score:
    """Return logprobs, bit for bit those of :func:`compute_logprobs`, and entropies."""
    return compute_observed(model, microbatch)


def select_logprobs(logits: Tensor, targets: Tensor, temperature: Tensor) -> Tensor:
    """Return ``log_softmax(logits / temperature)`` at the targets.

    Works through chunks of rows and keeps only ``logits`` for the backward pass, so that the wide
    copy of [n, V] never exists as a whole.

    Args:
        logits: [n, V].
        targets: i64[n].
        temperature: [n], in the wide type (float32, or float64 for float64 logits).

    Returns:
        [n] in the wide type.
    """
    selected: Tensor
    selected, _ = _SelectLogprobs.apply(logits, targets, temperature, False)  # type: ignore[no-untyped-call]
    return selected


def model_inputs(microbatch: Microbatch, device: torch.device) -> dict[str, Any]:
    """Return what a model reads of a microbatch.

    Packed segments have positions of their own, from which transformers derives that they do not see each
    other; ``models.pack_attention`` makes use of ``segment_lengths`` instead.
    """
    inputs: dict[str, Any] = {"input_ids": torch.from_numpy(microbatch.input_ids).to(device)}
    if microbatch.lengths is not None:
        positions = np.concatenate([np.arange(length) for length in microbatch.lengths])
        inputs["position_ids"] = torch.from_numpy(positions)[None].to(device)
        inputs["segment_lengths"] = tuple(microbatch.lengths.tolist())
    return inputs


class _SelectLogprobs(torch.autograd.Function):
    """Logprobs of the targets, [n], and where asked for entropies, [n], without gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: Tensor, observe: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(logits, targets, temperature)
        selected, entropies = [], [temperature.new_zeros(0)]
        for part in _chunks(logits):
            logprobs = _log_softmax(logits[part], temperature[part])
            selected.append(_gather(logprobs, targets[part]))
            if observe:
                entropies.append(_entropy(logprobs))
        entropy = torch.cat(entropies)
        ctx.mark_non_differentiable(entropy)
        return torch.cat(selected), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, temperature = ctx.saved_tensors
        result = torch.empty_like(logits)
        scaled = grad / temperature
        for part in _chunks(logits):
            slope = _log_softmax(logits[part], temperature[part]).exp_().neg_()
            slope.scatter_add_(-1, targets[part, None], torch.ones_like(slope[:, :1]))
            result[part] = slope.mul_(scaled[part, None])
        return result, None, None, None


class _Entropy(torch.autograd.Function):
    """Entropy of softmax(logits / temperature), [n]; its slope is -p (log p + entropy) / temperature."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, temperature: Tensor) -> Tensor:
        entropy = torch.cat([_entropy(_log_softmax(logits[p], temperature[p])) for p in _chunks(logits)])
        ctx.save_for_backward(logits, temperature, entropy)
        return entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, temperature, entropy = ctx.saved_tensors
        result = torch.empty_like(logits)
        scaled = grad / temperature
        for part in _chunks(logits):
            logprobs = _log_softmax(logits[part], temperature[part])
            slope = torch.special.entr(logprobs.exp()) - logprobs.exp() * entropy[part, None]
            result[part] = slope.mul_(scaled[part, None])
        return result, None


def _entropy(logprobs: Tensor) -> Tensor:
    # entr: a token of probability 0 adds 0, not 0 * -inf.
    summands: Tensor = torch.special.entr(logprobs.exp())
    return summands.sum(-1)


def _chunks(logits: Tensor) -> list[slice]:
    rows, vocabulary = logits.shape
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return [slice(start, start + size) for start in range(0, max(1, rows), size)]


def _log_softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    return torch.log_softmax(logits.to(temperature.dtype) / temperature[:, None], dim=-1)


def _gather(logprobs: Tensor, targets: Tensor) -> Tensor:
    return logprobs.gather(-1, targets[:, None]).squeeze(-1)


def _forward(model: nn.Module, microbatch: Microbatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return targets i64[n], temperature [n] in the wide type, and logits [n, V].

    No attention mask: padding stands on the right, where causal attention never looks.
    """
    weight = next(model.parameters())
    device = weight.device
    wide = torch.promote_types(weight.dtype, torch.float32)
    targets = torch.from_numpy(microbatch.targets).to(device)
    temperature = torch.from_numpy(microbatch.temperature).to(device, wide)
    with _only(model, torch.from_numpy(microbatch.predictors).to(device)):
        output = model(**model_inputs(microbatch, device), use_cache=False)
    return targets, temperature, output.logits.squeeze(0)


@contextmanager
def _only(model: Any, positions: Tensor) -> Iterator[None]:
    """Let the output layer see only ``positions`` of the flattened [B * L, H] hidden states.

    What a model does to its logits afterwards (scales, soft caps) still applies.
    """

    def select(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0].flatten(0, 1).index_select(0, positions).unsqueeze(0), *args[1:])

    hook = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        hook.remove()
