"""``hyperrl gateway``, with a program that is started by hand."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn")

from hyperrl.store import read_trajectories


@contextmanager
def serving(model: Path, out: Path) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, str]]]:
    """Run the command; give its process, the URL for OpenAI clients and what opens it."""
    command = [sys.executable, "-m", "hyperrl.cli", "gateway", "--model", str(model), "--out", str(out)]
    with subprocess.Popen(
        [*command, "--max-tokens", "100", "--temperature", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            found = re.search(r"OPENAI_BASE_URL=(\S+) OPENAI_API_KEY=(\S+)", lines[1])
            assert found is not None, (lines, process.stderr and process.stderr.read())
            yield process, found[1], {"authorization": f"Bearer {found[2]}"}
        finally:
            process.kill()


def ask(url: str, headers: dict[str, str], cap: int) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "sort 3 1 2"}], "max_tokens": cap}
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, timeout=60)


@pytest.mark.slow
def test_a_model_is_served_until_ctrl_c_and_what_was_asked_is_kept(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tiny_model, tmp_path / "kept") as (process, url, headers):
        answer = ask(url, headers, 24)
        assert answer.status_code == 200, answer.text
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
    assert trajectory.metrics["gateway_requests"] == 1


@pytest.mark.slow
def test_sigterm_ends_the_requests_in_flight_and_keeps_what_was_answered(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serving(tiny_model, tmp_path / "kept") as (process, url, headers), ThreadPoolExecutor(8) as pool:
        first = ask(url, headers, 16)
        in_flight = [pool.submit(ask, url, headers, 100) for _ in range(8)]
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert first.status_code == 200
        answers = [asked.result() for asked in in_flight if asked.exception() is None]
    assert process.returncode == 143
    assert err == ""
    assert {answer.status_code for answer in answers} <= {200, 400}
    host, port = url.split("/")[2].split(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), 2):
        pass
    [trajectory] = read_trajectories(tmp_path / "kept")
    assert len(trajectory.turns) >= 1
