from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from hyperrl.envs import check_env_contract

EXAMPLE = Path(__file__).parents[3] / "examples" / "guess_number.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("guess_number", EXAMPLE)
    module = sys.modules["guess_number"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["guess_number"]


def test_an_own_environment_takes_about_25_lines(example):
    text = EXAMPLE.read_text().partition("class GuessNumber")[2].partition("gymnasium.register")[0]
    assert sum(1 for line in text.splitlines() if line.strip()) <= 25
    assert gymnasium.spec("GuessNumber-v0").entry_point is example.GuessNumber


def test_it_keeps_every_promise(example):
    report = check_env_contract("GuessNumber-v0")
    assert report.failures == ()
    assert all(check.status == "pass" for check in report.checks)


def test_running_it_shows_an_episode():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[system] Find my number.")
    assert "score 1.0 {'reward_terms': {'found': 1.0}}" in done.stdout
