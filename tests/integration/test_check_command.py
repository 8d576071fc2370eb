"""``hyperrl check`` as a person uses it, with environments of an installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = """
import gymnasium

from hyperrl.envs import TextEnv, reward
from hyperrl.errors import MissingExtraError


class Honest(TextEnv):
    '''Asks for a number.'''

    def tasks(self):
        return [{"n": str(1000 + 2 * i + (self.split == "test"))} for i in range(9)]

    def start(self, task):
        return "one more than " + str(int(task["n"]) - 1)

    @reward
    def right(self, answer, task):
        return answer == task["n"]

    def gold(self, task):
        return task["n"]


class Giving(Honest):
    '''Scores everything.'''

    @reward
    def right(self):
        return 1


class Lacking(Honest):
    '''Needs a package.'''

    def __init__(self, **kwargs):
        raise MissingExtraError("nowhere", "nothing")


class Falling(Honest):
    '''Cannot be made.'''

    def __init__(self, **kwargs):
        raise OSError("no such disk")


for cls in (Honest, Giving, Lacking, Falling):
    gymnasium.register(f"Other/{cls.__name__}-v0", entry_point=cls)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH that holds a package with an entry point, as an installer leaves it."""
    (tmp_path / "other_envs.py").write_text(PACKAGE, encoding="utf-8")
    info = tmp_path / "other_envs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: other-envs\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text("[hyperrl.envs]\nother = other_envs\n", encoding="utf-8")
    return tmp_path


def check(path: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [*([str(path)] if path else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "160"}
    return subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "check", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        encoding="utf-8",
    )


@pytest.mark.slow
def test_all_ends_with_one_line_that_names_what_failed(installed: Path) -> None:
    done = check(installed, "--all", "--json")
    assert done.returncode == 1, done.stderr
    *lines, last = [json.loads(line) for line in done.stdout.splitlines()]
    by_id = {line["env"]: line for line in lines}
    assert last["of"] == len(lines)
    assert last["ok"] == sum(line["ok"] for line in lines) == last["of"] - 2
    assert {failure["env"] for failure in last["failures"]} == {"Other/Giving-v0", "Other/Falling-v0"}
    falling = {
        failure["check"]: failure["detail"] for failure in last["failures"] if "Falling" in failure["env"]
    }
    assert list(falling) == ["can be made"]
    assert falling["can be made"].startswith("OSError: no such disk (other_envs.py, line ")
    assert by_id["Other/Honest-v0"]["ok"]
    (lacking,) = by_id["Other/Lacking-v0"]["checks"]
    assert lacking["status"] == "skip"
    assert "hyperrl[nothing]" in lacking["detail"]


def test_one_environment_as_a_table_and_as_json(installed: Path) -> None:
    done = check(installed, "Other/Giving-v0")
    assert done.returncode == 1
    assert "gold reaches the declared score" in done.stdout
    assert "the floor is 0" in done.stdout
    done = check(installed, "other_envs:Other/Honest-v0", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True)
    assert {"name", "status", "detail"} == set(report["checks"][0])
    assert report["checks"][-1]["name"] == "prompt and parser round trip"
    assert report["reset_us"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "takes the id of an environment, or --all"),
        (("hyperrl/GSM8K-v0", "--all"), "takes the id of an environment, or --all"),
        (("--all", "--env-arg", "a=1"), "--env-arg is for one environment"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], message: str) -> None:
    done = check(None, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
