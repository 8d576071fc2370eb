from __future__ import annotations

import time

import gymnasium
import pytest
import text_envs
from text_envs import Guess, Sums, Unsure

from hyperrl.envs import check_env_contract, reward
from hyperrl.envs.checker import odd_texts


class NoGold(Sums):
    def gold(self, task):
        return None


class WrongGold(Sums):
    def gold(self, task):
        return "0"


class Generous(Sums):
    @reward(weight=0.5)
    def bonus(self):
        return True


class Fragile(Sums):
    @reward
    def correct(self, task, answer):
        return answer == task["answer"]

    def reply(self, answer):
        int(answer or "0")


class Moody(Sums):
    def start(self):
        return f"It is {time.perf_counter_ns()}."


class Sticky(Sums):
    """Forgets to take back, at the next start, what an episode has set."""

    solved = False

    def reply(self, task, answer):
        self.solved = self.solved or answer == task["answer"]

    @reward(weight=0.0)
    def ever_solved(self):
        return self.solved


class Leaking(Sums):
    def start(self, task):
        return f"The answer is {task['answer']:>5}."

    def tasks(self):
        return [{"answer": "12345"}]


class Endless(Guess):
    def gold(self, task):
        return ["no number"]


FINDINGS = [
    (Sums, {}),
    (Guess, {}),
    (NoGold, {"gold scores 1": "skip", "gold is not given away": "skip"}),
    (WrongGold, {"gold scores 1": "fail"}),
    (Generous, {"gold scores 1": "fail", "empty stays under the floor": "fail"}),
    (Fragile, {"any text can be an action": "fail", "gymnasium": "fail", "same seed, same episode": "fail"}),
    (Moody, {"gymnasium": "fail", "same seed, same episode": "fail"}),
    (Sticky, {"same seed, same episode": "fail"}),
    (Leaking, {"gold is not given away": "fail"}),
    (Endless, {"gold scores 1": "fail"}),
    (
        Unsure,
        {
            "gymnasium": "fail",
            "gold scores 1": "skip",
            "empty stays under the floor": "fail",
            "gold is not given away": "skip",
        },
    ),
]


def checked(cls):
    env_id = f"HyperrlTest/Check{cls.__name__}-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point=cls)
    return check_env_contract(env_id)


@pytest.mark.parametrize(("cls", "findings"), FINDINGS, ids=[cls.__name__ for cls, _ in FINDINGS])
def test_each_broken_promise_is_found_and_no_other(cls, findings):
    report = checked(cls)
    assert {check.name: check.status for check in report.checks if check.status != "pass"} == findings
    assert report.ok == ("fail" not in findings.values())
    assert all(check.detail for check in report.checks)
    assert report.step_us > 0


def test_what_an_episode_leaves_behind_is_told_from_chance():
    found = {cls: checked(cls) for cls in (Sticky, Moody)}
    details = {c: next(x.detail for x in r.checks if x.name.startswith("same")) for c, r in found.items()}
    assert details[Sticky].endswith("what they left behind must be set anew in start()")
    assert details[Moody].endswith("observations, rewards or infos")


@pytest.mark.parametrize("env_id", sorted(set(text_envs.REGISTERED) - {"HyperrlTest/Hanging-v0"}))
def test_every_kind_of_environment_passes_gymnasiums_check(env_id):
    report = check_env_contract(env_id)
    (check,) = [check for check in report.checks if check.name == "gymnasium"]
    assert (check.status, check.detail.endswith("check_env")) == ("pass", True)


def test_odd_texts_are_the_same_each_time():
    assert odd_texts(50) == odd_texts(50)
    assert odd_texts(50, seed=1) != odd_texts(50)
    assert len(odd_texts(5)) == 5
