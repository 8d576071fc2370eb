"""Attention of packed rows: several segments side by side, each of which sees only itself.

Shapes: B rows, L columns, T tokens of a packed row, h query heads, g key/value heads, d head size, k segments
of the same length.

The segments of a row are given as ``segment_lengths``, an argument of the model's forward. Runs of equally
long segments are one call of the very function that the model would use on padded rows; so no mask of
[T, T] exists, and the work does not grow with the square of the row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from hyperrl.errors import ModelError

__all__ = ["pack_attention"]

_LAYER_TYPES = {"full_attention", "sliding_attention"}
Attend = Callable[..., tuple[Tensor, Any]]


def pack_attention(model: nn.Module) -> nn.Module:
    """Let ``model`` attend by segment where ``segment_lengths`` are given; return the model.

    Without them it computes what it did before. Numbers are those of padded rows up to rounding: a softmax
    over a padded row may add in another order.

    Raises:
        ModelError: the architecture attends in a way that segments are not known for.
    """
    from transformers import AttentionInterface  # noqa: PLC0415 - heavy

    causal: Any = model
    name = str(causal.config._attn_implementation)
    others = set(getattr(causal.config, "layer_types", None) or ()) - _LAYER_TYPES
    if name not in ("eager", "sdpa") or others or not causal._can_set_attn_implementation():
        raise ModelError(
            f"{type(model).__name__} cannot read packed segments with {name} attention and layers of the"
            f" kinds {', '.join(sorted(others or _LAYER_TYPES))}; set algorithm.packing: padded"
        )
    AttentionInterface.register(f"hyperrl_{name}", partial(_attend, inner=_INNER[name]))
    causal.set_attn_implementation(f"hyperrl_{name}")
    return model


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    inner: Attend,
    segment_lengths: Sequence[int] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return [B, L, h, d]; query is [B, h, L, d], key and value [B, g, L, d]."""
    if segment_lengths is None:
        return inner(module, query, key, value, **options)[0], None
    parts = []
    for start, count, length in _runs(segment_lengths):
        chosen = slice(start, start + count * length)
        split = [
            tensor[0, :, chosen].reshape(tensor.shape[1], count, length, -1).transpose(0, 1)
            for tensor in (query, key, value)
        ]
        attended = inner(module, *split, **options)[0]  # [k, length, h, d]
        parts.append(attended.flatten(0, 1))
    return torch.cat(parts).unsqueeze(0), None


def _runs(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield first token, number and length of each run of equally long segments."""
    start = 0
    for length, run in groupby(lengths):
        count = len(list(run))
        yield start, count, length
        start += count * length


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> tuple[Tensor, Any]:
    """Call the eager attention of the model's own module; it is not registered anywhere."""
    attend: Attend = sys.modules[type(module).__module__].eager_attention_forward
    visible = _visible(query, options.get("sliding_window"))
    smallest = torch.finfo(query.dtype).min
    mask = torch.zeros_like(visible, dtype=query.dtype).masked_fill_(~visible, smallest)
    return attend(module, query, key, value, mask[None, None], **options)


def _sdpa(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Any]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415 - heavy

    window = options.get("sliding_window")
    windowed = window is not None and window < query.shape[2]
    mask = _visible(query, window)[None, None] if windowed else None
    attended: tuple[Tensor, Any] = sdpa_attention_forward(module, query, key, value, mask, **options)
    return attended


def _visible(query: Tensor, window: int | None) -> Tensor:
    """Return bool[L, L]: whether a position (row) sees another (column)."""
    place = torch.arange(query.shape[2], device=query.device)
    distance = place[:, None] - place
    visible = distance >= 0
    return visible if window is None else visible & (distance < window)


_INNER: dict[str, Attend] = {"eager": _eager, "sdpa": _sdpa}
