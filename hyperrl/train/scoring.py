"""Logprobs of chosen tokens under a causal language model, without logits of any others.

Shapes: n tokens that are scored, V vocabulary, B rows and L columns of a microbatch, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hyperrl.train.batching import Microbatch
from hyperrl.train.output_layer import chunk_rows, has_output_layer, read_in_chunks

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

OUTPUT_ELEMENTS = 2**25
"""Logits of a microbatch that are kept for the backward pass: 128 MiB in float32. Where there are more, only
so many exist at a time, and the backward pass computes them again."""


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
    (logprobs,) = _read(model, microbatch, lambda *asked: (select_logprobs(*asked),))
    return logprobs


def compute_score(model: nn.Module, microbatch: Microbatch) -> Score:
    """Return logprobs as :func:`compute_logprobs` does, and entropies, both with gradient."""

    def read(logits: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, ...]:
        entropy: Tensor = _Entropy.apply(logits, temperature)  # type: ignore[no-untyped-call]
        return select_logprobs(logits, targets, temperature), entropy

    return Score(*_read(model, microbatch, read))


def compute_observed(model: nn.Module, microbatch: Microbatch) -> Score:
    """Return logprobs with gradient, bit for bit those of :func:`compute_logprobs`, and entropies without."""

    def read(logits: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = _SelectLogprobs.apply(logits, targets, temperature, True)  # type: ignore[no-untyped-call]
        return found

    logprobs, entropy = _read(model, microbatch, read)
    return Score(logprobs, entropy.detach())


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
    return list(chunk_rows(rows, max(1, CHUNK_ELEMENTS // vocabulary)))


def _log_softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    return torch.log_softmax(logits.to(temperature.dtype) / temperature[:, None], dim=-1)


def _gather(logprobs: Tensor, targets: Tensor) -> Tensor:
    return logprobs.gather(-1, targets[:, None]).squeeze(-1)


def _read(
    model: nn.Module, microbatch: Microbatch, reading: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """Return what ``reading(logits, targets, temperature)`` says about a microbatch's loss tokens.

    No attention mask: padding stands on the right, where causal attention never looks.
    """
    causal: Any = model
    weight = next(model.parameters())
    device = weight.device
    wide = torch.promote_types(weight.dtype, torch.float32)
    inputs = model_inputs(microbatch, device)
    positions = torch.from_numpy(microbatch.predictors).to(device)
    targets = torch.from_numpy(microbatch.targets).to(device)
    temperature = torch.from_numpy(microbatch.temperature).to(device, wide)
    size = max(1, OUTPUT_ELEMENTS // causal.get_output_embeddings().weight.shape[0])
    if len(targets) <= size or not has_output_layer(model):
        with _only(model, positions):
            output = model(**inputs, use_cache=False)
        return reading(output.logits.squeeze(0), targets, temperature)

    def of_rows(logits: Tensor, rows: slice) -> tuple[Tensor, ...]:
        return reading(logits, targets[rows], temperature[rows])

    return read_in_chunks(model, inputs, positions, of_rows, size=size)


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
