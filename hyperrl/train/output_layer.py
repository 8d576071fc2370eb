"""The output layer in chunks of rows: logits of a large vocabulary, of which only few exist at a time.

Shapes: n rows of hidden states, H hidden, V vocabulary.

What is read off the logits is small, [n]; they themselves are [n, V], and so is their gradient. In chunks,
only the hidden states are kept for the backward pass, which computes each chunk's logits again and adds its
share to the gradients before it goes on to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["Reading", "chunk_rows", "has_output_layer", "read_in_chunks"]

Reading = Callable[[Tensor, slice], tuple[Tensor, ...]]
"""Reads off logits [k, V] of the rows of a slice: tensors [k]. Called with gradient and without."""


def has_output_layer(model: Any) -> bool:
    """Whether a model's backbone can be told from what stands behind it."""
    return isinstance(getattr(model, "base_model", None), nn.Module) and model.base_model is not model


def chunk_rows(rows: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows; at least one, and none of more than ``size``."""
    for start in range(0, max(1, rows), size):
        yield slice(start, start + size)


def read_in_chunks(
    model: nn.Module, inputs: dict[str, Any], positions: Tensor, reading: Reading, *, size: int
) -> tuple[Tensor, ...]:
    """Return what ``reading`` says about the logits at ``positions``, [n] each, with gradient.

    What a model does to hidden states and logits behind its backbone (scales, soft caps) still applies.
    Gradients of the weights there are added up in float32 or wider and rounded once.

    Args:
        model: a causal language model of which :func:`has_output_layer` holds.
        inputs: what its backbone reads.
        positions: i64[n], indices into the flattened positions.
        reading: called with the logits of each chunk.
        size: rows of a chunk.
    """
    causal: Any = model
    output = causal.base_model(**inputs, use_cache=False)
    hidden = output.last_hidden_state.flatten(0, 1).index_select(0, positions)
    head = _Head(causal, type(output))
    read: tuple[Tensor, ...] = _InChunks.apply(head, reading, size, hidden, *head.parameters)  # type: ignore[no-untyped-call]
    return read


class _Head:
    """What stands behind a model's backbone.

    The model itself computes it, with a backbone that answers with the hidden states it is given.

    Args:
        model: a causal language model.
        answer: type of its backbone's output.
    """

    def __init__(self, model: Any, answer: type[Any]) -> None:
        self._model = model
        self._answer = answer
        inner = {id(p) for p in model.base_model.parameters()}
        tied = set(map(id, model.get_output_embeddings().parameters()))
        self.parameters = [
            p for p in model.parameters() if p.requires_grad and (id(p) not in inner or id(p) in tied)
        ]

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return logits [k, V] of hidden states [k, H]."""
        backbone = self._model.base_model
        own = backbone.__dict__.get("forward")
        backbone.forward = lambda *_args, **_kwargs: self._answer(last_hidden_state=hidden[None])
        try:
            ids = torch.zeros(1, len(hidden), dtype=torch.int64, device=hidden.device)
            logits: Tensor = self._model(input_ids=ids, use_cache=False).logits
        finally:
            if own is None:
                del backbone.forward
            else:
                backbone.forward = own
        return logits.squeeze(0)


class _InChunks(torch.autograd.Function):
    """Reads off chunks of logits, which are computed again for their gradient."""

    @staticmethod
    def forward(
        ctx: Any, head: _Head, reading: Reading, size: int, hidden: Tensor, *_parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.head, ctx.reading, ctx.size = head, reading, size
        ctx.save_for_backward(hidden)
        ctx.set_materialize_grads(False)
        read = [reading(head(hidden[part]), part) for part in chunk_rows(len(hidden), size)]
        return tuple(torch.cat(column) for column in zip(*read, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        (hidden,) = ctx.saved_tensors
        result = torch.zeros_like(hidden)
        sums: list[Tensor | None] = [None] * len(ctx.head.parameters)
        for part in chunk_rows(len(hidden), ctx.size):
            rows = hidden[part].detach().requires_grad_()
            with torch.enable_grad():
                read = ctx.reading(ctx.head(rows), part)
            wanted = [(one, grad[part]) for one, grad in zip(read, grads, strict=True) if grad is not None]
            outputs, slopes = zip(*wanted, strict=True)
            own, *found = torch.autograd.grad(
                outputs, [rows, *ctx.head.parameters], slopes, allow_unused=True
            )
            result[part] = own
            sums = [_add(total, one) for total, one in zip(sums, found, strict=True)]
        weights = (
            None if total is None else total.to(p.dtype)
            for total, p in zip(sums, ctx.head.parameters, strict=True)
        )
        return None, None, None, result, *weights


def _add(total: Tensor | None, found: Tensor | None) -> Tensor | None:
    if found is None:
        return total
    if total is None:
        return found.to(torch.promote_types(found.dtype, torch.float32))
    return total.add_(found)
