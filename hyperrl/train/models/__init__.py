"""Model directories in the Hugging Face layout: read, write, make and fetch.

``transformers`` is imported in this package only. Names are loaded when they are first used, so
that reading a :class:`ModelInfo` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperrl.train.models.causal_lm import (
        build_model,
        checkpoint_layers,
        equal_weights,
        install_weights,
        load_model,
        named_weights,
        save_model,
    )
    from hyperrl.train.models.fetch import fetch_model
    from hyperrl.train.models.info import ModelInfo, load_model_info
    from hyperrl.train.models.packed_attention import pack_attention
    from hyperrl.train.models.tiny import make_tiny_model

__all__ = [
    "ModelInfo",
    "build_model",
    "checkpoint_layers",
    "equal_weights",
    "fetch_model",
    "install_weights",
    "load_model",
    "load_model_info",
    "make_tiny_model",
    "named_weights",
    "pack_attention",
    "save_model",
]

_HOME = {
    "ModelInfo": "info",
    "build_model": "causal_lm",
    "checkpoint_layers": "causal_lm",
    "equal_weights": "causal_lm",
    "fetch_model": "fetch",
    "install_weights": "causal_lm",
    "load_model": "causal_lm",
    "load_model_info": "info",
    "make_tiny_model": "tiny",
    "named_weights": "causal_lm",
    "pack_attention": "packed_attention",
    "save_model": "causal_lm",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
