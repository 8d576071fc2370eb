"""The quickstart as the Makefile runs it, with its own config, cut short after a few iterations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hyperrl.store import list_episodes

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "quickstart.yaml"


def hyperrl(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_quickstart_warms_up_and_trains_on_what_it_has_not_seen(tmp_path: Path) -> None:
    options = [
        f"--set=run.dir={tmp_path}",
        f"--set=sft.start={tmp_path / 'random'}",
        f"--set=model.path={tmp_path / 'warm'}",
        "--set=iterations=4",
        "--set=evaluation.every=2",
    ]
    hyperrl("models", "init", str(tmp_path / "random"))
    hyperrl("sft", str(CONFIG), *options)
    table = hyperrl("train", str(CONFIG), *options)

    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["before"] >= 0.4, "the warm start must leave something to begin with"
    assert summary["policy_version"] == summary["iterations"] == 4
    assert "before" in table
    rows = [
        json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["step"] for row in rows if "validation/sampled_success" in row] == [0, 2, 4]
    assert all(row["rollout/new_root_rate"] == 0 for row in rows if "rollout/new_root_rate" in row)
    assert len(list_episodes(tmp_path / "trajectories")) == 4 * 40 * 8
