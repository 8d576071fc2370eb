"""Two GRPO updates on episodes of a real agent program, by config alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")
pytest.importorskip("uvicorn")

from hyperrl.store import read_trajectories
from hyperrl.train.models import make_tiny_model

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


def config(folder: Path) -> dict[str, object]:
    model = make_tiny_model(
        folder / "tiny", seed=0, hidden=32, layers=2, heads=2, kv_heads=1, ffn=64, context=16_384
    )
    return {
        "run": {"name": "run", "dir": str(folder / "run"), "seed": 3},
        "model": {"path": str(model)},
        "env": {"id": "letter_env:hyperrl-tests/Letters-v0", "program": "codex"},
        "rollout": {"groups": 1, "group_size": 4, "max_turns": 4, "max_tokens": 24, "wall_clock_s": 120},
        "optimizer": {"lr": 1e-3},
        "evaluation": {"episodes": 1},
        "iterations": 2,
    }


def test_two_updates_on_episodes_of_codex(codex_binary: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config(tmp_path)), encoding="utf-8")
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "train", str(path)],
        env={**os.environ, "HYPERRL_CODEX": codex_binary, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["actor/grad_norm"] > 0 for row in rows if "actor/grad_norm" in row] == [True, True]
    played = list(read_trajectories(tmp_path / "run" / "trajectories"))
    assert len(played) == 8
    assert {trajectory.program for trajectory in played} == {"codex"}
    assert all(trajectory.failure is None for trajectory in played)
    assert all(trajectory.metrics["delivered_fraction"] == 1.0 for trajectory in played)
    versions = {version for t in played for turn in t.turns for version in turn.policy_versions.tolist()}
    assert versions == {0, 1}
