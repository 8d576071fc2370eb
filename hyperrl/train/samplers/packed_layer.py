"""The parameters of one decoder layer, laid out for products with few rows.

Shapes: R rows, I inputs, O outputs of a projection, Q query heads, K key/value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["HeadNorm", "PackedLayer", "Projection", "RMSNorm"]


@dataclass(frozen=True, slots=True)
class Projection:
    """``x @ weight + bias``, where ``weight`` is [I, O].

    On the CPU a product with a few dozen rows takes about two thirds of the time if the weight lies
    in memory as [I, O] and not, as modules keep it, as [O, I].
    """

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, *modules: Any) -> Projection:
        """Pack linear modules that read the same input: their outputs come side by side.

        The modules' parameters become views of what is packed, so there is one copy of each number:
        who writes into the parameters, as a publication does, changes what is computed here.
        Assigning other tensors to them would not.
        """
        weight = torch.cat([module.weight.data for module in modules]).t().contiguous()
        bias = None if modules[0].bias is None else torch.cat([module.bias.data for module in modules])
        sizes = [len(module.weight) for module in modules]
        for module, part in zip(modules, weight.split_with_sizes(sizes, dim=1), strict=True):
            module.weight.data = part.t()
        for module, part in zip(modules, () if bias is None else bias.split_with_sizes(sizes), strict=False):
            module.bias.data = part
        return cls(weight, bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """Project ``rows`` [R, I]."""
        if self.bias is None:
            return torch.mm(rows, self.weight)
        return torch.addmm(self.bias, rows, self.weight)

    def add_to_(self, sums: Tensor, rows: Tensor) -> None:
        """Add the projection of ``rows`` [R, I] to ``sums`` [R, O]."""
        sums.addmm_(rows, self.weight)
        if self.bias is not None:
            sums += self.bias


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Root-mean-square norm over the last dimension, computed in float32 as transformers does it."""

    weight: Tensor
    size: Tensor
    epsilon: Tensor

    @classmethod
    def of(cls, module: Any) -> RMSNorm:
        """Take over the weight of a norm of transformers."""
        weight: Tensor = module.weight
        # As tensors the numbers need no conversion each time.
        size, epsilon = (
            torch.tensor(float(number), device=weight.device)
            for number in (len(weight), module.variance_epsilon)
        )
        return cls(weight.data, size, epsilon)

    def __call__(self, states: Tensor, out: Tensor | None = None) -> Tensor:
        """Normalise ``states`` into ``out``, which may be ``states``, or into a new tensor."""
        wide = states.float()
        squares = (wide * wide).sum(dim=-1, keepdim=True)
        scaled = wide * torch.addcdiv(self.epsilon, squares, self.size).rsqrt_()
        narrow = scaled if wide is states else scaled.to(states.dtype)
        return torch.mul(narrow, self.weight, out=out)


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """The norms of query and key heads as one, whose weight [Q + K, D] is a copy: see :meth:`refresh`."""

    query: RMSNorm
    key: RMSNorm
    both: RMSNorm
    query_heads: int

    @classmethod
    def of(cls, attention: Any) -> HeadNorm | None:
        """Take over the norms of an attention of transformers; ``None`` where it has none."""
        if not hasattr(attention, "q_norm"):
            return None
        query, key = RMSNorm.of(attention.q_norm), RMSNorm.of(attention.k_norm)
        query_heads, key_heads = (
            module.out_features // attention.head_dim for module in (attention.q_proj, attention.k_proj)
        )
        weight = torch.cat([query.weight.expand(query_heads, -1), key.weight.expand(key_heads, -1)])
        return cls(query, key, RMSNorm(weight, query.size, query.epsilon), query_heads)

    def refresh(self) -> None:
        """Copy the weights again, after they have changed."""
        self.both.weight[: self.query_heads] = self.query.weight
        self.both.weight[self.query_heads :] = self.key.weight


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """A llama- or qwen-shaped layer, ready for few large products instead of many small ones."""

    input_norm: RMSNorm
    query_key_value: Projection
    head_norm: HeadNorm | None
    output: Projection
    post_norm: RMSNorm
    gate_up: Projection
    down: Projection
    activation: Callable[[Tensor], Tensor]
    scaling: float

    @classmethod
    def of(cls, layer: Any) -> PackedLayer:
        """Pack the parameters of ``layer``, a decoder layer of transformers."""
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            input_norm=RMSNorm.of(layer.input_layernorm),
            query_key_value=Projection.of(attention.q_proj, attention.k_proj, attention.v_proj),
            head_norm=HeadNorm.of(attention),
            output=Projection.of(attention.o_proj),
            post_norm=RMSNorm.of(layer.post_attention_layernorm),
            gate_up=Projection.of(mlp.gate_proj, mlp.up_proj),
            down=Projection.of(mlp.down_proj),
            activation=mlp.act_fn,
            scaling=float(attention.scaling),
        )

    def refresh(self) -> None:
        """Follow parameters that have changed."""
        if self.head_norm is not None:
            self.head_norm.refresh()
