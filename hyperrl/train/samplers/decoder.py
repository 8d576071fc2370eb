"""Next-token logits for many ragged sequences at once.

Shapes: N sequences, T prompt tokens, R = N or N * T rows, L cached positions, H hidden, Q query
heads, K key/value heads, D head size, V vocabulary. A sequence's slot in the cache is its place in
the batch.

:class:`CachedDecoder` runs a llama- or qwen-shaped model itself: the same weights and formulas as
the model's own forward, without the cost of preparing masks, caches and outputs for each token,
and with grouped query heads instead of repeated keys. For small models and a few dozen rows the
number of operations matters more than the arithmetic. In float64 its logits round to the same
float32 as the model's. :class:`UncachedDecoder` calls the model's own forward on whole sequences,
for every other architecture.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from hyperrl.train.samplers.kv_cache import KVCache
from hyperrl.train.samplers.packed_layer import PackedLayer, RMSNorm

__all__ = ["CachedDecoder", "Decoder", "UncachedDecoder", "make_decoder"]

_LOG = logging.getLogger(__name__)
_CACHED_TYPES = ("llama", "qwen2", "qwen3", "mistral")
_PREFILL_TOKENS = {"cpu": 512}
"""Most prompt tokens read in one go: on the CPU what the caches hold, and little padding."""
_PREFILL_TOKENS_ELSEWHERE = 8192
_MIN_KEYS = 16
"""Shortest row of attention weights. The CPU softmax adds up rows of fewer numbers than a vector
register holds in another order, so a sequence would change its bits when it grows past that."""
_MAX_PLAIN_WIDTH = 256
"""Longest prompt that is attended to with plain products where fused attention may be used."""

Sequences = Sequence[Sequence[int]]


class Decoder(Protocol):
    """Gives the logits that follow sequences, and keeps what it needs to go on with them."""

    def prefill(self, sequences: Sequences, first_slot: int) -> None:
        """Read all but the last token of sequences into slots from ``first_slot`` on."""
        ...

    def decode(self, sequences: Sequences) -> Tensor:
        """Read the last token of the sequences in slots 0 to N-1; logits [N, V] of the next one."""
        ...

    def move(self, source: int, target: int, length: int) -> None:
        """Move a row of ``length`` cached tokens to another slot."""
        ...

    def clear(self) -> None:
        """Forget all rows and give their memory back; the weights may have changed."""
        ...


def make_decoder(model: nn.Module) -> Decoder:
    """Return the fastest decoder that is exact for ``model``."""
    config: Any = model.config
    if _is_cacheable(model):
        return CachedDecoder(model)
    _LOG.warning(
        "the architecture %r is decoded without a key/value cache: every token reads its whole"
        " sequence again. This is exact but slow; llama, mistral, qwen2 and qwen3 are decoded with one.",
        config.model_type,
    )
    return UncachedDecoder(model)


def _is_cacheable(model: nn.Module) -> bool:
    config: Any = model.config
    layer_types = getattr(config, "layer_types", None) or ["full_attention"]
    sliding = config.model_type == "mistral" and config.sliding_window is not None
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return (
        config.model_type in _CACHED_TYPES
        and set(layer_types) == {"full_attention"}
        and not sliding
        and rope not in ("dynamic", "longrope")  # these depend on the length of the whole batch
    )


class CachedDecoder:
    """Decodes llama-, mistral-, qwen2- and qwen3-shaped models with a key/value cache."""

    def __init__(self, model: nn.Module) -> None:
        body: Any = model.get_submodule("model")
        config: Any = model.config
        self._embedding: Tensor = body.embed_tokens.weight
        self._layers = [PackedLayer.of(layer) for layer in body.layers]
        self._norm = RMSNorm.of(body.norm)
        self._head: Any = model.get_submodule("lm_head")
        self._device = self._embedding.device
        self._sdpa = config._attn_implementation == "sdpa"
        # For few queries plain products beat torch's fused attention on the CPU. It works in
        # at least float32 inside, so in 16 bits plain products would round where it does not.
        fast = self._device.type == "cpu" and self._embedding.dtype.itemsize >= 4
        self._plain = fast or not self._sdpa
        self._softmax_dtype = self._embedding.dtype if self._sdpa else torch.float32
        self._head_size = int(body.layers[0].self_attn.head_dim)
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._rotary = body.rotary_emb
        self._rotation: Tensor = self._embedding.new_empty((2, 0, 1, self._head_size))
        self._cache = KVCache(
            layers=len(self._layers),
            heads=self._kv_heads,
            head_size=self._head_size,
            like=self._embedding,
        )

    def prefill(self, sequences: Sequences, first_slot: int) -> None:
        self._cache.reserve(first_slot + len(sequences), max(_MIN_KEYS, *map(len, sequences)))
        places: dict[tuple[int, ...], list[int]] = {}
        for slot, sequence in enumerate(sequences, first_slot):
            places.setdefault(tuple(sequence[:-1]), []).append(slot)
        places.pop((), None)
        unique = sorted(places, key=len, reverse=True)
        for chunk in _chunks(range(len(unique)), unique, self._device):
            self._prefill_chunk([unique[i] for i in chunk], [places[unique[i]][0] for i in chunk])
        for sequence, (first, *others) in places.items():
            if others:
                self._cache.copy(first, others, len(sequence))

    def _prefill_chunk(self, sequences: Sequences, slots: list[int]) -> None:
        """Right-padded rows: under the causal mask no real token ever sees the padding."""
        count, width = len(sequences), max(_MIN_KEYS, *map(len, sequences))
        ids = torch.tensor([[*s, *[0] * (width - len(s))] for s in sequences], device=self._device)
        where = torch.tensor(slots, device=self._device)
        hidden = functional.embedding(ids.flatten(), self._embedding)
        rotation = self._rotations(width)[:, :width].repeat(1, count, 1, 1).unbind()
        plain = self._plain and (not self._sdpa or width <= _MAX_PLAIN_WIDTH)
        mask = _causal_mask(width, hidden) if plain else None
        for index, layer in enumerate(self._layers):
            query, states = self._project(layer, hidden, rotation)
            states = states.view(count, width, *states.shape[1:])
            self._cache.write_prompts(index, where, states)
            if index == len(self._layers) - 1:
                break  # nobody asks what would follow these tokens
            attended = self._attend_prompts(query, states, mask, layer.scaling)
            _finish_layer_(layer, hidden, attended)

    def decode(self, sequences: Sequences) -> Tensor:
        count, longest = len(sequences), max(_MIN_KEYS, *map(len, sequences))
        self._cache.reserve(count, longest)
        ends = [[s[-1] for s in sequences], [len(s) - 1 for s in sequences]]
        ids, positions = torch.tensor(ends, device=self._device).unbind()
        rows = torch.arange(count, device=self._device)
        hidden = functional.embedding(ids, self._embedding)
        rotation = self._rotations(longest)[:, positions].unbind()
        hidden_keys = torch.arange(longest, device=self._device) > positions[:, None]
        mask = hidden.new_zeros(count, self._kv_heads, longest)
        mask.masked_fill_(hidden_keys[:, None], torch.finfo(hidden.dtype).min)
        mask = mask.view(-1, 1, longest)
        for index, layer in enumerate(self._layers):
            query, states = self._project(layer, hidden, rotation)
            self._cache.append(index, rows, positions, states)
            keys, values = self._cache.read(index, count, longest)
            attended = self._attend_cached(query, keys, values, mask, layer.scaling)
            _finish_layer_(layer, hidden, attended)
        return functional.linear(self._norm(hidden), self._head.weight, self._head.bias)

    def move(self, source: int, target: int, length: int) -> None:
        self._cache.copy(source, [target], length)

    def clear(self) -> None:
        self._cache.clear()
        for layer in self._layers:
            layer.refresh()

    def _rotations(self, positions: int) -> Tensor:
        """Factors [2, P, 1, D] of the rotary embedding for at least the first ``positions``.

        The first is the cosine; the second the sine, negative in the first half of a head.
        """
        known = self._rotation.shape[1]
        if positions > known:
            index = torch.arange(max(positions, 2 * known, 256), device=self._device)
            cos, sin = self._rotary(self._embedding, index[None])
            sin[..., : self._head_size // 2].neg_()
            self._rotation = torch.cat((cos, sin))[:, :, None]
        return self._rotation

    def _project(
        self, layer: PackedLayer, hidden: Tensor, rotation: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Rotated query [R, Q, D]; rotated key and value [R, 2, K, D]."""
        projected = layer.query_key_value(layer.input_norm(hidden))
        projected = projected.view(hidden.shape[0], -1, self._head_size)
        rotated = projected[:, : self._heads + self._kv_heads]
        if layer.head_norm is not None:
            layer.head_norm.both(rotated, out=rotated)
        _rotate_(rotated, *rotation)
        states = projected[:, self._heads :].view(-1, 2, self._kv_heads, self._head_size)
        return projected[:, : self._heads], states

    def _attend_prompts(self, query: Tensor, states: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
        """Causal attention [N * T, H] of query [N * T, Q, D] over key and value [N, T, 2, K, D]."""
        count, width = states.shape[:2]
        groups = self._heads // self._kv_heads
        query = query.view(count, width, *query.shape[1:]).transpose(1, 2)
        key, value = states.permute(2, 0, 3, 1, 4)
        if mask is None:
            mixed = functional.scaled_dot_product_attention(
                query,
                key.repeat_interleave(groups, dim=1),
                value.repeat_interleave(groups, dim=1),
                is_causal=True,
                scale=scaling,
            )
        else:
            grouped = query.reshape(count, self._kv_heads, groups * width, self._head_size)
            scores = torch.matmul(grouped, key.transpose(-1, -2)).mul_(scaling)
            scores.view(*query.shape[:2], width, width).add_(mask)
            mixed = torch.matmul(self._softmax(scores), value).view(query.shape)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)

    def _attend_cached(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float
    ) -> Tensor:
        """Attention [N, H] of one query [N, Q, D] a row over keys [N * K, D, L] and values [N * K, L, D]."""
        grouped = query.reshape(keys.shape[0], -1, self._head_size)
        if self._plain:
            scores = torch.baddbmm(mask, grouped, keys, alpha=scaling)
            mixed = torch.bmm(self._softmax(scores), values)
        else:
            rows = (query.shape[0], self._kv_heads)
            grouped, keys, values, mask = (
                tensor.view(*rows, *tensor.shape[1:])
                for tensor in (grouped, keys.transpose(1, 2), values, mask)
            )
            mixed = functional.scaled_dot_product_attention(
                grouped, keys, values, attn_mask=mask, scale=scaling
            )
        return mixed.view(query.shape[0], -1)

    def _softmax(self, scores: Tensor) -> Tensor:
        if self._softmax_dtype == scores.dtype:
            return torch.softmax(scores, -1)
        return torch.softmax(scores, -1, dtype=self._softmax_dtype).to(scores.dtype)


