"""``hyperrl eval`` of an endpoint: a foreign server with faults, from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer, chat_answer

from hyperrl.store import read_trajectories

ENV = "hyperrl/SortDigits-v0"


def sorting(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Sort the digits of the last message, as a good model would."""
    digits = [c for c in body["messages"][-1]["content"].split(":")[-1] if c.isdigit()]
    usage = {"prompt_tokens": 9, "completion_tokens": 6}
    return 200, chat_answer("".join(sorted(digits)), usage=usage)


def start(server: ScriptedServer, *arguments: object, **env: str) -> subprocess.Popen[str]:
    asked = [ENV, "--endpoint", server.url, "--model", "served", "--tasks", "40", *map(str, arguments)]
    return subprocess.Popen(
        [sys.executable, "-m", "hyperrl.cli", "eval", *asked],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def test_faults_are_survived_or_counted_apart(tmp_path: Path) -> None:
    faults = [(503, "busy"), "drop", (429, "slow", {"retry-after": "0"}), (400, {"error": "no"})]
    with ScriptedServer(sorting, script=faults) as server:
        asked = ("--out", tmp_path / "out", "--json", "--api-key-env", "KEY", "--concurrency", 4)
        code, out, err = finish(start(server, *asked, KEY="secret-key"))
        assert code == 0, err
        found = json.loads(out.splitlines()[-1])
        assert found["eval/unscored/endpoint_bad_request"] == found["eval/unscored"] == 1
        assert (found["eval/episodes"], found["eval/tasks"]) == (40, 39)
        assert found["eval/success"] == 1
        assert found["eval/completion_tokens"] == 39 * 6
        assert all(headers["authorization"] == "Bearer secret-key" for _, _, headers in server.requests)
        assert server.most_at_once <= 4
        kept = "".join(p.read_bytes().decode("latin-1") for p in tmp_path.rglob("*") if p.is_file())
        assert "secret-key" not in kept + out + err
        before = len(server.requests)
        code, out, err = finish(start(server, *asked, "--resume", KEY="secret-key"))
        assert code == 0, err
        assert len(server.requests) == before + 1, "only the failed one is asked again"
        assert "eval/unscored/endpoint_bad_request" not in json.loads(out.splitlines()[-1])


def test_an_endpoint_that_is_down_is_given_up_early() -> None:
    with ScriptedServer(lambda path, body: (500, "down")) as server:
        code, _, err = finish(start(server, "--retries", 0, "--concurrency", 2))
        assert code == 1
        assert "the first 16 episodes all failed with endpoint_server_error" in err
        assert len(server.requests) < 40


def test_a_key_that_is_refused_ends_it_at_once() -> None:
    with ScriptedServer(lambda path, body: (401, "who are you?")) as server:
        code, _, err = finish(start(server, "--concurrency", 2))
    assert code == 2
    assert "does not let us use this model" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_ended(number: int, code: int, tmp_path: Path) -> None:
    def slow(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if len(server.requests) > 10:
            server.closing.wait(30)
        return sorting(path, body)

    with ScriptedServer(slow) as server:
        process = start(server, "--concurrency", 2, "--out", tmp_path / "out")
        deadline = time.monotonic() + 50
        while len(server.requests) < 12 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        returned, _, err = finish(process)
    assert returned == code
    assert "keeps the episodes that ended; --resume goes on" in err
    assert len(list(read_trajectories(tmp_path / "out" / "trajectories"))) == 10
