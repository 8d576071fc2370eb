"""Calculate: expressions, the calculator's three modes, what counts as an answer."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from hyperrl.envs import check_env_contract, make_env
from hyperrl.errors import ConfigError
from hyperrl_tasks.calculate import baseline
from hyperrl_tasks.splits import split_of

ENV = "hyperrl/Calculate-v0"


def call(expression: str) -> str:
    arguments = {"name": "calculator", "arguments": {"expression": expression}}
    return f"<tool_call>\n{json.dumps(arguments)}\n</tool_call>"


@pytest.mark.parametrize("kwargs", [{}, {"calculator": "none", "digits": 1}, {"terms": 4, "operators": "+-"}])
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_variant_keeps_the_promises_of_an_environment(kwargs, split) -> None:
    assert check_env_contract(ENV, split=split, **kwargs).failures == ()


@pytest.mark.parametrize(("digits", "terms", "operators"), [(1, 2, "+-*"), (3, 2, "*"), (2, 4, "+-")])
def test_expressions_are_what_was_asked_for_and_their_values_are_right(digits, terms, operators) -> None:
    for split in ("train", "test"):
        taskset = make_env(ENV, split=split, digits=digits, terms=terms, operators=operators).taskset
        for index in range(100):
            task = taskset[index]
            numbers = re.split(r"[+*-]", task["expression"])
            assert [len(number) for number in numbers] == [digits] * terms
            assert set(re.sub(r"\d", "", task["expression"])) <= set(operators)
            assert task["gold"] == str(eval(task["expression"]))
            assert split_of(task["expression"]) == split


def test_the_calculator_works_is_off_or_is_not_there() -> None:
    prompts = {}
    for mode, said in (("works", "115038"), ("off", "switched off")):
        env = make_env(ENV, calculator=mode)
        prompts[mode] = (env.reset(options={"task": {"expression": "693*166", "gold": "115038"}}), env.tools)
        observation, _, terminated, _, _ = env.step(call("693*166"))
        assert said in observation
        assert not terminated
        assert env.step("115038")[1] == 1
    assert prompts["works"] == prompts["off"], "the policy cannot know before it calls"
    without = make_env(ENV, calculator="none")
    without.reset(options={"task": {"expression": "693*166", "gold": "115038"}})
    assert without.tools == ()
    assert without.step(call("693*166"))[1] == 0


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_some_gold_answers_directly(share) -> None:
    env = make_env(ENV, direct_share=share)
    golds = [env.gold(env.taskset[index]) for index in range(1000)]
    assert sum(isinstance(gold, str) for gold in golds) / 1000 == pytest.approx(share, abs=0.05)
    assert check_env_contract(ENV, direct_share=share).failures == ()


@pytest.mark.parametrize(
    ("answer", "whole", "last"),
    [
        ("7", 1, 1),
        (" 7\n", 1, 1),
        ("3+4=7", 0, 1),
        ("3+4", 0, 0),
        ("Compute: 3+4", 0, 0),
        ("It is 7.", 0, 1),
        ("7, not 8", 0, 0),
        ("", 0, 0),
        ("-7", 0, 0),
    ],
)
def test_what_counts_as_an_answer(answer, whole, last) -> None:
    for extract, score in (("whole", whole), ("last_number", last)):
        env = make_env(ENV, digits=1, calculator="none", extract=extract)
        env.reset(options={"task": {"expression": "3+4", "gold": "7"}})
        assert env.step(answer)[1] == score


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"digits": 0}, "digits must be from 1 to 9, got 0"),
        ({"terms": 7}, "terms must be from 2 to 6, got 7"),
        ({"operators": "+/"}, r"operators must be some of \+-\*, got '\+/'"),
        ({"calculator": "work"}, "Did you mean 'works'"),
        ({"extract": "last"}, "extract must be one of whole, last_number"),
        ({"direct_share": 1.5}, "direct_share must be from 0 to 1"),
        ({"taskset_seed": -1}, "taskset_seed"),
    ],
)
def test_what_cannot_be_is_refused(kwargs, message) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(ENV, **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "low", "high"),
    [({}, 1, 1), ({"calculator": "none", "digits": 2}, 1, 1), ({"calculator": "none"}, 0, 0.1)],
)
def test_the_scripted_player_needs_the_calculator_for_large_numbers(kwargs, low, high) -> None:
    rng = np.random.default_rng(0)
    rewards = []
    for index in range(50):
        env = make_env(ENV, **kwargs)
        env.reset(options={"task": index})
        terminated = False
        while not terminated:
            _, reward, terminated, _, _ = env.step(baseline(env.messages, rng))
        rewards.append(reward)
    assert low <= np.mean(rewards) <= high
