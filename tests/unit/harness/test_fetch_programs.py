"""The real programs that tests play with: pinned, installed once, done without where they cannot be had."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from hyperrl.harness.adapters import codex, deepseek

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def fetch_programs() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("fetch_programs")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_tests_play_with_the_versions_that_people_are_told_to_install(fetch_programs: Any) -> None:
    told = {"codex": codex.KNOWN.install, "deepseek": deepseek.KNOWN.install}
    for name, program in fetch_programs.PROGRAMS.items():
        assert told[name].endswith(f" {program.package}")
        assert program.package in (ROOT / "docs" / "programs" / f"{name}.md").read_text(encoding="utf-8")


def test_what_is_installed_is_left_alone(fetch_programs: Any, tmp_path: Path, capsys: Any) -> None:
    version = fetch_programs.PROGRAMS["codex"].package.rpartition("@")[2]
    native = "node_modules/@openai/codex-linux-x64/vendor/x86_64/bin/codex"
    there = tmp_path / f"openai-codex@{version}" / native
    there.parent.mkdir(parents=True)
    there.touch()
    assert fetch_programs.main(["codex"], tmp_path) == 0
    assert capsys.readouterr().out == f"codex: {there}\n"


def test_a_program_that_cannot_be_had_is_said_to_be_done_without(
    fetch_programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert fetch_programs.main(["codex"], tmp_path) == 1
    said = capsys.readouterr().err
    assert "npm is not there to install @openai/codex@" in said
    assert said.endswith("tests that play with it are skipped\n")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_program_is_refused(fetch_programs: Any, capsys: Any) -> None:
    assert fetch_programs.main(["coddex"]) == 2
    assert "there are codex, deepseek" in capsys.readouterr().err
