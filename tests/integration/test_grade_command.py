"""``hyperrl grade`` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "data" / "answers.json"
ROW = {"id": "one", "response": "It is \\boxed{1/2}.", "gold": "0.5", "expected": True, "family": "boxed"}


def grade(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "hyperrl.cli", "grade", str(file), *options]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, env=environment, encoding="utf-8"
    )


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_rows_that_differ_are_printed_with_the_reason(tmp_path):
    wrong = ROW | {"id": "two \ud800", "response": "#### 3", "gold": "4", "family": "gsm8k"}
    done = grade(write(tmp_path / "cases.json", [ROW, wrong]))
    first, last = done.stdout.splitlines()
    assert first == "differs \"two \\ud800\": expected equal; not equal: '3' is not '4'"
    assert json.loads(last) == {"ok": 1, "of": 2}
    assert (done.returncode, done.stderr) == (1, "")


def test_explain_prints_every_row(tmp_path):
    refused = ROW | {"id": "two", "response": "no box", "expected": False}
    done = grade(write(tmp_path / "cases.json", [ROW, refused]), "--explain")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0] == 'ok      "one": expected equal; equal'
    assert lines[1].startswith("        answer '1/2' is read as the number 1/2; gold '0.5' is read as")
    assert lines[2].startswith('ok      "two": expected not equal; no answer: ')
    assert json.loads(lines[3]) == {"ok": 2, "of": 2}


def test_the_shared_cases_come_out_as_expected():
    done = grade(CASES)
    count = len(json.loads(CASES.read_text(encoding="utf-8")))
    assert (done.returncode, done.stdout) == (0, json.dumps({"ok": count, "of": count}) + "\n")


def test_expressions_are_compared_with_math_verify_if_asked(tmp_path):
    pytest.importorskip("math_verify")
    file = write(tmp_path / "cases.json", [ROW | {"response": "\\boxed{1+e^x}", "gold": "e^x+1"}])
    assert grade(file).returncode == 1
    done = grade(file, "--math", "--explain")
    first, last = done.stdout.splitlines()
    assert first == 'ok      "one": expected equal; equal according to math-verify'
    assert json.loads(last) == {"ok": 1, "of": 1}
    assert done.returncode == 0


def test_an_answer_that_gets_no_verdict_is_not_as_expected(tmp_path):
    pytest.importorskip("math_verify")
    hard = {"response": "\\boxed{\\int_0^\\infty e^{-x^2} dx}", "gold": "\\frac{\\sqrt{\\pi}}{2}"}
    done = grade(write(tmp_path / "cases.json", [ROW | hard | {"expected": False}]), "--math")
    assert done.returncode == 1
    assert "expected not equal; unscored: the grader did not finish within 2 s" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == {"ok": 0, "of": 1}


def test_bad_input_is_named_and_exits_with_2(tmp_path):
    lacking = {key: value for key, value in ROW.items() if key != "gold"}
    done = grade(write(tmp_path / "cases.json", [ROW | {"id": "zero"}, lacking]))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "cases.json, row 1 (id 'one') lacks the key 'gold'; a row has id, response, gold, expected, family.\n"
    )


def test_a_file_that_is_not_there_exits_with_2(tmp_path):
    missing = grade(tmp_path / "none.json")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "none.json cannot be read: No such file" in missing.stderr


def test_grading_loads_no_torch(tmp_path):
    file = write(tmp_path / "cases.json", [ROW])
    code = (
        "import sys\n"
        "from hyperrl.cli import main\n"
        f"try:\n    main(['grade', {str(file)!r}])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules and 'math_verify' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
