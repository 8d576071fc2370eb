"""``hyperrl gateway``, with a program that is started by hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn")

from hyperrl.store import read_trajectories


@pytest.mark.slow
def test_a_model_is_served_until_ctrl_c_and_what_was_asked_is_kept(tiny_model: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hyperrl.cli",
        "gateway",
        "--model",
        str(tiny_model),
        "--max-tokens",
        "24",
    ]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "kept")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            found = re.search(r"OPENAI_BASE_URL=(\S+) OPENAI_API_KEY=(\S+)", lines[1])
            assert found is not None, (lines, process.stderr and process.stderr.read())
            body = {"messages": [{"role": "user", "content": "sort 3 1 2"}]}
            headers = {"authorization": f"Bearer {found[2]}"}
            answer = httpx.post(f"{found[1]}/chat/completions", json=body, headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
        finally:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "1 turns" in out
    [trajectory] = read_trajectories(tmp_path / "kept")
    [turn] = trajectory.turns
    assert len(turn.action_ids) == answer.json()["usage"]["completion_tokens"]
    assert len(turn.context_ids) == answer.json()["usage"]["prompt_tokens"]
    assert turn.behavior_logprobs is not None
    assert trajectory.program == "by_hand"
