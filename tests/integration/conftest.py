"""A tiny model and configs that train in a second or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hyperrl.train.config import TrainConfig, make_config  # noqa: E402
from hyperrl.train.models import make_tiny_model  # noqa: E402

MakeRun = Callable[..., TrainConfig]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of a few thousand parameters with the quickstart's tokenizer."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    return make_tiny_model(path, seed=0, hidden=32, layers=2, heads=2, kv_heads=1, ffn=64, context=256)


@pytest.fixture
def make_run(tiny_model: Path, tmp_path: Path) -> MakeRun:
    """Return a function that makes the config of a small run; sections are merged by keyword."""

    def make(name: str = "run", **sections: object) -> TrainConfig:
        data: dict[str, object] = {
            "run": {"name": name, "dir": str(tmp_path / name), "seed": 3},
            "model": {"path": str(tiny_model)},
            "env": {"id": "hyperrl/GSM8K-v0", "kwargs": {"format_weight": 1.0}},
            "rollout": {"groups": 3, "group_size": 4, "max_turns": 1, "max_tokens": 8},
            "optimizer": {"lr": 1e-3},
            "evaluation": {"episodes": 6},
            "iterations": 2,
        }
        for section, values in sections.items():
            known = data.get(section)
            data[section] = {**known, **values} if isinstance(known, dict) else values  # type: ignore[dict-item]
        return make_config(data)

    return make
