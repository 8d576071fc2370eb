"""``hyperrl template`` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from families import write_family


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "template", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        encoding="utf-8",
    )


def test_a_table_for_people(chatml_dir: Path) -> None:
    done = template(str(chatml_dir))
    assert done.returncode == 0, done.stderr
    assert "yes, with tools" in done.stdout
    assert "[tool, user]" in done.stdout
    assert "'<|im_end|>'" in done.stdout


def test_json_for_programs_and_options(qwen3_dir: Path) -> None:
    done = template(str(qwen3_dir), "--json", "--option", "enable_thinking=false")
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert report["usable_with_tools"]
    assert report["generation_suffix"].endswith("</think>\n\n")
    assert report["stop_tokens"][0]["text"] == "<|im_end|>"
    assert {"conversation", "before", "after"} == set(report["prefix_breaks"][0])


def test_a_model_that_cannot_be_trained_fails(tmp_path: Path) -> None:
    text = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    done = template(str(write_family(tmp_path / "plain", text)))
    assert done.returncode == 1
    assert "cannot be bridged" in done.stdout


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    done = template(str(tmp_path / "nowhere"))
    assert (done.returncode, "no such model directory" in done.stderr) == (2, True)
    done = template(str(tmp_path), "--option", "thinking")
    assert (done.returncode, "--option 'thinking' must look like name=value" in done.stderr) == (2, True)
