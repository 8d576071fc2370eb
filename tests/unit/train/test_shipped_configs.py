"""Every config that is shipped loads, and says what the documentation says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyperrl.train.config import dump_config, load_config, make_config

CONFIGS = sorted((Path(__file__).resolve().parents[3] / "configs").glob("*.yaml"))
LEARNING = sorted((CONFIGS[0].parent / "learning").glob("*.yaml"))


@pytest.mark.parametrize("path", [*CONFIGS, *LEARNING], ids=lambda path: path.name)
def test_a_shipped_config_loads_and_survives_being_written(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    resolved = tmp_path / "config.yaml"
    resolved.write_text(dump_config(config), encoding="utf-8")
    assert load_config(resolved) == config
    assert make_config(config.model_dump(mode="json")) == config


def test_both_configs_of_the_makefile_are_shipped() -> None:
    assert [path.name for path in CONFIGS] == ["gsm8k_smollm2.yaml", "quickstart.yaml"]


def test_the_real_run_proves_its_gradients_without_weight_decay() -> None:
    config = load_config(CONFIGS[0])
    assert config.optimizer.weight_decay == 0
    assert (config.iterations, config.rollout.groups, config.rollout.group_size) == (3, 4, 4)
    assert config.env.kwargs["mode"] == "calculator"


def test_every_run_that_proves_learning_demands_it() -> None:
    assert [path.stem for path in LEARNING] == ["arithmetic_smollm2", "calculator", "reverse5", "sort6"]
    for path in LEARNING:
        config = load_config(path)
        assert config.evaluation.episodes >= 256
        assert config.require.finite_gradients
        assert config.require.nonzero_gradients
        assert config.require.reward_differences
        assert config.require.gain_low is not None
        assert config.require.gain_low >= 0
    small = load_config(LEARNING[0])
    assert small.rollout.groups * small.rollout.group_size == 32
    assert small.rollout.max_tokens == 16
    assert small.iterations <= 30
    assert small.require.success == 0.2
    for path in LEARNING[1:]:
        assert load_config(path).require.gain == 0.15
