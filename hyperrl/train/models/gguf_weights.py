"""Turn a GGUF file of the llama family into a Hugging Face model, without transformers' GGUF loader.

That loader tags what it reads as quantized, and such a model cannot be saved again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hyperrl.errors import MissingExtraError, ModelError
from hyperrl.train.models.causal_lm import write_model

__all__ = ["convert_gguf_weights"]

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def convert_gguf_weights(gguf_path: Path, model_dir: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write config.json and model.safetensors into ``model_dir``, which must exist.

    Quantized tensors are expanded and then rounded to ``dtype``.

    Raises:
        MissingExtraError: the gguf package is not installed.
        ModelError: the file does not hold a llama model, or a tensor is unknown or missing.
    """
    from transformers import LlamaForCausalLM  # noqa: PLC0415 - heavy

    try:
        from gguf import GGUFReader  # noqa: PLC0415 - optional
        from gguf.quants import dequantize  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingExtraError("gguf", "models") from error
    reader = GGUFReader(gguf_path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{gguf_path}: only the llama architecture can be converted, got {architecture!r}")
    tensors = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
    config = _make_config(fields, tied="output.weight" not in tensors, dtype=dtype)
    state = {
        _name(name, gguf_path): torch.from_numpy(_unpermuted(name, np.array(data, np.float32), fields)).to(
            dtype
        )
        for name, data in tensors.items()
    }
    model = LlamaForCausalLM(config).to(dtype)
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not (config.tie_word_embeddings and name == "lm_head.weight")]
    if missing or unexpected:
        raise ModelError(f"{gguf_path}: tensors missing: {missing[:5]}; unknown: {unexpected[:5]}")
    model.tie_weights()
    write_model(model, model_dir)


def _make_config(fields: Mapping[str, Any], *, tied: bool, dtype: torch.dtype) -> Any:
    from transformers import LlamaConfig  # noqa: PLC0415 - heavy

    return LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=float(np.float32(fields["llama.attention.layer_norm_rms_epsilon"])),
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=fields.get("tokenizer.ggml.padding_token_id"),
        dtype=dtype,
    )


def _name(name: str, gguf_path: Path) -> str:
    """The parameter's name in transformers."""
    if name in _TOP:
        return _TOP[name]
    prefix, _, rest = name.partition(".")
    layer, _, suffix = rest.partition(".")
    if prefix != "blk" or suffix not in _LAYER:
        raise ModelError(f"{gguf_path}: the tensor {name!r} has no place in a llama model")
    return f"model.layers.{layer}.{_LAYER[suffix]}"


def _unpermuted(name: str, data: NDArray[np.float32], fields: Mapping[str, Any]) -> NDArray[np.float32]:
    """Undo how GGUF orders the rows of query and key: pairs side by side, for its rotary embedding."""
    if name.endswith("attn_q.weight"):
        heads = fields["llama.attention.head_count"]
    elif name.endswith("attn_k.weight"):
        heads = fields["llama.attention.head_count_kv"]
    else:
        return data
    pairs = data.reshape(heads, -1, 2, data.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(data.shape))
