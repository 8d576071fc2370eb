"""The benchmark of the gateway runs and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_gateway_benchmark_ends_with_one_json_line() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "bench_gateway.py", "--json", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--concurrent", "4", "--turns", "3", "--tokens", "1500", "--open", "8"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures["formats"]) == {"chat", "responses", "anthropic"}
    for row in figures["formats"].values():
        assert row["ms_per_request"] > 0
        assert row["echo_ms_per_request"] > 0
        assert row["gateway_p99_ms"] >= row["gateway_p50_ms"]
    assert figures["open"]["sessions"] == 8
