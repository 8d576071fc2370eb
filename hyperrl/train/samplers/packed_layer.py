"""The parameters of one decoder layer, with those that read the same input side by side in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

__all__ = ["PackedLayer"]


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """A llama- or qwen-shaped layer, ready for few large products instead of many small ones.

    Query, key and value become row ranges of one matrix, as do gate and up; the norms of query and
    key heads become the two rows of ``head_norms``. The module's own
    parameters become views of those ranges, so there is one copy of each number: who writes into
    the parameters, as a publication does, changes what is decoded with. Assigning other tensors to
    them would not.
    """

    input_norm: Tensor
    query_key_value: Tensor
    query_key_value_bias: Tensor | None
    head_norms: Tensor | None
    output: nn.Linear
    post_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: nn.Linear
    activation: Callable[[Tensor], Tensor]
    scaling: float
    epsilon: float

    @classmethod
    def of(cls, layer: Any) -> PackedLayer:
        """Pack the parameters of ``layer``, a decoder layer of transformers."""
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        return cls(
            input_norm=layer.input_layernorm.weight,
            query_key_value=_packed([module.weight for module in projections]),
            query_key_value_bias=_packed([module.bias for module in projections]),
            head_norms=_head_norms(attention),
            output=attention.o_proj,
            post_norm=layer.post_attention_layernorm.weight,
            gate_up=_packed([mlp.gate_proj.weight, mlp.up_proj.weight]),
            gate_up_bias=_packed([mlp.gate_proj.bias, mlp.up_proj.bias]),
            down=mlp.down_proj,
            activation=mlp.act_fn,
            scaling=float(attention.scaling),
            epsilon=float(layer.input_layernorm.variance_epsilon),
        )


def _head_norms(attention: Any) -> Tensor | None:
    """The weights [2, D] that query and key heads are normalised with; None where they are not."""
    if not hasattr(attention, "q_norm"):
        return None
    norms = [attention.q_norm.weight, attention.k_norm.weight]
    return cast(Tensor, _packed(norms).view(2, -1))


def _packed(parameters: Sequence[Tensor | None]) -> Any:
    """One tensor with the rows of all ``parameters``, which become views of it; None where there are none."""
    present = [parameter for parameter in parameters if parameter is not None]
    if not present:
        return None
    whole = torch.cat([parameter.data for parameter in present])
    parts = torch.split_with_sizes(whole, [len(parameter) for parameter in present])
    for parameter, part in zip(present, parts, strict=True):
        parameter.data = part
    return whole
