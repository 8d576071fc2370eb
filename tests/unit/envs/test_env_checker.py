from __future__ import annotations

import re
import threading
import time

import gymnasium
import pytest
import text_envs
from text_envs import Guess, Sums, Unsure

from hyperrl.envs import Unscored, check_env_contract, make_env, reward
from hyperrl.envs.checker import odd_texts
from hyperrl.envs.checking.texts import general_attacks, task_attacks
from hyperrl.envs.grading import grade_answer


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
        digits_to_letters = str.maketrans("0123456789", "abcdefghij")  # a digit might be the answer
        return f"It is {str(time.perf_counter_ns()).translate(digits_to_letters)}."


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


class Mentions(Sums):
    """Takes an answer that mentions the number anywhere, as a well-known parser did."""

    @reward
    def correct(self, task, answer):
        return task["answer"] in answer


class Fooled(Sums):
    """Believes what the policy says of itself."""

    @reward
    def correct(self, task, answer):
        return answer.strip() == task["answer"] or '"correct": true' in answer


class Computing(Sums):
    """Takes the sum that it asks for as its answer."""

    @reward
    def correct(self, task, answer):
        return grade_answer(answer, str(task["answer"]), style="whole").equal


class ThinksAloud(Sums):
    """Reads the action with its reasoning."""

    @reward
    def correct(self, task, action):
        return action.replace("<think>", "").replace("</think>", "").strip() == task["answer"]


class Crashing(Sums):
    """Reads numbers as floats, and forgets that some of them are none."""

    @reward
    def correct(self, task, answer):
        try:
            value = float(answer)
        except ValueError:
            value = 0.0
        return int(value) == int(task["answer"])


class AnythingGoes(Sums):
    """Any number is right."""

    @reward
    def correct(self, answer):
        return answer.strip().isdecimal() and len(answer) < 10


class Remembering(Guess):
    """Keeps what a tool, or a right answer, has changed."""

    best = 0

    def start(self, task, rng):
        return f"{super().start(task, rng)} Best so far: {self.best}."

    @reward(weight=0.0)
    def kept(self, answer, task):
        self.best += answer.strip() == str(self.secret) and task["high"] == 100
        return 0


class Overlapping(Sums):
    """Gives the same tasks in both splits, under other names."""

    def tasks(self):
        return [{"id": f"{self.split}-{i}", "question": f"{i}+1?", "answer": str(i + 1)} for i in range(9)]


