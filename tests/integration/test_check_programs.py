"""`make check-programs` reports what its tests noted, and fails where one fails or is skipped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import check_programs

TESTS = """
import json, os, pytest

def test_that_plays(record_property):
    assert os.environ["HYPERRL_REQUIRE_PROGRAMS"] == "1"
    assert os.environ["HYPERRL_PROGRAMS"] == "full"
    turns = [
        {"tools": ["look", "invalid_json"], "tokens_in": 10, "tokens_out": 3},
        {"tools": [], "tokens_in": 20, "tokens_out": 4, "reward": 1.5},
    ]
    spent = {"seconds": 1.23, "cpu_here_s": 0.1, "cpu_program_s": 0.456}
    connections = [["127.0.0.1", 5], ["127.0.0.1", 5]]
    figures = {"program": "codex", "turns": turns, "connections": connections, **spent}
    record_property("figures", json.dumps(figures))

def test_that_fails(record_property):
    figures = {"program": "codex", "fault": "400", "kind": "program_exit", "requests": 1, "seconds": 0.5}
    record_property("figures", json.dumps(figures))
    assert WORKS

@pytest.mark.skipif(not WORKS, reason="there is none")
def test_that_is_skipped():
    pass
"""


@pytest.mark.parametrize("works", [True, False])
def test_the_figures_of_tests_are_shown_and_one_that_fails_fails_the_check(
    works: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test_plays.py"
    path.write_text(f"WORKS = {works}\n{TESTS}", encoding="utf-8")
    code = check_programs.main([], parts=[(str(path), f"--rootdir={tmp_path}", "-p", "no:cacheprovider")])
    printed = capsys.readouterr().out
    figures = json.loads(printed.splitlines()[-1])
    assert code == int(not works)
    assert figures["passed"] == (3 if works else 1)
    assert figures["unmet"] == ([] if works else ["test_that_fails", "test_that_is_skipped"])
    assert figures["episodes"]["codex"] == {
        "turns": 2,
        "tokens_in": 30,
        "tokens_out": 7,
        "reward": 1.5,
        "seconds": 1.2,
        "cpu_here_s": 0.1,
        "cpu_program_s": 0.46,
        "reached": ["127.0.0.1"],
    }
    assert figures["faults"] == {"codex 400": "program_exit"}
    assert "look, invalid_json" in printed
    assert "2 x 127.0.0.1 port 5" in printed


def test_a_check_that_plays_nothing_fails(tmp_path: Path) -> None:
    assert check_programs.main([], parts=[(str(tmp_path / "test_nothing.py"),)]) == 1
