"""Scorers, judges and replaced rewards in whole runs, and what peers got wrong there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import gymnasium
import pytest
from playground import CountingPool, SpySampler, plans, settings
from scripted_server import ScriptedServer, chat_answer

from hyperrl.agents import RewardScorer, play_groups
from hyperrl.causes import count_causes
from hyperrl.cli.report import print_causes, print_rollout
from hyperrl.envs import Endpoint, Judge, make_env, reward
from hyperrl.errors import ConfigError
from hyperrl.store import read_trajectories
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig
from hyperrl.train.metrics import find_metric
from hyperrl.train.statistics import describe_outcomes
from hyperrl.wiring.display import Silent
from hyperrl.wiring.preflight import check_run
from hyperrl.wiring.training import run_training

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rewards.md"


def block(title: str) -> str:
    """The first Python block below a heading of the page on rewards."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


def test_a_reward_is_replaced_in_at_most_fifteen_lines():
    code = block("Replace the reward of an environment")
    lines = [line for line in code.splitlines() if line.strip()]
    assert 5 < len(lines) <= 15
    exec(compile(code, str(PAGE), "exec"), {"__name__": "my_rewards"})
    try:
        ours, theirs = make_env("hyperrl/GSM8K-v0"), make_env("my/MentionedGSM8K-v0")
        scores = []
        for env in (ours, theirs):
            env.reset(options={"task": 0})
            scores.append(env.step(f"Perhaps {env.task['gold']}, who knows.")[1])
        assert scores == [0.0, 1.0]
        assert theirs.max_episode_steps == ours.max_episode_steps
    finally:
        gymnasium.registry.pop("my/MentionedGSM8K-v0")


def judged(server, groups=1, size=4):
    endpoint = Endpoint(server.url, retries=0, timeout_s=5.0)
    judge = Judge(endpoint=endpoint, model="m", rubric="Is it right?", attempts=1)

    @reward(weight=2.0)
    async def good(task, answer):
        return await judge.score(answer, question=task["start"])

    async def play():
        scored = settings(SpySampler(lambda _, key: str(key.sample_index)), scorers=[RewardScorer(good)])
        with CountingPool() as envs:
            found = await play_groups(plans("Echo", groups, size), scored, envs=envs)
        await endpoint.aclose()
        return found

    return asyncio.run(play())


def verdicts(path, body):
    """Say yes to even answers, break down at 1, babble at 3."""
    prompt = body["messages"][0]["content"]
    marker = re.search(r"VERDICT (\w+): <", prompt)[1]
    answer = prompt.split(f"{marker} ANSWER\n")[1][0]
    if answer == "1":
        return 503, "overloaded"
    return 200, chat_answer(
        "hm" if answer == "3" else f"VERDICT {marker}: {'yes' if answer == '0' else 'no'}"
    )


def test_a_judge_outage_is_unscored_and_shifts_no_other_member():
    """An outage that became 0, and one exception that shifted the rewards of a batch, were real."""
    with ScriptedServer(verdicts) as server:
        (group,) = judged(server)
    assert [member.reward for member in group] == [3.0 + 2.0, None, 3.0, None]
    assert [len(member.reward_terms) for member in group] == [2] * 4
    batch = Algorithm(AlgorithmConfig()).prepare([group])
    assert batch.rewards.tolist() == [5.0, 3.0]
    assert [key.sample_index for key in batch.episodes] == [0, 2]
    assert batch.metrics["episodes/excluded/judge_failure"] == 2


def test_the_report_names_every_cause(capsys):
    with ScriptedServer(verdicts) as server:
        groups = judged(server)
    members = [member for group in groups for member in group]
    assert count_causes(members, success=5.0) == {"right": 1, "wrong": 1, "judge_failure": 2}
    metrics = describe_outcomes(groups, success=5.0)
    assert metrics == {
        "episodes/causes/right": 1.0,
        "episodes/causes/wrong": 1.0,
        "episodes/causes/judge_failure": 2.0,
    }
    assert all(find_metric(name) for name in metrics)
    print_rollout(members, success=5.0)
    assert "4 episodes: right 25% (1), wrong 25% (1), judge failure 50% (2)" in capsys.readouterr().out
    print_causes({})
    assert capsys.readouterr().out == ""


GSM8K = ("hyperrl/GSM8K-v0", "I think it is {gold}.")


@pytest.mark.parametrize(
    ("env_id", "answer", "cause"),
    [
        (*GSM8K, "unparsed"),
        ("hyperrl/GSM8K-v0", "#### 123456", None),
        ("hyperrl/Countdown-v0", "no idea", "unparsed"),
        ("hyperrl/Countdown-v0", "1 + 1", None),
        ("hyperrl/SortDigits-v0", "", "unparsed"),
        ("hyperrl/SortDigits-v0", "12", None),
        ("hyperrl/ReverseText-v0", " ", "unparsed"),
    ],
)
def test_our_environments_say_where_no_answer_could_be_read(env_id, answer, cause):
    """A number that is only mentioned scored elsewhere; here it is no answer."""
    env = make_env(env_id)
    env.reset(options={"task": 0})
    gold = env.task["gold"] if "{gold}" in answer else ""
    _, value, _, _, info = env.step(answer.replace("{gold}", str(gold)))
    assert value == 0.0
    assert next(iter(info.get("causes", {}).values()), None) == cause


@reward(weight=0.5)
def first_letter(answer):
    """Differs by answer, so that there is something to learn from."""
    return sum(map(ord, answer)) % 5 / 5


@reward(at="group")
def rare(answers):
    return [1.0 / answers.count(answer) for answer in answers]


SCORERS = [f"{__name__}:first_letter", f"{__name__}.rare"]


def test_training_learns_from_what_scorers_add(make_run):
    config = make_run(env={"scorers": SCORERS}, iterations=1)
    run_training(config, Silent())
    played = list(read_trajectories(config.run.dir / "trajectories"))
    assert len(played) == 12
    names = ["correct", "format", "first_letter", "rare"]
    assert all([term.name for term in trajectory.reward_terms] == names for trajectory in played)
    lines = (config.run.dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    trained = next(m for m in map(json.loads, lines) if "critic/rewards/mean" in m)
    mean = sum(trajectory.reward for trajectory in played) / len(played)
    assert trained["critic/rewards/mean"] == pytest.approx(mean)
    outcomes = {name: value for name, value in trained.items() if name.startswith("episodes/causes/")}
    assert sum(outcomes.values()) == 12
    evaluated = next(m for m in map(json.loads, lines) if "validation/sampled_success" in m)
    assert sum(v for n, v in evaluated.items() if n.startswith("validation/causes/")) == 6


def test_a_scorer_that_does_not_exist_is_refused_before_the_start(make_run):
    with pytest.raises(ConfigError, match="Did you mean 'rare'"):
        check_run(make_run(env={"scorers": [f"{__name__}.rar"]}))
