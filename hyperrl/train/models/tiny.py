"""Models with random weights that train in minutes on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, Unpack, cast

import torch

from hyperrl.errors import ModelError
from hyperrl.train.models.causal_lm import replaced_directory, write_model
from hyperrl.train.models.tiny_tokenizer import END_OF_TEXT, END_OF_TURN, VOCAB_SIZE, write_tiny_tokenizer

__all__ = ["TinyShape", "make_tiny_model"]


class TinyShape(TypedDict, total=False):
    """Sizes of a tiny model; what is left out has the default of :func:`make_tiny_model`.

    Attributes:
        hidden: numbers per token between layers.
        layers: number of layers.
        heads: query heads; must divide ``hidden``.
        kv_heads: key/value heads; must divide ``heads``.
        ffn: inner size of the feed-forward blocks.
        context: most positions.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    context: int


def make_tiny_model(model_dir: Path | str, *, seed: int = 0, **shape: Unpack[TinyShape]) -> Path:
    """Write a Qwen3 with random weights, its own small tokenizer and a ChatML template.

    Without ``shape`` it has 0.66 million parameters: hidden 128, 4 layers, 4 heads, 2 key/value
    heads, ffn 256, context 2048, 512 ids, input and output embedding tied. The same seed and shape
    give the same bytes. An existing model directory is replaced.

    Returns:
        The directory.

    Raises:
        ModelError: the sizes do not fit together, or the directory cannot be written.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: PLC0415 - heavy

    sizes = _checked(shape)
    target = Path(model_dir)
    with replaced_directory(target) as temporary:
        ids = write_tiny_tokenizer(temporary)
        config = Qwen3Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=sizes["hidden"],
            intermediate_size=sizes["ffn"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"],
            num_key_value_heads=sizes["kv_heads"],
            head_dim=sizes["hidden"] // sizes["heads"],
            max_position_embeddings=sizes["context"],
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=ids[END_OF_TURN],
            pad_token_id=ids[END_OF_TEXT],
            dtype=torch.float32,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Qwen3ForCausalLM(config)
        write_model(model, temporary)
    return target


def _checked(shape: TinyShape) -> dict[str, int]:
    sizes = {"hidden": 128, "layers": 4, "heads": 4, "kv_heads": 2, "ffn": 256, "context": 2048}
    unknown = set(shape) - set(sizes)
    if unknown:
        raise ModelError(f"a tiny model has the sizes {', '.join(sizes)}, not {', '.join(sorted(unknown))}")
    sizes |= cast(dict[str, int], shape)
    for name, size in sizes.items():
        if size < 1:
            raise ModelError(f"{name} must be at least 1, got {size}")
    if sizes["hidden"] % (2 * sizes["heads"]) or sizes["heads"] % sizes["kv_heads"]:
        raise ModelError(
            f"heads ({sizes['heads']}) must divide hidden ({sizes['hidden']}) into even parts, and"
            f" kv_heads ({sizes['kv_heads']}) must divide heads"
        )
    return sizes
