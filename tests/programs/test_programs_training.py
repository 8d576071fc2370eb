"""Two GRPO updates on episodes of a real agent program, by config alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch")
from real_programs import RealProgram, note

from hyperrl.store import read_trajectories
from hyperrl.train.models import make_tiny_model

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
VARIABLES = {"codex": "HYPERRL_CODEX", "deepseek": "HYPERRL_DSH"}


PARTS: dict[str, dict[str, dict[str, object]]] = {
    "codex": {"model": {"layers": 2, "heads": 2}, "rollout": {"group_size": 4}},
    # its first prompt has thousands of tokens: too many for quick eager attention, and for the usual limit
    "deepseek": {
        "model": {"layers": 1, "heads": 1},
        "rollout": {"group_size": 3, "max_episode_tokens": 16_384},
    },
}


def config(name: str, folder: Path) -> dict[str, object]:
    shape, rollout = PARTS[name]["model"], PARTS[name]["rollout"]
    size: Any = {"hidden": 32, "kv_heads": 1, "ffn": 64, "context": 16_384, **shape}
    return {
        "run": {"name": "run", "dir": str(folder / "run"), "seed": 3},
        "model": {"path": str(make_tiny_model(folder / "tiny", seed=0, **size)), "attention": "sdpa"},
        "env": {"id": "letter_env:hyperrl-tests/Letters-v0", "program": name},
        "rollout": {"groups": 1, "max_turns": 4, "max_tokens": 24, "wall_clock_s": 120, **rollout},
        "optimizer": {"lr": 1e-3},
        "evaluation": {"episodes": 1},
        "iterations": 2,
    }


def test_two_updates_on_episodes_of_a_program(
    real: RealProgram, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config(real.name, tmp_path)), encoding="utf-8")
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "train", str(path)],
        env={**os.environ, VARIABLES[real.name]: real.binary, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    norms = [row["actor/grad_norm"] for row in rows if "actor/grad_norm" in row]
    played = list(read_trajectories(tmp_path / "run" / "trajectories"))
    versions = {version for t in played for turn in t.turns for version in turn.policy_versions.tolist()}
    note(
        record_property,
        program=real.name,
        grad_norms=norms,
        versions=sorted(versions),
        rewards=[trajectory.reward for trajectory in played],
        seconds=time.perf_counter() - began,
    )
    assert [norm > 0 for norm in norms] == [True, True]
    assert versions == {0, 1}
    assert len(played) == 2 * int(str(PARTS[real.name]["rollout"]["group_size"]))
    assert {trajectory.program for trajectory in played} == {real.name}
    assert all(trajectory.failure is None for trajectory in played)
    assert all(trajectory.metrics["delivered_fraction"] == 1.0 for trajectory in played)
