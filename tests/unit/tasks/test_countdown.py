"""Countdown: puzzles, splits, what an answer is worth, the scripted player."""

import re
import statistics

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import make_env
from hyperrl.envs.checker import odd_texts
from hyperrl.errors import ConfigError
from hyperrl_tasks.arithmetic import read_expression
from hyperrl_tasks.countdown import baseline
from hyperrl_tasks.countdown.answers import judge
from hyperrl_tasks.countdown.puzzles import OPERATORS, puzzle_name
from hyperrl_tasks.splits import split_of

ENV_ID = "hyperrl/Countdown-v0"
PUZZLE = {"numbers": [94, 4, 61, 6], "target": 309}


def judged(answer, **changes):
    return judge(answer, **{**PUZZLE, "operators": OPERATORS, "use_all": False, **changes})


def success(count, episodes=120, **kwargs):
    """The share of test puzzles that the scripted player solves."""
    env = make_env(ENV_ID, numbers=count, split="test", **kwargs)
    rng = np.random.default_rng(0)
    rewards = []
    for index in range(episodes):
        env.reset(options={"task": index})
        rewards.append(env.step(baseline(env.messages, rng))[1])
    return statistics.mean(rewards)


# What an answer is worth


@pytest.mark.parametrize(
    "answer",
    [
        "94*4 - 61 - 6",
        "94*4 - 61 - 6 = 309",
        "94×4 - 61 - 6",
        "94 · 4 − 61 – 6",
        "$94 \\times 4 - 61 - 6$",
        "`(94 * 4) - (61 + 6)`",
        "９４*4 - 61 - 6",
        "-6 - 61 + 4*94",
        "94.0 * 4 - 61 - 6",
        "First 94*4 = 376, then I subtract.\n\n94*4 - 61 - 6\n",
        "Answer: 94*4 - 61 - 6",
        "**94*4 - 61 - 6**",
        "So it is \\boxed{94 \\times 4 - 61 - 6}.",
        "```\n94*4 - 61 - 6\n```",
        "94 x 4 - 61 - 6",
        "I think <answer>94*4 - 61</answer>, no, <answer> 94*4 - 61 - 6 </answer> it is.",
    ],
)
def test_right_answers(answer):
    assert judged(answer) == judged("94*4-61-6")
    assert judged(answer).reached


@pytest.mark.parametrize(
    ("answer", "valid", "reason"),
    [
        ("", False, "not arithmetic alone"),
        ("309", False, "309 is not among the numbers"),
        ("9**9**9", False, "too large"),
        ("94**4", False, "operator '\\*\\*' may not be used"),
        ("94^4", False, "operator '\\*\\*' may not be used"),
        ("94 // 4", False, "operator '//' may not be used"),
        ("300 + 9", False, "300 is not among"),
        ("94*4 - 61 - 6 + 1 - 1", False, "1 is not among"),
        ("94*4 - 61 - 6 + (4 - 4)", False, "4 is not among the numbers, or is used more often"),
        ("94.5 * 4", False, "189/2 is not among"),
        ("94*4 - 61", True, "the value is 315, not 309"),
        ("94/4", True, "the value is 47/2, not 309"),
        ("94/(6 - 6)", False, "division by zero"),
        ("94*4 - 61 - 6 = 310", False, "is not equal to '310'"),
        ("94*4 - 61 - 6 = 309 = 309", False, "not an arithmetic expression"),
        ("309 = 94*4 - 61 - 6", False, "309 is not among"),
        ("x = 94*4 - 61 - 6", False, "not arithmetic alone"),
        ("It is 94*4 - 61 - 6.", False, "not arithmetic alone"),
        ("94*4 - 61 - 6\nThat is it!", False, "not arithmetic alone"),
        ("94 4 61 6", False, "not an arithmetic expression"),
        ("94, 4", False, "not allowed"),
        ("__import__('os')", False, "not arithmetic alone"),
        ("(" * 150 + "94" + ")" * 150, False, "at most 200"),
        ("9" * 500, False, "at most 400"),
    ],
)
def test_wrong_answers(answer, valid, reason):
    judgement = judged(answer)
    assert (judgement.reached, judgement.valid) == (False, valid)
    assert re.search(reason, judgement.reason)


def test_all_numbers_where_all_are_asked_for():
    assert judged("94*4", target=376).reached
    assert "[6, 61] are left" in judged("94*4", target=376, use_all=True).reason
    assert judged("94*4 - 61 - 6", use_all=True).reached


def test_a_number_that_is_there_twice_may_be_used_twice():
    assert judged("5 * 5", numbers=[5, 5, 7], target=25).reached
    assert not judged("5 * 5", numbers=[5, 7], target=25).valid


def test_only_the_operators_that_are_offered():
    assert judged("94 - 61", target=33, operators="+-").reached
    assert not judged("94 * 4", target=376, operators="+-").valid
    assert not judged("-4 + 94", target=90, operators="+*").valid


