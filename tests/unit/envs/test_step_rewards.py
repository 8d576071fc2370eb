from __future__ import annotations

import asyncio
import math
from types import MappingProxyType

import pytest

from hyperrl.envs import Excluded, Score, TextEnv, Unscored, reward, tool
from hyperrl.envs.rewards import Reward
from hyperrl.errors import EndpointError, RewardDefinitionError
from hyperrl.trajectory import RewardTerm


class Steps(TextEnv):
    """Pays for every step, and once at the end; a tool and a reply keep it going."""

    reward_weights = MappingProxyType({"pace": 0.5})

    def tasks(self):
        return [{}]

    def start(self):
        return "go"

    @tool
    def add(self, a: int) -> int:
        """Add one.

        Args:
            a: A number.
        """
        if a < 0:
            raise ValueError("negative")
        return a + 1

    def reply(self, answer):
        return "more" if answer == "more" else None

    @reward(at="step")
    def pace(self, turn):
        return turn + 1

    @reward(at="step", weight=2.0, name="tools")
    def used_well(self, tool_records, messages):
        assert messages[-1]["role"] in ("assistant", "tool", "user")
        return sum(record.status == "ok" for record in tool_records)

    @reward(weight=10.0)
    def right(self, answer):
        return answer == "5"


CALL = '<tool_call>{"name": "add", "arguments": {"a": %d}}</tool_call>'


def test_each_step_pays_its_own_and_their_sum_is_the_whole():
    env = Steps()
    env.reset(seed=0)
    steps = [env.step(action) for action in (CALL % 4, "more", CALL % -1, "5")]
    assert [step[1] for step in steps] == [0.5 + 2.0, 1.0, 1.5, 2.0 + 10.0]
    assert [step[2] for step in steps] == [False, False, False, True]
    assert steps[0][4]["reward_terms"] == {"pace": 1.0, "tools": 1.0}
    assert steps[-1][4]["reward_terms"] == {"pace": 4.0, "tools": 0.0, "right": 1.0}


def test_both_faces_pay_the_same():
    async def play():
        env = Steps()
        await env.areset(seed=0)
        return [(await env.astep(action)).reward for action in (CALL % 4, "more", "5")]

    env = Steps()
    env.reset(seed=0)
    assert [env.step(action)[1] for action in (CALL % 4, "more", "5")] == asyncio.run(play())


def test_an_unscored_step_says_so_where_it_happens_and_the_others_keep_theirs():
    class Env(Steps):
        used_well = None

        @reward(at="step")
        async def pace(self, turn):
            return Unscored("lost") if turn == 1 else 1.0

    env = Env()
    env.reset()
    first, second, last = (env.step(action) for action in ("more", "more", "x"))
    assert (first[1], last[1]) == (0.5, 0.5)
    assert math.isnan(second[1])
    assert second[4]["unscored"] == {"pace": "unscored: lost"}


def test_a_raising_step_reward_ends_no_episode():
    class Env(Steps):
        @reward(at="step")
        def pace(self):
            raise KeyError("x")

    env = Env()
    env.reset()
    _, paid, terminated, _, info = env.step("more")
    assert math.isnan(paid)
    assert not terminated
    assert info["unscored"]["pace"].startswith("reward_error: KeyError")
    assert env.step("5")[2]


def test_a_cut_episode_is_paid_for_its_end_once():
    async def cut():
        env = Steps()
        await env.areset()
        await env.astep("more")
        return await env.ascore()

    assert [term.name for term in asyncio.run(cut())] == ["right"]


def test_a_moment_that_there_is_not_is_refused():
    with pytest.raises(RewardDefinitionError, match="Did you mean 'step'"):
        reward(at="steps")(lambda self: 1)


def test_a_group_reward_asks_for_what_groups_have():
    with pytest.raises(RewardDefinitionError, match=r"asks for 'answer'.*Did you mean 'answers'"):

        class Env(Steps):
            @reward(at="group")
            def best(self, answer):
                return 1


def test_gymnasiums_face_leaves_rewards_of_groups_out():
    class Env(Steps):
        @reward(at="group")
        def best(self, answers):
            return [1.0] * len(answers)

    env = Env()
    env.reset()
    assert env.scores_groups
    assert env.step("5")[1] == 0.5 + 10.0
    assert env.reward_weights == {"pace": 0.5}


@pytest.mark.parametrize(
    "value", [[1.0], [1.0, 0.0, 1.0], "ab", {"a": 1, "b": 2}, 1.0, None, iter([1.0, 0.0])]
)
def test_values_that_do_not_fit_the_members_score_nobody(value):
    members = Reward(lambda: None, name="best", at="group").member_terms(value, 2)
    assert [[(t.name, t.score, t.error.kind) for t in terms] for terms in members] == [
        [("best", None, "reward_error")]
    ] * 2


@pytest.mark.parametrize(("value", "kind"), [(Unscored("x"), "unscored"), (Excluded("x"), "excluded")])
def test_one_word_stands_for_all_members(value, kind):
    members = Reward(lambda: None, at="group").member_terms(value, 3)
    assert [terms[0].error.kind for terms in members] == [kind] * 3


def test_a_score_carries_its_cause():
    rated = Reward(lambda: None, name="r", weight=2.0)
    assert rated.terms(Score(0, cause="unparsed")) == (
        RewardTerm(name="r", score=0.0, weight=2.0, cause="unparsed"),
    )
    assert rated.terms({"a": Score(True)}) == (RewardTerm(name="r/a", score=1.0, weight=2.0),)
    (term,) = rated.terms(Score(math.nan, cause="unparsed"))
    assert (term.score, term.cause, term.error.kind) == (None, None, "reward_not_finite")


def test_the_cause_is_part_of_info():
    class Env(Steps):
        pace = used_well = None
        reward_weights = MappingProxyType({})

        @reward
        def right(self):
            return Score(0, cause="unparsed")

    env = Env()
    env.reset()
    assert env.step("x")[4]["causes"] == {"right": "unparsed"}


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_an_excluded_episode_has_no_reward_whatever_the_weight(weight):
    class Env(Steps):
        reward_weights = MappingProxyType({})

        @reward(weight=weight)
        def sane(self):
            return Excluded("the task has no answer")

    env = Env()
    env.reset()
    _, paid, _, _, info = env.step("5")
    assert math.isnan(paid)
    assert info["unscored"] == {"sane": "excluded: the task has no answer"}


def test_an_endpoint_that_failed_is_a_judge_failure():
    (term,) = Reward(lambda: None).failed(EndpointError("503", kind="status", status=503))
    assert (term.score, term.error.kind) == (None, "judge_failure")
