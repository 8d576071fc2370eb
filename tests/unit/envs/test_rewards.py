from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from hyperrl.envs import TextEnv, Unscored, reward
from hyperrl.envs.rewards import Reward
from hyperrl.errors import RewardDefinitionError
from hyperrl.trajectory import RewardTerm


def scored(value, **kwargs):
    return Reward(lambda self: value, name="r", **kwargs).terms(value)


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (-3, -3.0),
    ],
)
def test_numbers_and_bools_are_scores(value, score):
    assert scored(value, weight=2) == (RewardTerm(name="r", score=score, weight=2.0),)


def test_a_mapping_is_one_term_for_each_name():
    terms = scored({"format": True, "length": Unscored("cut")}, weight=0.5)
    assert [(t.name, t.score, t.weight) for t in terms] == [("r/format", 1.0, 0.5), ("r/length", None, 0.5)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (math.nan, "reward_not_finite"),
        (math.inf, "reward_not_finite"),
        (None, "reward_error"),
        ("1", "reward_error"),
        ([1], "reward_error"),
        ({}, "reward_error"),
        (Unscored("why"), "unscored"),
        (Unscored("why", kind="judge_failure"), "judge_failure"),
    ],
)
def test_anything_else_is_unscored_never_zero(value, kind):
    (term,) = scored(value)
    assert term.score is None
    assert term.error.kind == kind
    assert term.error.stage == "reward"
    assert term.error.exclude
    assert term.error.reason


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_a_weight_must_be_finite(weight):
    with pytest.raises(RewardDefinitionError, match="weight must be finite"):
        reward(weight=weight)(lambda self: 1)


def test_a_blocking_reward_takes_no_timeout():
    with pytest.raises(RewardDefinitionError, match="needs an async function"):
        reward(timeout=1.0)(lambda self: 1)


class _Base(TextEnv):
    def tasks(self):
        return [{}]

    def start(self):
        return "?"


def test_a_reward_that_asks_for_the_impossible_is_refused_when_the_class_is_defined():
    with pytest.raises(
        RewardDefinitionError, match=r"reward 'r' of Env asks for 'anser'.*Did you mean 'answer'"
    ):

        class Env(_Base):
            @reward
            def r(self, anser):
                return 1


def test_two_rewards_need_two_names():
    with pytest.raises(RewardDefinitionError, match="defines 'r' twice"):

        class Env(_Base):
            @reward
            def r(self):
                return 1

            @reward(name="r")
            def other(self):
                return 1


def test_a_subclass_replaces_and_drops_rewards():
    class Parent(_Base):
        @reward
        def one(self):
            return 1

        @reward
        def two(self):
            return 2

    class Child(Parent):
        two = None

        @reward(weight=3)
        def one(self):
            return 1

    env = Child()
    env.reset()
    assert env.step("x")[1] == 3.0
    assert env.one() == 1


def test_every_injected_name_arrives():
    seen = {}

    class Env(_Base):
        @reward
        def one(self, stop_reason, task, rng, options, action):
            seen.update(locals())
            return 1

        @reward
        def two(self, answer, messages, turn, *, extra=5):
            seen.update(locals())
            return 1

    env = Env()
    env.reset(seed=1, options={"task": 0, "level": 2})
    env.step("<think>hm</think>x")
    assert seen["answer"] == "x"
    assert seen["action"] == "<think>hm</think>x"
    assert seen["options"] == {"task": 0, "level": 2}
    assert seen["turn"] == 0
    assert seen["stop_reason"] == "stop"
    assert seen["extra"] == 5
    assert seen["rng"] is env.np_random
    assert seen["task"] is env.task
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant"]


def test_a_shared_reward_needs_no_self():
    @reward
    def short(answer):
        return len(answer) < 3

    class Env(_Base):
        brevity = short

    env = Env()
    env.reset()
    assert env.step("ab")[1] == 1.0


def test_a_cancelled_reward_is_not_a_failed_one():
    class Env(_Base):
        @reward
        async def r(self):
            await asyncio.sleep(3600)

    async def cancel():
        env = Env()
        await env.areset()
        task = asyncio.ensure_future(env.astep("x"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
