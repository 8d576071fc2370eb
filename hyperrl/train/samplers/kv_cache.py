"""Cached keys and values, one slot per row.

Shapes: L layers, S slots, K key/value heads, P positions, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["KVCache"]

_POSITIONS_STEP = 64


class KVCache:
    """Grows on demand in slots and positions; every row starts at position 0 of its slot.

    Args:
        layers: number of layers.
        heads: key/value heads.
        head_size: numbers per head.
        dtype, device: of the cached tensors.
    """

    def __init__(
        self, *, layers: int, heads: int, head_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._heads = heads
        self._head_size = head_size
        self._dtype = dtype
        self._device = device
        self._slots = 0
        self._positions = 0
        self._keys = [self._empty(0, 0) for _ in range(layers)]
        self._values = [self._empty(0, 0) for _ in range(layers)]

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for ``slots`` rows of ``positions`` tokens; what is cached stays."""
        if slots <= self._slots and positions <= self._positions:
            return
        slots = max(self._slots, slots)
        if positions > self._positions:
            positions = -(-max(positions, self._positions * 3 // 2) // _POSITIONS_STEP) * _POSITIONS_STEP
        positions = max(self._positions, positions)
        for store in (self._keys, self._values):
            for layer, old in enumerate(store):
                new = self._empty(slots, positions)
                new[: self._slots, :, : self._positions] = old
                store[layer] = new
        self._slots, self._positions = slots, positions

    def write_prompts(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store ``keys`` and ``values`` [N, P, K, D] of whole prompts at the start of ``slots`` [N]."""
        length = keys.shape[1]
        self._keys[layer][slots, :, :length] = keys.transpose(1, 2)
        self._values[layer][slots, :, :length] = values.transpose(1, 2)

    def append(self, layer: int, rows: Tensor, positions: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store one token's ``keys`` and ``values`` [N, K, D] for ``rows`` [N] at ``positions`` [N]."""
        self._keys[layer][rows, :, positions] = keys
        self._values[layer][rows, :, positions] = values

    def read(self, layer: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Views [rows, K, length, D] of the first ``rows`` slots."""
        return self._keys[layer][:rows, :, :length], self._values[layer][:rows, :, :length]

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of slot ``source`` into each of ``targets``."""
        for store in (self._keys, self._values):
            for tensor in store:
                row = tensor[source, :, :length]
                for target in targets:
                    tensor[target, :, :length] = row

    def clear(self) -> None:
        """Give the memory back."""
        self._slots = self._positions = 0
        self._keys = [self._empty(0, 0) for _ in self._keys]
        self._values = [self._empty(0, 0) for _ in self._values]

    def _empty(self, slots: int, positions: int) -> Tensor:
        # Zeros, not uninitialised memory: masked positions are multiplied by a probability of 0,
        # and 0 times NaN would be NaN.
        shape = (slots, self._heads, positions, self._head_size)
        return torch.zeros(shape, dtype=self._dtype, device=self._device)
