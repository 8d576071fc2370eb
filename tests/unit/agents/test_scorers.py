"""What acts after the episode: rewards of groups, scorers, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest
from playground import ENVS, CountingPool, Echo, SpySampler, plans, settings

from hyperrl.agents import RewardScorer, Scorer, load_scorer, play_episode, play_groups
from hyperrl.envs import Excluded, Score, Task, TextEnv, Unscored, reward
from hyperrl.errors import ConfigError, EndpointError, RewardDefinitionError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig
from hyperrl.trajectory import RewardTerm


class Ranked(Echo):
    """Members are ranked by the length of their answers; each step pays 0.25."""

    def __init__(self, *, fails: str = "", **kwargs) -> None:
        super().__init__(turns=2, **kwargs)
        self.fails = fails

    said = None

    @reward(at="step", weight=0.25)
    def pace(self):
        return 1.0

    @reward(at="group")
    async def longest(self, task, answers, trajectories):
        assert task["start"].startswith("task ")
        assert len(answers) == len(trajectories)
        if self.fails == "raise":
            raise RuntimeError("no ranking")
        if self.fails == "short":
            return [1.0] * (len(answers) - 1)
        if self.fails == "hang":
            await asyncio.sleep(3600)
        best = max(map(len, answers))
        return [float(len(answer) == best) for answer in answers]


ENVS["Ranked"] = Ranked


def longer(prompt, key):
    return "<think>" + "z" * 9 * (3 - key.sample_index) + "</think>" + "x" * (1 + key.sample_index)


def play(env_id="Ranked", groups=1, size=3, script=longer, on_episode=None, **options):
    kwargs = options.pop("kwargs", {})
    shared = replace(settings(SpySampler(script)), **options)
    with CountingPool() as envs:
        work = play_groups(plans(env_id, groups, size, **kwargs), shared, envs=envs, on_episode=on_episode)
        found = asyncio.run(work)
    assert envs.made == envs.closed
    return found


def scores(group, name):
    return [next((t.score for t in member.reward_terms if t.name == name), "none") for member in group]


def kinds(group, name):
    terms = [t for member in group for t in member.reward_terms if t.name == name]
    return [term.error.kind for term in terms if term.error is not None]


def test_members_are_compared_when_the_last_has_ended():
    for group in play(groups=4):
        assert scores(group, "longest") == [0.0, 0.0, 1.0], "answers, without what was thought"
        assert [member.reward for member in group] == [0.5, 0.5, 1.5]
        for member in group:
            assert [t.turn for t in member.reward_terms] == [0, 1, None]


def test_grpo_learns_from_sums_of_steps_and_groups():
    batch = Algorithm(AlgorithmConfig()).prepare(play(groups=2))
    assert batch.rewards.tolist() == [0.5, 0.5, 1.5] * 2


@pytest.mark.parametrize(
    ("fails", "kind"), [("raise", "reward_error"), ("short", "reward_error"), ("hang", "scorer_timeout")]
)
def test_a_failing_comparison_scores_nobody_and_is_never_zero(fails, kind):
    (group,) = play(kwargs={"fails": fails}, scorer_timeout_s=0.2)
    name = "group" if fails == "hang" else "longest"
    assert scores(group, name) == [None] * 3
    assert kinds(group, name) == [kind] * 3
    assert [member.reward for member in group] == [None] * 3
    assert Algorithm(AlgorithmConfig()).prepare([group]).metrics[f"episodes/excluded/{kind}"] == 3


class Words:
    """A scorer of its own kind."""

    name = "words"

    def __init__(self, *, weight=1.0, result=None):
        self.weight = weight
        self.result = result
        self.seen = []

    async def score(self, task, trajectories):
        assert isinstance(task, Task)
        self.seen.append([t.sample_index for t in trajectories])
        if isinstance(self.result, BaseException):
            raise self.result
        if self.result is not None:
            return self.result
        return [
            [RewardTerm(name="words", score=float(len(t.turns)), weight=self.weight)] for t in trajectories
        ]


def test_a_scorer_adds_terms_after_the_environments_own():
    (group,) = play("Echo", scorers=[Words(weight=0.5)])
    assert isinstance(Words(), Scorer)
    assert [[t.name for t in member.reward_terms] for member in group] == [["said", "words"]] * 3
    assert [member.reward for member in group] == [3.0 + 1.5] * 3


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (RuntimeError("x"), "scorer_error"),
        (TimeoutError(), "scorer_timeout"),
        (asyncio.CancelledError(), "scorer_error"),
        (EndpointError("503"), "judge_failure"),
        ([[]], "scorer_error"),
        (3, "scorer_error"),
        ([[RewardTerm(name="words", score=math.nan)]] * 3, "scorer_error"),
        ([[1.0]] * 3, "scorer_error"),
        ([None] * 3, "scorer_error"),
    ],
)
def test_a_scorer_that_fails_leaves_its_term_unscored(result, kind):
    (group,) = play("Echo", scorers=[Words(result=result)])
    assert scores(group, "words") == [None] * 3
    assert kinds(group, "words") == [kind] * 3
    assert [member.reward for member in group] == [None] * 3
    assert scores(group, "said") == [3.0] * 3, "what the environment said stays"


def test_a_failing_scorer_of_weight_zero_costs_nothing():
    (group,) = play("Echo", scorers=[Words(weight=0.0, result=RuntimeError("x"))])
    assert [member.reward for member in group] == [3.0] * 3


def test_a_scorer_that_cannot_work_at_all_ends_the_rollout():
    with pytest.raises(ConfigError, match="no key"):
        play("Echo", scorers=[Words(result=ConfigError("no key"))])


def test_failed_members_are_not_shown_and_get_no_term():
    def script(prompt, key):
        if key.sample_index == 1:
            raise RuntimeError("this one fails")
        return "x"

    words = Words()
    (group,) = play("Echo", scorers=[words], script=script)
    assert words.seen == [[0, 2]]
    assert scores(group, "words") == [3.0, "none", 3.0]
    assert group.trajectories[1].failure is not None


def test_a_later_scorer_does_not_see_what_an_earlier_one_excluded():
    @reward(weight=0.0)
    def sane(trajectory):
        return Excluded("broken") if trajectory.sample_index == 0 else 1.0

    words = Words()
    (group,) = play("Echo", scorers=[RewardScorer(sane), words])
    assert words.seen == [[1, 2]]
    assert [member.usable for member in group] == [False, True, True]


def test_a_reward_on_a_plain_function_scores_after_the_episode():
    seen = []

    @reward(weight=2.0)
    async def brief(task, answer, messages, *, trajectory, turn, stop_reason, action, tool_records):
        seen.append((answer, action, messages[-1]["role"], turn, str(stop_reason), tool_records))
        if trajectory.sample_index == 1:
            return Unscored("lost", kind="judge_failure")
        return Score(0, cause="unparsed") if trajectory.sample_index else {"a": 1, "b": 0.5}

    (group,) = play("Echo", scorers=[RewardScorer(brief)])
    found = [[(t.name, t.score, t.weight, t.cause) for t in m.reward_terms[1:]] for m in group]
    assert found == [
        [("brief/a", 1.0, 2.0, None), ("brief/b", 0.5, 2.0, None)],
        [("brief", None, 2.0, None)],
        [("brief", 0.0, 2.0, "unparsed")],
    ]
    answer, action, *rest = seen[0]
    assert (answer, action.endswith("</think>x")) == ("x", True)
    assert rest == ["assistant", 2, "stop", ()]


def test_one_raising_member_leaves_the_others_scored():
    @reward
    def odd(trajectory):
        return 1 / trajectory.sample_index

    (group,) = play("Echo", scorers=[RewardScorer(odd)])
    assert scores(group, "odd") == [None, 1.0, 0.5]


def test_a_reward_of_a_group_is_a_scorer_too():
    @reward(at="group")
    def different(answers):
        return [answers.count(answer) == 1 for answer in answers]

    (group,) = play("Echo", scorers=[RewardScorer(different)])
    assert scores(group, "different") == [1.0] * 3


def test_a_reward_that_a_scorer_cannot_be_is_refused():
    with pytest.raises(RewardDefinitionError, match="scores steps"):
        RewardScorer(reward(at="step")(lambda answer: 1))
    with pytest.raises(RewardDefinitionError, match="asks for 'rng'"):
        RewardScorer(reward(lambda rng: 1))


@reward
def named(answer):
    """For the dotted path below."""
    return len(answer)


class Made(Words):
    pass


def test_a_config_names_scorers_by_dotted_path():
    assert isinstance(load_scorer(f"{__name__}:named"), RewardScorer)
    assert isinstance(load_scorer(f"{__name__}.Made"), Made)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("named", "expected a dotted path such as"),
        ("no_such_module:x", "cannot be imported"),
        (f"{__name__}:nam", "Did you mean 'named'"),
        (f"{__name__}:play", "must be a function with @reward or have"),
        (f"{__name__}:Task", "cannot be made without arguments"),
    ],
)
def test_a_path_that_is_no_scorer_is_refused(path, message):
    with pytest.raises(ConfigError, match=message):
        load_scorer(path)


def test_episodes_are_reported_once_and_complete():
    reported = []
    groups = play(groups=3, on_episode=reported.append, scorers=[Words()])
    assert sorted((t.group_id, t.sample_index) for t in reported) == [
        (group.group_id, index) for group in groups for index in range(3)
    ]
    assert all(t in group.trajectories for t in reported for group in groups if group.group_id == t.group_id)
    assert all([term.name for term in t.reward_terms][-2:] == ["longest", "words"] for t in reported)


def test_a_single_episode_is_a_group_of_one():
    (plan,) = plans("Ranked")
    with CountingPool() as envs:
        trajectory = asyncio.run(play_episode(plan, settings(SpySampler(longer)), envs=envs))
    assert [t.name for t in trajectory.reward_terms] == ["pace", "pace", "longest"]


def test_a_slow_scorer_stops_no_other_episode():
    """The second group ends although the scorer of the first waits for it."""
    second = asyncio.Event()

    class Waiting(Words):
        async def score(self, task, trajectories):
            if trajectories[0].group_id == (0, 0):
                await second.wait()
            else:
                second.set()
            return [[] for _ in trajectories]

    shared = replace(settings(SpySampler(longer)), scorers=[Waiting()], scorer_timeout_s=30.0)

    async def run():
        with CountingPool() as envs:
            return await play_groups(plans("Echo", 2, 2), shared, envs=envs, max_concurrent=1)

    groups = asyncio.run(asyncio.wait_for(run(), 20))
    assert [member.reward for group in groups for member in group] == [3.0] * 4


def test_cancelling_a_rollout_cancels_its_scorers():
    cancelled = asyncio.Event()

    class Endless(Words):
        async def score(self, task, trajectories):
            started.set()
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()

    started = asyncio.Event()
    shared = replace(settings(SpySampler(longer)), scorers=[Endless()])

    async def run():
        with CountingPool() as envs:
            task = asyncio.create_task(play_groups(plans("Echo", 1, 2), shared, envs=envs))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return envs.made, envs.closed

    made, closed = asyncio.run(run())
    assert cancelled.is_set()
    assert made >= closed


def test_an_environment_with_rewards_of_groups_only_is_scored():
    class Only(TextEnv):
        def tasks(self):
            return [{"n": 1}]

        def start(self):
            return "?"

        @reward(at="group")
        def share(self, answers):
            return [1.0 / len(answers)] * len(answers)

    ENVS["Only"] = Only
    (group,) = play("Only", size=4)
    assert [member.reward for member in group] == [0.25] * 4