@given(st.text(alphabet="0123456789+-*/%()=.^ ,\n<answer>", max_size=300))
def test_any_text_has_a_judgement(text):
    judgement = judged(text)
    assert judgement.valid or not judgement.reached
    assert bool(judgement.reason) != judgement.reached


def test_odd_texts_never_raise():
    env = make_env(ENV_ID)
    for text in odd_texts(1_000):
        env.reset(seed=1)
        assert env.step(text)[1:4] == (0.0, True, False)


# Puzzles


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"numbers": 2, "max_number": 20, "max_target": 20, "operators": "-"},
        {"numbers": 3, "operators": "+"},
        {"numbers": 6, "use_all": True},
        {"numbers": 8, "max_number": 1_000, "max_target": 5_000},
        {"numbers": 8, "max_number": 20, "max_target": 20, "operators": "*/-", "use_all": True},
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_puzzles_keep_the_options_and_have_a_solution(options, split):
    env = make_env(ENV_ID, split=split, **options)
    for index in range(60):
        env.reset(options={"task": index})
        numbers, target = env.task["numbers"], env.task["target"]
        assert len(numbers) == options.get("numbers", 4)
        assert all(1 <= number <= options.get("max_number", 99) for number in numbers)
        assert 1 <= target <= options.get("max_target", 999)
        assert target not in numbers
        assert split_of(puzzle_name(numbers, target)) == split
        gold = env.gold(env.task)
        assert read_expression(gold).operators <= set(options.get("operators", OPERATORS))
        assert env.step(gold)[1] == 1.0


def test_splits_are_large_and_never_overlap():
    names = {}
    for split in ("train", "test"):
        taskset = make_env(ENV_ID, split=split).taskset
        puzzles = [taskset[index] for index in range(1_500)]
        names[split] = {puzzle_name(puzzle["numbers"], puzzle["target"]) for puzzle in puzzles}
        assert len(names[split]) > 1_400
    assert not names["train"] & names["test"]
    assert puzzle_name([3, 1], 4) == puzzle_name([1, 3], 4)


def test_tasks_are_the_same_in_every_instance_and_other_for_another_seed():
    def puzzles(**kwargs):
        taskset = make_env(ENV_ID, **kwargs).taskset
        return [dict(taskset[index].data) for index in range(20)]

    assert puzzles() == puzzles()
    assert puzzles() != puzzles(taskset_seed=1)
    assert puzzles() != puzzles(split="test")


def test_the_prompt_says_the_rules_and_not_the_answer():
    env = make_env(ENV_ID, use_all=True, operators="+-")
    observation, _ = env.reset(options={"task": PUZZLE})
    system, user = observation.messages
    assert "every number exactly once" in system["content"]
    assert "the operators + - and" in system["content"]
    assert user["content"] == "Numbers: 94, 4, 61, 6\nTarget: 309"
    assert env.gold(env.task) is None


def test_validity_counts_where_it_has_a_weight():
    env = make_env(ENV_ID, valid_weight=0.1)
    for answer, expected in [("94*4 - 61 - 6", 1.1), ("94*4", 0.1), ("309", 0.0)]:
        env.reset(options={"task": PUZZLE})
        assert env.step(answer)[1] == pytest.approx(expected)


def test_reasoning_does_not_count():
    env = make_env(ENV_ID)
    env.reset(options={"task": PUZZLE})
    assert env.step("<think>94*4 - 61 - 6</think>I do not know")[1] == 0.0


def test_gymnasium_checks_pass():
    check_env(gymnasium.make(ENV_ID, render_mode="ansi").unwrapped)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"numbers": 1}, "numbers must be from 2 to 8, got 1"),
        ({"max_number": 5}, "max_number must be from 20"),
        ({"max_target": 50}, "max_target must be from 99"),
        ({"operators": "+*", "max_target": 100}, "max_target must be from 396"),
        ({"operators": "*/"}, "with \\+ or - among them"),
        ({"operators": "++"}, "each once"),
        ({"operators": "+^"}, "operators must be some of"),
        ({"operators": ""}, "operators must be some of"),
        ({"valid_weight": -1}, "valid_weight"),
        ({"taskset_seed": -1}, "taskset_seed"),
    ],
)
def test_options_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


# The scripted player


def test_success_of_the_scripted_player_falls_with_difficulty():
    easy, middle, hard = success(2), success(4), success(6, use_all=True)
    assert easy > 0.95
    assert easy > middle + 0.1
    assert middle > hard + 0.1


def test_the_scripted_player_keeps_the_rules():
    for options in ({"operators": "-*/"}, {"use_all": True, "numbers": 8}, {"operators": "+"}):
        env = make_env(ENV_ID, **options)
        for index in range(20):
            env.reset(options={"task": index})
            assert env.step(baseline(env.messages, np.random.default_rng(index)))[4]["reward_terms"]["valid"]
