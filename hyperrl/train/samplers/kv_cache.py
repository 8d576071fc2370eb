"""Cached keys and values, one slot per row.

Shapes: N rows, S slots, K key/value heads, P positions, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["KVCache"]

_POSITIONS_STEP = 64


class KVCache:
    """Grows on demand in slots and positions; every row starts at position 0 of its slot.

    Args:
        layers: number of layers.
        heads: key/value heads.
        head_size: numbers per head.
        like: a tensor with the dtype and device of what is cached.
    """

    def __init__(self, *, layers: int, heads: int, head_size: int, like: Tensor) -> None:
        self._layers = layers
        self._heads = heads
        self._head_size = head_size
        self._like = like
        self._slots = 0
        self._positions = 0
        self._store: list[Tensor] = []
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self.clear()

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for ``slots`` rows of ``positions`` tokens; what is cached stays."""
        if slots <= self._slots and positions <= self._positions:
            return
        slots = _grown(self._slots, slots, step=1)
        positions = _grown(self._positions, positions, step=_POSITIONS_STEP)
        for layer, old in enumerate(self._store):
            new = self._empty(slots, positions)
            new[:, : self._slots, :, : self._positions] = old
            self._hold(layer, new)
        self._slots, self._positions = slots, positions

    def write_prompts(self, layer: int, slots: Tensor, states: Tensor) -> None:
        """Store keys and values [N, P, 2, K, D] of whole prompts at the start of ``slots`` [N]."""
        self._store[layer][:, slots, :, : states.shape[1]] = states.permute(2, 0, 3, 1, 4)

    def append(self, layer: int, rows: Tensor, positions: Tensor, states: Tensor) -> None:
        """Store one token's key and value [N, 2, K, D] for ``rows`` [N] at ``positions`` [N]."""
        self._store[layer][:, rows, :, positions] = states

    def read(self, layer: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Keys [N * K, D, P] and values [N * K, P, D]: views of the first ``rows`` slots."""
        heads = rows * self._heads
        return self._keys[layer][:heads, :, :length], self._values[layer][:heads, :length]

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of slot ``source`` into each of ``targets``."""
        for store in self._store:
            row = store[:, source, :, :length]
            for target in targets:
                store[:, target, :, :length] = row

    def clear(self) -> None:
        """Give the memory back."""
        self._slots = self._positions = 0
        self._store, self._keys, self._values = ([self._like] * self._layers for _ in range(3))
        for layer in range(self._layers):
            self._hold(layer, self._empty(0, 0))

    def _hold(self, layer: int, store: Tensor) -> None:
        keys, values = store.flatten(1, 2)
        self._store[layer], self._keys[layer], self._values[layer] = store, keys.transpose(1, 2), values

    def _empty(self, slots: int, positions: int) -> Tensor:
        """Room for keys and values, [2, S, K, P, D]."""
        # Zeros, not uninitialised memory: masked positions are multiplied by a probability of 0,
        # and 0 times NaN would be NaN.
        return self._like.new_zeros(2, slots, self._heads, positions, self._head_size)


def _grown(size: int, needed: int, *, step: int) -> int:
    """``size`` if that is enough, else at least half as much again, rounded up to a multiple of ``step``."""
    return size if needed <= size else -(-max(needed, size * 3 // 2) // step) * step