class UncachedDecoder:
    """Decodes any causal language model by running its own forward on whole sequences."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._device = next(model.parameters()).device

    def prefill(self, sequences: Sequences, first_slot: int) -> None:
        """Nothing is cached."""

    def decode(self, sequences: Sequences) -> Tensor:
        order = list(range(len(sequences)))
        rows = [
            self._forward([sequences[i] for i in chunk]) for chunk in _chunks(order, sequences, self._device)
        ]
        return torch.cat(rows)

    def move(self, source: int, target: int, length: int) -> None:
        """Nothing is cached."""

    def clear(self) -> None:
        """Nothing is cached."""

    def _forward(self, sequences: Sequences) -> Tensor:
        """Right-padded, and without a padding mask: a causal model sees no padding from the left of it.

        With a sliding window a mask would leave padded rows nothing to look at, hence NaN.
        """
        lengths = [len(s) for s in sequences]
        width = max(_MIN_KEYS, *lengths)
        ids = torch.tensor([[*s, *[0] * (width - len(s))] for s in sequences], device=self._device)
        logits = self._model(input_ids=ids, use_cache=False).logits
        rows = torch.arange(len(sequences), device=self._device)
        return cast(Tensor, logits[rows, torch.tensor(lengths, device=self._device) - 1])


def _chunks(order: Sequence[int], sequences: Sequences, device: torch.device) -> list[list[int]]:
    """Cut ``order`` so that no chunk, padded to its longest row, exceeds the token budget."""
    budget = _PREFILL_TOKENS.get(device.type, _PREFILL_TOKENS_ELSEWHERE)
    chunks: list[list[int]] = []
    width = 0
    for index in order:
        width = max(width, len(sequences[index]))
        if not chunks or width * (len(chunks[-1]) + 1) > budget:
            chunks.append([])
            width = len(sequences[index])
        chunks[-1].append(index)
    return chunks


def _causal_mask(width: int, like: Tensor) -> Tensor:
    """Additive mask [T, T]: 0 where a token may look, the lowest number where it may not."""
    full = torch.full((width, width), torch.finfo(like.dtype).min, dtype=like.dtype, device=like.device)
    return full.triu(1)


def _rotate_(states: Tensor, cos: Tensor, signed_sin: Tensor) -> None:
    """Rotary position embedding of ``states`` [R, heads, D] in the half-split layout of llama."""
    swapped = states.roll(states.shape[-1] // 2, dims=-1)
    states.mul_(cos).addcmul_(swapped, signed_sin)


def _finish_layer_(layer: PackedLayer, hidden: Tensor, attended: Tensor) -> None:
    """Add the attention's output and the feed-forward block to ``hidden`` [R, H]."""
    layer.output.add_to_(hidden, attended)
    gate, up = layer.gate_up(layer.post_norm(hidden)).chunk(2, dim=-1)
    layer.down.add_to_(hidden, layer.activation(gate).mul_(up))
