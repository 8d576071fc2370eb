"""How much a model computes, and how much of a device's peak that is.

Shapes: T tokens of a segment, n loss tokens.

Model FLOPs are what the mathematics needs, whatever a kernel does (Chowdhery et al. 2022, appendix B):
padding and layers that are computed again do not count. With P the weights of all linear layers but the
output layer, P_out those of the output layer, and heads of size d, a forward pass of one segment takes

    2 P T + 2 P_out n + layers * 4 heads d T (T + 1) / 2

and a backward pass twice as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from hyperrl.train.batching import Microbatch
from hyperrl.train.device import known_peak_flops

__all__ = ["UpdateMeter", "count_forward_flops"]

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def count_forward_flops(model: nn.Module, microbatch: Microbatch) -> float:
    """Return the FLOPs of a forward pass; 0 where they are not known (mixtures of experts)."""
    causal: Any = model
    config = getattr(causal, "config", None)
    if config is None or any(getattr(config, name, None) for name in _EXPERTS):
        return 0.0
    output = causal.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not output]
    lengths = microbatch.segment_lengths.astype(np.float64)
    body = 2.0 * sum(m.weight.numel() for m in linear) * lengths.sum()
    head = 2.0 * output.weight.numel() * len(microbatch.tokens)
    heads = getattr(config, "num_attention_heads", 0)
    width = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 0) // max(1, heads)
    pairs = (lengths * (lengths + 1) / 2).sum()
    return float(body + head + getattr(config, "num_hidden_layers", 0) * 4.0 * heads * width * pairs)


class UpdateMeter:
    """Adds up what the forward and backward passes of a batch have computed.

    Args:
        model: whose passes they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._microbatches: list[Microbatch] = []
        weight = next(model.parameters())
        self._peak = known_peak_flops(weight.device, weight.dtype)

    def add(self, microbatch: Microbatch) -> None:
        """Count a pass."""
        self._microbatches.append(microbatch)

    def take(self, seconds: float) -> dict[str, float]:
        """Return metrics of the passes since the last call; nothing where there were none."""
        passes, self._microbatches = self._microbatches, []
        if not passes or seconds <= 0:
            return {}
        tokens = _read(passes)
        computed = sum(one.padded_tokens for one in passes)
        metrics = {
            "perf/update_tokens": float(tokens),
            "perf/padding_fraction": 1 - tokens / computed,
            "perf/update_throughput": tokens / seconds,
        }
        flops = 3 * sum(count_forward_flops(self._model, one) for one in passes)
        if flops:
            metrics["perf/tflops/actor"] = flops / seconds / 1e12
        if flops and self._peak:
            metrics["perf/mfu/actor"] = flops / seconds / self._peak
        return metrics


def _read(passes: Sequence[Microbatch]) -> int:
    return int(sum(one.segment_lengths.sum() for one in passes))
