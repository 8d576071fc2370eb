"""Bugs of an environment's author at the command line: one line that says where, and no traceback of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = '''
import gymnasium

from hyperrl.envs import TextEnv, reward


class Env(TextEnv):
    """Say yes."""

    bug = ""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.check("init")

    def check(self, place):
        if self.bug == place:
            raise ValueError(f"bug in {place}")

    def tasks(self):
        if self.bug == "tasks":
            open("nowhere.csv")
        return [{"n": i} for i in range(3)]

    def start(self, task):
        self.check("start")
        return str(task["n"])

    def reply(self):
        self.check("reply")

    @reward
    def right(self, answer):
        self.check("reward")
        return 0.5 * (answer == "yes")

    def gold(self, task):
        self.check("gold")
        return "yes"


class Best(Env):
    """Its gold scores less than 1."""

    gold_score = 0.5


for place in ("init", "tasks", "start", "reply", "reward", "gold"):
    gymnasium.register(f"bugs/{place}-v0", entry_point=type(place, (Env,), {"bug": place}))
gymnasium.register("bugs/best-v0", entry_point=Best)
'''


def run(folder: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "bugs.py").write_text(MODULE, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", *arguments],
        input=typed,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"},
    )


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("init", ("check",)),
        ("init", ("eval", "--policy", "gold")),
        ("start", ("eval", "--policy", "gold")),
        ("start", ("play",)),
        ("reply", ("play",)),
        ("gold", ("play",)),
    ],
)
def test_a_bug_is_one_line_that_says_where(tmp_path: Path, place: str, command: tuple[str, ...]) -> None:
    name, *options = command
    done = run(tmp_path, name, f"bugs:bugs/{place}-v0", *options, typed="/gold\n")
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert re.fullmatch(rf"hyperrl: ValueError: bug in {place} \(bugs\.py, line \d+, in check\)", said[-1])
    assert "Traceback" not in done.stderr


def test_a_file_that_an_author_misses_is_named_with_the_line_that_opens_it(tmp_path: Path) -> None:
    done = run(tmp_path, "eval", "bugs:bugs/tasks-v0", "--policy", "gold")
    assert done.returncode == 1
    assert re.search(
        r"FileNotFoundError: .*'nowhere\.csv' \(bugs\.py, line \d+, in tasks\)$", done.stderr.strip()
    )


def test_episodes_that_fail_or_have_no_reward_say_why_and_where(tmp_path: Path) -> None:
    failed = run(tmp_path, "eval", "bugs:bugs/reply-v0", "--policy", "gold")
    assert failed.returncode == 1
    assert re.search(r"step_error.* ValueError: bug in reply \(bugs\.py, line \d+, in check\)", failed.stderr)
    unscored = run(tmp_path, "eval", "bugs:bugs/reward-v0", "--policy", "gold", "--json")
    assert unscored.returncode == 1
    reason = r"^the first reward_error: right: ValueError: bug in reward \(bugs\.py, line \d+, in check\)$"
    assert re.search(reason, unscored.stdout, re.MULTILINE)
    assert json.loads(unscored.stdout.splitlines()[-1])["eval/success"] is None


def test_a_gold_below_a_success_is_said_and_the_threshold_can_be_set(tmp_path: Path) -> None:
    best = ("eval", "bugs:bugs/best-v0", "--policy", "gold", "--json")
    done = run(tmp_path, *best)
    assert "the gold of bugs:bugs/best-v0 scores 0.5, and a success takes 1" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["eval/success"] == 0.0
    done = run(tmp_path, *best, "--success", "0.5")
    assert "a success takes" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["eval/success"] == 1.0


def test_a_folder_that_is_refused_is_not_said_to_be_of_this_evaluation(tmp_path: Path) -> None:
    first = ("eval", "hyperrl/Countdown-v0", "--policy", "gold", "--tasks", "2", "--out", "there")
    assert run(tmp_path, *first).returncode == 0
    again = run(tmp_path, *first)
    assert again.returncode == 2
    assert again.stderr.startswith("hyperrl: there is not empty; ")


def test_what_is_no_function_cannot_play(tmp_path: Path) -> None:
    (tmp_path / "players.py").write_text("player = 3\n", encoding="utf-8")
    done = run(tmp_path, "eval", "hyperrl/Countdown-v0", "--policy", "players:player")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("'players' has no function 'player': it is of the type int.")


def test_a_module_that_is_no_python_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "unread.py").write_text("x = 1\ndef (\n", encoding="utf-8")
    done = run(tmp_path, "check", "unread:Env-v0")
    assert (done.returncode, done.stderr) == (1, "hyperrl: SyntaxError: invalid syntax (unread.py, line 2)\n")
