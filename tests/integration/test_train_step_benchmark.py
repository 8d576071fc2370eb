"""The benchmarks of training steps and of logprobs run and say what they measured."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_train_step_benchmark_ends_with_one_json_line() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "bench_train_step.py", "--json", "--small"]
    done = subprocess.run(
        [*command, "--groups", "4", "--group-size", "4", "--rows", "8", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["update_tokens_per_cpu_s"] > 0
    assert figures["plain_tokens_per_cpu_s"] > 0
    if importlib.util.find_spec("trl"):
        assert figures["learner_ratio"] > 0
        assert figures["step_ratio"] > 0
        assert figures["trl"]


@pytest.mark.slow
def test_the_logprobs_benchmark_ends_with_one_json_line() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "bench_logprobs.py", "--json"]
    done = subprocess.run(
        [*command, "--tokens", "20", "--vocabulary", "500", "--hidden", "8"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures) == {"chunks", "whole logits", "plain"}
    assert len({round(one["mean_logprob"], 5) for one in figures.values()}) == 1
