"""What a model directory says about itself, read without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperrl.errors import ModelError

__all__ = ["ModelInfo", "load_model_info", "read_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The facts about a model that configs and checks need.

    Attributes:
        model_type: the architecture's name in transformers, such as ``qwen3``.
        vocab_size: rows of the embedding.
        context_length: most positions, prompt and action together.
        tied: input and output embedding are one tensor.
        parameters: numbers stored in the safetensors files; a tied tensor counts once.
    """

    model_type: str
    vocab_size: int
    context_length: int
    tied: bool
    parameters: int


def load_model_info(model_dir: Path | str) -> ModelInfo:
    """Read the facts about the model in ``model_dir`` from its config and the heads of its weights.

    Raises:
        ModelError: the directory, its ``config.json`` or a needed key is missing or unreadable.
    """
    directory = Path(model_dir)
    config = read_config(directory)
    return ModelInfo(
        model_type=str(config.get("model_type", "unknown")),
        vocab_size=_positive(config, "vocab_size", directory),
        context_length=_positive(config, _context_key(config), directory),
        tied=bool(config.get("tie_word_embeddings", False)),
        parameters=sum(map(_count, sorted(directory.glob("*.safetensors")))),
    )


def read_config(model_dir: Path) -> Mapping[str, Any]:
    """Return ``config.json`` of ``model_dir``.

    Raises:
        ModelError: there is no such directory or file, or it is not a JSON object.
    """
    if not model_dir.is_dir():
        raise ModelError(
            f"there is no model directory {str(model_dir)!r}. Make one with `hyperrl models init"
            f" {model_dir}`, fetch one with `hyperrl models fetch smollm2-135m`, or give the path of a"
            " Hugging Face model directory on this machine."
        )
    path = model_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{str(model_dir)!r} has no config.json. A model directory holds config.json,"
            " *.safetensors and tokenizer.json."
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} must hold a JSON object, got {type(config).__name__}")
    return config


def _context_key(config: Mapping[str, Any]) -> str:
    """GPT-2 and a few others have their own name for it."""
    return "n_positions" if "n_positions" in config else "max_position_embeddings"


def _positive(config: Mapping[str, Any], key: str, directory: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelError(f"{directory / 'config.json'} needs {key}, a positive integer, got {value!r}")
    return value


def _count(path: Path) -> int:
    """Numbers in a safetensors file, from its header (8 bytes of length, then JSON)."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size - 8:
                raise ValueError(f"its header claims {length} bytes, more than the file has")
            header = json.loads(file.read(length))
        return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} is not a readable safetensors file: {error}") from error
