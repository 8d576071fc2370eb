"""Estimators by name: values from reports about other trainers, and references written token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import random_groups, trajectory, turn

from hyperrl.errors import InvariantError
from hyperrl.train.advantages import (
    ADVANTAGES,
    AdvantageInput,
    Advantages,
    compute_gae,
    compute_returns_to_go,
    register_advantage,
    whiten,
)
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batch_scores import BatchScores, estimate_from_scores
from hyperrl.train.config import AlgorithmConfig
from hyperrl.trajectory import Group, RewardTerm

NAMES = ["batch", "gae", "group", "reinforce_pp", "reinforce_pp_baseline", "return"]


def prepare(groups, **config):
    return Algorithm(AlgorithmConfig.model_validate(config)).prepare(groups)


def make_input(rewards, groups, counts, *, values=None, bootstrap=None):
    """Episodes whose reward stands at their last token."""
    episode = np.repeat(np.arange(len(counts)), counts)
    placed = np.zeros(len(episode))
    placed[np.cumsum(counts) - 1] = rewards
    return AdvantageInput(
        rewards=np.array(rewards, np.float64),
        groups=np.array(groups),
        episode=episode,
        token_rewards=placed,
        values=values,
        bootstrap=bootstrap,
    )


def masked(mask, rewards, *, gamma):
    """Returns of one row with a mask, in the padded layout of the reports; 0 where it is masked."""
    chosen = np.array(mask, bool)
    found = np.zeros(len(mask))
    found[chosen] = compute_returns_to_go(
        np.array(rewards, np.float64)[chosen], np.zeros(int(chosen.sum()), np.int64), gamma=gamma
    )
    return found.tolist()


def test_the_registered_names():
    assert set(NAMES) <= set(ADVANTAGES)


def test_what_was_read_between_two_actions_does_not_break_the_return():
    # verl 7278: mask [1,1,0,0,1,1] and a last reward of 1 gave the first two tokens 0
    assert masked([1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1], gamma=1.0) == [1, 1, 0, 0, 1, 1]


def test_what_was_read_between_two_actions_does_not_discount():
    # verl PR 6376: gamma 0.5, R [0,0,1], mask [1,0,1]: the first return is 0.5, not 0
    assert masked([1, 0, 1], [0, 0, 1], gamma=0.5) == [0.5, 0, 1]


def test_gae_runs_over_actions_only_and_keeps_a_reward_behind_the_last():
    # miles PR 1827: an episode that ends in a tool's answer lost its reward, or had it attenuated
    turns = [turn([1], [2, 3]), turn([4, 5, 6], [7], parent=0), turn([8, 9], [], parent=1)]
    groups = [Group((0, 0), (trajectory(turns, reward=1.0), trajectory([turn([1], [2])], sample=1)))]
    (minibatch,) = prepare(groups, advantage="gae", gamma=0.9, lam=0.5).minibatches
    assert minibatch.token_rewards.tolist() == [0, 0, 1, 0]
    found = compute_gae(
        AdvantageInput(
            rewards=np.array([1.0, 0.0]),
            groups=np.zeros(2, np.int64),
            episode=minibatch.tokens.trajectory,
            token_rewards=minibatch.token_rewards,
            values=np.zeros(4),
        ),
        gamma=0.9,
        lam=0.5,
    )
    assert found.advantages.tolist() == pytest.approx([0.45**2, 0.45, 1, 0])


def plain_gae(rewards, values, bootstrap, gamma, lam):
    """One episode, one token at a time."""
    result, advantage, following = [], 0.0, bootstrap
    for reward, value in reversed(list(zip(rewards, values, strict=True))):
        advantage = reward + gamma * following - value + gamma * lam * advantage
        following = value
        result.insert(0, advantage)
    return result


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), gamma=st.sampled_from([1.0, 0.9]), lam=st.sampled_from([1.0, 0.95, 0.0]))
def test_gae_is_the_plain_recursion_of_each_episode(seed, gamma, lam):
    rng = np.random.default_rng(seed)
    episode = rng.permutation(np.repeat(np.arange(5), rng.integers(0, 6, 5)))  # interleaved, some empty
    rewards, values, bootstrap = (rng.normal(size=n) for n in (len(episode), len(episode), 5))
    batch = AdvantageInput(
        rewards=np.bincount(episode, rewards, minlength=5),
        groups=np.zeros(5, np.int64),
        episode=episode,
        token_rewards=rewards,
        values=values,
        bootstrap=bootstrap,
    )
    found = compute_gae(batch, gamma=gamma, lam=lam)
    for index in range(5):
        own = episode == index
        expected = plain_gae(rewards[own], values[own], bootstrap[index], gamma, lam)
        assert found.advantages[own].tolist() == pytest.approx(expected, abs=1e-12)
        assert found.returns[own].tolist() == pytest.approx(expected + values[own], abs=1e-12)


def test_only_an_episode_with_a_bootstrap_is_worth_more_than_its_reward():
    # TRL PR 1536: PPO took every episode for terminated
    batch = make_input([0.0, 0.0], [0, 1], [2, 2], values=np.zeros(4), bootstrap=np.array([0.0, 8.0]))
    assert compute_gae(batch, gamma=0.5, lam=1.0).returns.tolist() == [0, 0, 2, 4]


def test_gae_needs_values():
    with pytest.raises(InvariantError, match="needs a critic"):
        ADVANTAGES.find("gae")(make_input([1.0], [0], [1]), AlgorithmConfig(advantage="gae"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 0.1, 10000.1, -3.3])
def test_equal_rewards_of_a_whole_batch_say_nothing(name, value):
    # six rewards of 10000.1 have an advantage of -0.9 in float32
    values = np.zeros(12) if name == "gae" else None
    batch = make_input([value] * 6, [0, 0, 0, 1, 1, 1], [1, 3, 2, 1, 4, 1], values=values)
    found = ADVANTAGES.find(name)(batch, AlgorithmConfig(advantage=name, whiten=True)).advantages
    assert found.tolist() == [value if name == "return" else 0] * 12


@pytest.mark.parametrize(
    "config",
    [
        {"advantage": "group"},
        {"advantage": "group", "scale": "none"},
        {"advantage": "group", "scale": "none", "leave_one_out": True},
        {"name": "rloo"},
        {"name": "dr_grpo", "horizon": 8},
        {"advantage": "reinforce_pp_baseline"},
    ],
    ids=str,
)
def test_a_group_of_equal_rewards_is_exactly_zero_beside_one_that_is_not(config):
    equal = [trajectory([turn([1], [2] * (i + 1))], reward=0.7, sample=i) for i in range(4)]
    other = [
        trajectory([turn([1], [2] * (i + 1))], reward=float(i == 3), group=(0, 1), sample=i) for i in range(4)
    ]
    (minibatch,) = prepare([Group((0, 0), tuple(equal)), Group((0, 1), tuple(other))], **config).minibatches
    silent = minibatch.tokens.trajectory < 4
    assert minibatch.advantages[silent].tolist() == [0] * 10
    assert minibatch.advantages[~silent].all()


@pytest.mark.parametrize("config", [{}, {"scale": "none", "leave_one_out": True}, {"name": "rloo"}], ids=str)
def test_a_group_of_one_never_learns_from_its_raw_reward(config):
    # verl gives a lone episode its reward as advantage
    lone = Group((0, 0), (trajectory([turn([1], [2])], reward=0.7),))
    pair = Group(
        (0, 1), tuple(trajectory([turn([1], [2])], reward=float(i), group=(0, 1), sample=i) for i in (0, 1))
    )
    batch = prepare([lone, pair], **config)
    assert [key.group_id for key in batch.episodes] == [(0, 1), (0, 1)]
    assert batch.metrics["episodes/excluded/small_group"] == 1
    with pytest.raises(InvariantError, match="at least 2"):
        ADVANTAGES.find("group")(make_input([0.7], [0], [1]), AlgorithmConfig())


def test_an_empty_answer_keeps_its_reward_in_its_group():
    # verl PR 6310: its reward stood at padding and was lost, so that its equal peers had an advantage
    empty = trajectory([turn([1], [])], reward=1.0)
    peers = [trajectory([turn([1], [2, 3])], reward=1.0, sample=i) for i in (1, 2)]
    (minibatch,) = prepare([Group((0, 0), (empty, *peers))]).minibatches
    assert minibatch.advantages.tolist() == [0] * 4


def test_batch_normalisation_compares_episodes_not_tokens():
    batch = make_input([1.0, 0.0, 0.0], [0, 0, 1], [5, 1, 1])
    found = ADVANTAGES.find("batch")(batch, AlgorithmConfig(advantage="batch")).advantages
    std = math.sqrt(1 / 3 + 1e-8)
    assert found.tolist() == pytest.approx([2 / 3 / std] * 5 + [-1 / 3 / std] * 2)


def test_a_single_value_and_none_are_whitened_to_zero():
    assert whiten(np.array([3.0])).tolist() == [0]
    assert whiten(np.zeros(0)).tolist() == []


def test_a_reward_reaches_the_turns_of_every_path():
    # a history that was rewritten: the main path begins at turn 1, yet turn 0 was drawn before it
    turns = [turn([1], [2, 3]), turn([4], [5])]
    episodes = (trajectory(turns, reward=1.0), trajectory([turn([1], [2])], sample=1))
    (minibatch,) = prepare([Group((0, 0), episodes)], advantage="return", gamma=0.5).minibatches
    assert minibatch.tokens.token_ids.tolist() == [5, 2, 3, 2]  # the main path comes first
    assert minibatch.token_rewards.tolist() == [1, 0, 0, 0]
    assert minibatch.advantages.tolist() == [1, 0.25, 0.5, 0]


def test_a_reward_of_a_step_reaches_only_what_was_drawn_before_it():
    turns = [turn([1], [2, 3]), turn([4], [5], parent=0)]
    episode = trajectory(turns, reward=1.0).with_terms(RewardTerm(name="step", score=10.0, turn=0))
    groups = [Group((0, 0), (episode, trajectory([turn([1], [2])], sample=1)))]
    (minibatch,) = prepare(groups, advantage="return").minibatches
    assert minibatch.advantages.tolist() == [11, 11, 1, 0]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gae"])
def test_minibatches_do_not_change_a_single_advantage(name):
    groups = random_groups(3, groups=4)
    whole, split = (prepare(groups, advantage=name, minibatches=n) for n in (1, 3))
    found: dict[tuple[int, int, int], float] = {}
    for minibatch in split.minibatches:
        t = minibatch.tokens
        places = zip(t.trajectory.tolist(), t.turn.tolist(), t.position.tolist(), strict=True)
        found |= dict(zip(places, minibatch.advantages.tolist(), strict=True))
    t = whole.minibatches[0].tokens
    places = zip(t.trajectory.tolist(), t.turn.tolist(), t.position.tolist(), strict=True)
    assert [found[place] for place in places] == whole.minibatches[0].advantages.tolist()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda b: b.rewards, "got ndarray"),
        (lambda b: Advantages(advantages=b.rewards), r"each of \d+ loss tokens, got shape \(12,\)"),
        (lambda b: Advantages(advantages=b.spread(b.rewards) * math.nan), "not finite"),
        (lambda b: Advantages(advantages=b.spread(b.rewards), returns=b.rewards), r"returns.*shape"),
    ],
)
def test_what_an_estimator_of_your_own_returns_is_checked(result, message, monkeypatch):
    monkeypatch.setattr(ADVANTAGES, "_functions", dict(ADVANTAGES._functions))
    register_advantage("own")(lambda batch, config: result(batch))
    with pytest.raises(InvariantError, match=message):
        prepare(random_groups(0), advantage="own")


def test_chance_alone_leaves_small_groups_without_signal():
    # CoursIA 10603: with a success rate of 0.18, 70 % of the pairs are equal, and 20 % of groups of eight
    rng = np.random.default_rng(0)
    for size, expected in ((2, 0.18**2 + 0.82**2), (8, 0.18**8 + 0.82**8)):
        groups = [
            Group(
                (0, g),
                tuple(
                    trajectory([turn([1], [2])], reward=float(rng.random() < 0.18), group=(0, g), sample=i)
                    for i in range(size)
                ),
            )
            for g in range(300)
        ]
        assert prepare(groups).metrics["groups/zero_std_fraction"] == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize(
    ("advantage", "expected"), [("return", [0.7, 0.8, 0.5]), ("group", [0.1, 0.1, -0.1])]
)
def test_a_kl_in_the_reward_is_taken_off_every_token(advantage, expected):
    episodes = (
        trajectory([turn([1], [2, 3])], reward=1.0),
        trajectory([turn([1], [2])], reward=1.0, sample=1),
    )
    config = AlgorithmConfig(advantage=advantage, scale="none", kl={"place": "reward", "coef": 0.1})
    batch = Algorithm(config).prepare([Group((0, 0), episodes)])
    assert batch.minibatches[0].advantages is None  # they need the reference first
    old, reference = torch.tensor([-1.0, -1.0, -2.0]).double(), torch.tensor([-2.0, -3.0, -7.0]).double()
    scores = BatchScores(old=[old], reference=[reference])  # k1 is 1 and 2, and 5
    found = estimate_from_scores(batch, scores, config)
    assert found.minibatches[0].advantages.tolist() == pytest.approx(expected)
    assert found.metrics["actor/reward_kl_penalty"] == pytest.approx(8 / 3)
    assert batch.rewards.tolist() == [1, 1]
