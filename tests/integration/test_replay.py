"""Replay: updates repeated from the store give the numbers and weights of the run, bit for bit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hyperrl.errors import ConfigError, DataError, InvariantError, RunDirectoryError
from hyperrl.store import list_iterations
from hyperrl.wiring.display import Silent
from hyperrl.wiring.replay import Replay, ReplayJob, run_replay
from hyperrl.wiring.training import run_training

RUNS: dict[str, dict[str, Any]] = {
    "several updates": {"algorithm": {"epochs": 2, "minibatches": 2, "microbatch_tokens": 300}},
    "dynamic sampling": {"algorithm": {"name": "dapo", "dynamic_sampling": 2}},
    "a critic": {"algorithm": {"name": "ppo"}},
    "a reference": {"algorithm": {"name": "reinforce", "kl": {"place": "reward"}}},
    "bfloat16": {"model": {"dtype": "bfloat16", "gradient_checkpointing": True}},
}


def replay(run_dir: Path, iteration: int, **fields: Any) -> Replay:
    return run_replay(ReplayJob(run_dir=run_dir, iteration=iteration, **fields), Silent())


@pytest.mark.parametrize("name", RUNS)
def test_a_replay_is_the_run_bit_for_bit(make_run, name: str) -> None:
    config = make_run(**RUNS[name], evaluation={"episodes": 2})
    run_training(config, Silent())
    first, last = replay(config.run.dir, 1), replay(config.run.dir, 2)
    for found in (first, last):
        assert found.recorded is not None
        assert found.differences == {}
        assert found.metrics == found.recorded
        assert {"actor/loss", "actor/grad_norm", "consistency/logprob_diff_max"} <= found.metrics.keys()
    assert first.metrics["actor/grad_norm"] != last.metrics["actor/grad_norm"]
    assert (first.weights_equal, last.weights_equal) == (None, True)


@pytest.fixture
def run_dir(make_run) -> Path:
    config = make_run(evaluation={"episodes": 2})
    run_training(config, Silent())
    return config.run.dir


def test_given_weights_spare_the_updates_before(run_dir: Path, tmp_path: Path) -> None:
    replay(run_dir, 1, out=tmp_path / "version-1")
    (run_dir / "trajectories" / "part-00000001-00000.parquet").unlink()
    with pytest.raises(DataError, match=r"no episodes of iteration 1; it holds 2 to 2.*--model"):
        replay(run_dir, 2)
    found = replay(run_dir, 2, model=tmp_path / "version-1")
    assert found.recorded is not None
    # the optimizer is fresh, so what follows the first update may differ, and its number does
    assert set(found.differences) == {"training/optimizer_steps"}
    assert not found.faithful
    with pytest.raises(RunDirectoryError, match="is not empty"):
        replay(run_dir, 2, model=tmp_path / "version-1", out=tmp_path / "version-1")


def test_a_changed_config_shows_what_it_changes(run_dir: Path) -> None:
    found = replay(run_dir, 1, overrides=["optimizer.lr=0.5", "algorithm.kl.place=loss"])
    assert found.metrics["actor/lr"] == 0.5
    assert found.differences["actor/lr"] == (1e-3, 0.5)
    assert found.differences["actor/kl_loss"] == (None, 0.0)
    assert "actor/grad_norm" not in found.differences
    with pytest.raises(ConfigError, match="unknown key"):
        replay(run_dir, 1, overrides=["optimizer.speed=1"])
    with pytest.raises(DataError, match="has no further group"):
        replay(run_dir, 1, overrides=["algorithm.dynamic_sampling=9", "rollout.groups=9"])


def test_tampering_is_noticed(run_dir: Path) -> None:
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if "actor/grad_norm" in row:
            row["actor/grad_norm"] *= 1 + 1e-12
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run_dir / "metrics.jsonl").write_text(text + '{"step": 2, "training/gl', encoding="utf-8")
    assert set(replay(run_dir, 2).differences) == {"actor/grad_norm"}
    shutil.rmtree(run_dir / "model")
    assert replay(run_dir, 2).weights_equal is None


def test_a_run_that_breaks_a_rule_can_be_replayed(make_run) -> None:
    config = make_run(algorithm={"advantage": "broken_advantage:refuse"}, evaluation={"episodes": 2})
    with pytest.raises(InvariantError, match="add up to nothing good") as stopped:
        run_training(config, Silent())
    record = json.loads((config.run.dir / "failure.json").read_text(encoding="utf-8"))
    assert record == {
        "error": "InvariantError",
        "message": str(stopped.value),
        "iteration": 1,
        "policy_version": 0,
        "replay": f"hyperrl replay {config.run.dir} --iteration 1",
    }
    assert list_iterations(config.run.dir / "trajectories") == [1]
    with pytest.raises(InvariantError) as again:
        replay(config.run.dir, 1)
    assert str(again.value) == str(stopped.value)
    mended = replay(config.run.dir, 1, overrides=["algorithm.advantage=group"])
    assert mended.recorded is None
    assert mended.differences == {}
    assert (mended.metrics["actor/grad_norm"] or 0) > 0


def test_what_is_no_run_is_refused(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no episodes of iteration 3; it holds 1 to 2"):
        replay(run_dir, 7)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        replay(tmp_path, 1)


@pytest.mark.slow
def test_the_command_compares_and_fails_where_it_must(run_dir: Path) -> None:
    def hyperrl(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hyperrl.cli", "replay", str(run_dir), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    shown = hyperrl("--iteration", "2")
    assert shown.returncode == 0, shown.stderr
    assert "all equal bit for bit; the weights are those of the run's model." in shown.stdout
    assert "actor/grad_norm" in shown.stdout
    text = (run_dir / "metrics.jsonl").read_text(encoding="utf-8")
    (run_dir / "metrics.jsonl").write_text(
        text.replace('"actor/lr": 0.001', '"actor/lr": 0.002'), encoding="utf-8"
    )
    different = hyperrl("--iteration", "1", "--json")
    assert different.returncode == 1, different.stderr
    assert json.loads(different.stdout)["different"] == ["actor/lr"]