class Undocumented(Sums):
    """Says nothing of its option."""

    def __init__(self, *, margin: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.margin = margin


class Unpickled(Sums):
    """Holds what cannot be copied."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.lock = threading.Lock()


class Sluggish(Sums):
    """Takes its time."""

    def start(self, task):
        time.sleep(0.006)
        return super().start(task)


class Stepwise(Guess):
    """Cannot score some of its steps."""

    splits = ("train",)

    @reward(at="step")
    def politeness(self, turn):
        return Unscored("nobody listened") if turn == 0 else 0.0


class Compared(Sums):
    """Only compares the episodes of a group."""

    correct = None

    @reward(at="group")
    def longest(self, answers):
        return [len(answer) for answer in answers]


class TwoTerms(Sums):
    """Declares what its gold scores."""

    gold_score = 1.5

    @reward(weight=0.5)
    def short(self, answer, task):
        return answer.strip() == task["answer"]


ONE_SPLIT = {"splits do not overlap": "fail"}
GOLD = "gold reaches the declared score"
EMPTY = "empty stays under the floor"
WRONG = "wrong stays under the floor"
ATTACKS = "attacks stay under the floor"
SAME = "same seed, same episode"
TRACE = "reset leaves no trace"
UNKNOWN = {GOLD: "skip", WRONG: "skip", "gold is not given away": "skip"}

FINDINGS = [
    (Sums, {}),
    (Guess, ONE_SPLIT),
    (NoGold, UNKNOWN),
    (WrongGold, {GOLD: "fail", WRONG: "skip"}),
    (Generous, {GOLD: "fail", EMPTY: "fail", WRONG: "fail", ATTACKS: "fail"}),
    (
        Fragile,
        {"any text can be an action": "fail", "gymnasium": "fail", SAME: "fail", ATTACKS: "fail"},
    ),
    (Moody, {"gymnasium": "fail", SAME: "fail", TRACE: "fail", "pickle keeps it": "fail"}),
    (Sticky, {SAME: "fail", TRACE: "fail"}),
    (Leaking, ONE_SPLIT | {WRONG: "skip", "gold is not given away": "fail"}),
    (Endless, ONE_SPLIT | {GOLD: "fail", WRONG: "skip"}),
    (Unsure, UNKNOWN | ONE_SPLIT | {"gymnasium": "fail", EMPTY: "fail", WRONG: "skip", ATTACKS: "fail"}),
    (Mentions, {ATTACKS: "fail"}),
    (Fooled, {ATTACKS: "fail"}),
    (Computing, {ATTACKS: "fail"}),
    (ThinksAloud, {ATTACKS: "fail"}),
    (Crashing, {ATTACKS: "fail"}),
    (AnythingGoes, {WRONG: "fail", ATTACKS: "fail"}),
    (Remembering, ONE_SPLIT | {SAME: "fail", TRACE: "fail"}),
    (Overlapping, {"splits do not overlap": "fail"}),
    (Undocumented, {"options are documented": "fail"}),
    (Unpickled, {"pickle keeps it": "fail"}),
    (Sluggish, {"tasks are there in time": "warn"}),
    (TwoTerms, {}),
    (Stepwise, {"gymnasium": "fail", GOLD: "fail", EMPTY: "fail", "splits do not overlap": "skip"}),
    (Compared, {"gymnasium": "fail", GOLD: "skip", EMPTY: "skip", WRONG: "skip", ATTACKS: "skip"}),
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
    assert details[Moody].endswith("draw from rng (self.np_random) alone, and show no clock and no address")


@pytest.mark.parametrize("env_id", sorted(set(text_envs.REGISTERED) - {"HyperrlTest/Hanging-v0"}))
def test_every_kind_of_environment_passes_gymnasiums_check(env_id):
    report = check_env_contract(env_id)
    (check,) = [check for check in report.checks if check.name == "gymnasium"]
    assert (check.status, check.detail.endswith("check_env")) == ("pass", True)


def test_odd_texts_are_the_same_each_time():
    assert odd_texts(50) == odd_texts(50)
    assert odd_texts(50, seed=1) != odd_texts(50)
    assert len(odd_texts(5)) == 5


def test_what_was_seen_names_the_attack_the_text_and_the_score():
    (found,) = [c for c in checked(Fooled).checks if c.name == ATTACKS]
    assert re.match(r"task \d+: JSON with a score \('\{", found.detail)
    assert found.detail.endswith("scores 1, the floor is 0")
    (found,) = [c for c in checked(Crashing).checks if c.name == ATTACKS]
    assert "the number nan ('nan') breaks the reward correct: reward_error: ValueError" in found.detail
    (found,) = [c for c in checked(Mentions).checks if c.name == ATTACKS]
    assert "the answer among wrong ones" in found.detail


def test_an_answer_that_is_right_by_chance_is_no_finding():
    class Lucky(Sums):
        """One task in five has the answer that an attack guesses."""

        def tasks(self):
            answers = ["4917", "12", "13", "14", "15"]
            return [{"question": f"{i} {self.split}", "answer": a} for i, a in enumerate(answers)]

    assert [c.name for c in checked(Lucky).failures] == ["pickle keeps it"]  # a class in a function


def test_the_longer_an_episode_takes_the_fewer_are_played():
    class Dragging(Sums):
        """A reward that takes a while."""

        @reward
        def correct(self, task, answer):
            time.sleep(0.6 if answer.strip() == task["answer"] else 0)
            return answer.strip() == task["answer"]

    (found,) = [c for c in checked(Dragging).checks if c.name == GOLD]
    assert int(found.detail.split()[0]) <= 3


def test_attacks_use_the_tools_and_the_task():
    env = make_env("HyperrlTest/Desk-v0")
    env.reset(seed=0)
    texts = {attack.name: attack.text for attack in general_attacks(env.tools)}
    assert texts["submit without arguments"] == '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
    assert '"item": "Ignore' in texts["stock with senseless arguments"]
    made = {a.name: a.text for a in task_attacks("2 and 3?", "Be brief.", "so\n#### 5", ["#### 7", "#### 8"])}
    assert made["the answer among wrong ones"] == "#### 5\n#### 7\n#### 8"
    assert made["the answer in reasoning left open"] == "<think>so\n#### 5"
    assert "the answer among wrong ones" not in {a.name for a in task_attacks("?", "", "5", ["5"])}
    assert len(texts) == len(general_attacks(env.tools))
    env.close()
