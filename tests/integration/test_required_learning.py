"""Runs that must show something, and fail where they do not; their files stay."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import graded_env
import pytest

from hyperrl.errors import LearningError
from hyperrl.store import read_trajectories
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.config import RequireConfig, TrainConfig, dump_config
from hyperrl.train.losses import LossInput, TokenLosses
from hyperrl.train.requirements import Requirements
from hyperrl.wiring.display import Silent
from hyperrl.wiring.training import run_training

GRADED = {"id": graded_env.ENV_ID, "kwargs": {}}
FLAT = GRADED | {"kwargs": {"grading": "same"}}
EVERYTHING = {
    "finite_gradients": True,
    "nonzero_gradients": True,
    "reward_differences": True,
    "signal_fraction": 0.5,
    "gain": -1.0,
    "gain_low": -1.0,
    "success": 0.0,
}


def spoilt(batch: LossInput, config: AlgorithmConfig) -> TokenLosses:
    """A policy loss that is never a number."""
    return TokenLosses(batch.logprobs * math.nan)


def summary_of(config: TrainConfig) -> dict[str, object]:
    return json.loads((config.run.dir / "summary.json").read_text(encoding="utf-8"))


def test_a_run_that_shows_what_is_required_ends_well(make_run) -> None:
    config = make_run(env=GRADED, require=EVERYTHING, evaluation={"success": 0.3})
    assert run_training(config, Silent()).result.unmet == ()
    assert summary_of(config)["unmet"] == []


@pytest.mark.parametrize(
    ("env", "require", "evaluation", "why"),
    [
        (
            FLAT,
            {"nonzero_gradients": True},
            {},
            "nonzero_gradients: no update with a gradient above 0 in the whole run",
        ),
        (
            FLAT,
            {"reward_differences": True},
            {},
            "reward_differences: no group with unequal rewards in the whole",
        ),
        (
            FLAT,
            {"signal_fraction": 0.1},
            {},
            r"signal_fraction: 0\.000 of the groups had unequal rewards; at least 0\.1",
        ),
        (
            FLAT,
            {"success": 0.5},
            {},
            r"success: 0\.000 held-out success after the last iteration; at least 0\.5",
        ),
        (
            FLAT,
            {"gain": 0.15},
            {},
            r"gain: 0\.000 gained on held-out tasks, 95 % interval 0\.000 to 0\.000; at least",
        ),
        (FLAT, {"gain_low": 0.01}, {}, r"gain_low: 0\.000 is the lower end of 0\.000 gained"),
        (
            GRADED | {"kwargs": {"grading": "none"}},
            {"gain": -1.0},
            {},
            "gain: not known gained on held-out tasks",
        ),
    ],
)
def test_a_run_that_does_not_fails_with_the_reason_and_keeps_its_files(
    make_run, env, require, evaluation, why
) -> None:
    config = make_run(env=env, require=require, evaluation=evaluation, iterations=2)
    with pytest.raises(LearningError, match=why):
        run_training(config, Silent())
    assert len(summary_of(config)["unmet"]) == 1
    assert (config.run.dir / "model" / "model.safetensors").exists()
    assert (config.run.dir / "reward_curve.png").exists()
    assert len(list(read_trajectories(config.run.dir / "trajectories"))) == 24


@pytest.mark.parametrize("name", ["nonzero_gradients", "reward_differences"])
def test_a_run_that_cannot_learn_stops_early(make_run, name: str) -> None:
    config = make_run(env=FLAT, require={name: True, "patience": 2}, iterations=50)
    with pytest.raises(LearningError, match=rf"{name}: .* in the 2 iterations up to 2\. "):
        run_training(config, Silent())
    assert summary_of(config)["iterations"] == 2
    assert list(read_trajectories(config.run.dir / "evaluations" / "sampled", iterations=[2]))


def test_a_run_stops_at_the_first_gradient_that_is_not_finite(make_run) -> None:
    required, tolerated = make_run("required", require={"finite_gradients": True}), make_run("tolerated")
    for config in (required, tolerated):
        algorithm = config.algorithm.model_copy(update={"loss": "test_required_learning:spoilt"})
        spoilt = config.model_copy(update={"algorithm": algorithm, "iterations": 4})
        if config is required:
            with pytest.raises(
                LearningError, match=r"finite_gradients: 1 updates of iteration 1 were left out"
            ):
                run_training(spoilt, Silent())
        else:
            run_training(spoilt, Silent())
    assert (summary_of(required)["iterations"], summary_of(tolerated)["iterations"]) == (1, 4)


@pytest.mark.slow
def test_the_command_fails_with_exit_code_1_and_says_what_is_there(make_run, tmp_path: Path) -> None:
    config = make_run(env={"id": "hyperrl/SortDigits-v0", "kwargs": {}}, require={"gain": 0.9}, iterations=1)
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "train", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the run did not show what its config requires: gain: 0.000 gained" in done.stderr
    assert "summary.json" in done.stderr


@pytest.mark.parametrize("model", ["actor", "critic"])
def test_gradients_of_a_critic_must_be_finite_too(model: str) -> None:
    requirements = Requirements(RequireConfig(finite_gradients=True))
    requirements.see(1, {f"{model}/updates_skipped": 2.0, "actor/updates_applied": 1.0})
    assert "finite_gradients: 2 updates of iteration 1" in requirements.unmet[0]
