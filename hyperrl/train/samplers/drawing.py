"""Drawing tokens from logits. Shapes: N rows, V vocabulary.

A token is drawn by inverting the cumulative distribution at a uniform number of the row's own
Philox stream: nothing that a row draws depends on what else is in the batch. The distribution is
``exp`` of the logprobs that are reported, summed in float64 in the order of the ids (after top-k
and top-p: in the order of falling probability).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperrl.sampling import SamplingParams

__all__ = ["Uniforms", "draw"]

_BLOCK = 256


class Uniforms:
    """The uniform numbers in [0, 1) of one request, by position in its action."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))
        self._numbers: NDArray[np.float64] = np.zeros(0)

    def __getitem__(self, index: int) -> float:
        while index >= len(self._numbers):
            self._numbers = np.concatenate([self._numbers, self._generator.random(_BLOCK)])
        return float(self._numbers[index])


def draw(
    logits: Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Draw one token a row.

    Args:
        logits: [N, V], any floating dtype.
        params: N of them; temperature, top_p and top_k are used.
        uniforms: N numbers in [0, 1).

    Returns:
        N ids and their N logprobs in nats: float32 ``log_softmax(logits / temperature)`` before any
        truncation; at temperature 0 the most likely id, reported at temperature 1. The logprob of a
        row whose logits are not finite is not finite.
    """
    logprobs = torch.log_softmax(_divided(logits.float(), params), dim=-1)
    targets = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    ids = _invert(logprobs, targets)
    cut = [i for i, p in enumerate(params) if p.truncates and p.temperature > 0]
    if cut:
        rows = torch.tensor(cut, device=logits.device)
        ids[rows] = _invert_truncated(logprobs[rows], targets[rows], [params[i] for i in cut])
    greedy = [i for i, p in enumerate(params) if p.temperature == 0]
    if greedy:
        rows = torch.tensor(greedy, device=logits.device)
        ids[rows] = logprobs[rows].argmax(dim=-1)
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return ids.tolist(), chosen.tolist()


def _divided(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    temperatures = [p.temperature or 1.0 for p in params]
    if all(temperature == 1 for temperature in temperatures):
        return logits
    return logits / torch.tensor(temperatures, device=logits.device)[:, None]


def _invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Ids [N]: the first whose cumulative probability exceeds ``uniforms`` [N] of the whole."""
    return _search(logprobs.exp().cumsum(dim=-1, dtype=torch.float64), uniforms)


def _search(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    # A uniform number is at most 1 - 2**-53, so that rounding cannot lift the target to the whole
    # mass, past which there is no token. Only in a row that is not finite nothing is found.
    targets = uniforms[:, None] * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return found.clamp_(max=cumulative.shape[1] - 1)


def _invert_truncated(logprobs: Tensor, uniforms: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Like ``_invert`` over the tokens that top-k, then top-p keep."""
    ordered, order = logprobs.exp().double().sort(dim=-1, descending=True, stable=True)
    size = ordered.shape[1]
    top_k = torch.tensor([min(p.top_k or size, size) for p in params], device=logprobs.device)
    ordered.masked_fill_(torch.arange(size, device=logprobs.device) >= top_k[:, None], 0)
    cumulative = ordered.cumsum(dim=-1)
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=logprobs.device)
    before = cumulative - ordered
    ordered.masked_fill_(before >= top_p[:, None] * cumulative[:, -1:], 0)
    picked = _search(ordered.cumsum(dim=-1), uniforms)
    return order.gather(1, picked[:, None])[:, 0]
