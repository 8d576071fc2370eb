"""The benchmark of rollouts runs and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_rollout_benchmark_ends_with_one_json_line() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "bench_rollout.py", "--json"]
    done = subprocess.run(
        [*command, "--episodes", "16", "--turns", "3", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["us_per_turn"] > 0
    assert figures["bytes_per_waiting_episode"] > 0
    assert set(figures["median"]) >= {"hyperrl", "gymnasium, plain loop"}
    assert figures["median"].keys().isdisjoint(figures["skipped"])
