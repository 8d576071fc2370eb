"""Where rewards stand among the tokens, and what a long answer costs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from training_cases import trajectory, turn

from hyperrl.train.algorithms import Algorithm
from hyperrl.train.algorithms.token_rewards import overlong_penalty, place_rewards
from hyperrl.train.batching import make_loss_tokens, make_segments
from hyperrl.train.config import AlgorithmConfig
from hyperrl.trajectory import Event, Group, RewardTerm


def place(*episodes, penalties=None):
    tokens = make_loss_tokens([s for i, e in enumerate(episodes) for s in make_segments(e, i)])
    zeros = np.zeros(len(episodes)) if penalties is None else np.array(penalties)
    return place_rewards(tokens, episodes, zeros).tolist()


def stepped(*turns):
    """Events of turns whose action reached the environment, and a last observation."""
    events = [Event(turn=t, observation="", action="", stepped=True) for t in turns]
    return (*events, Event(turn=None, observation="the end"))


def test_the_final_reward_stands_at_the_last_action_token_of_the_answer_turn():
    # the last event is an observation, and a turn that never reached the environment comes after the answer
    turns = [turn([1], [2, 3]), turn([4], [5, 6], parent=0), turn([7], [8], parent=1)]
    episode = dataclasses.replace(
        trajectory(turns, reward=2.0),
        events=stepped(0, 1),
        final_context_ids=np.array([9, 9], np.int32),
    )
    assert episode.answer_turn == 1
    assert place(episode) == [0, 0, 0, 2, 0]


def test_the_reward_of_a_step_stands_at_its_turn_and_weights_count():
    turns = [turn([1], [2, 3]), turn([4], [5], parent=0)]
    terms = (
        RewardTerm(name="step", score=1.0, turn=0),
        RewardTerm(name="format", score=1.0, weight=0.5, turn=1),
        RewardTerm(name="shown", score=7.0, weight=0.0, turn=0),
        RewardTerm(name="answer", score=3.0),
    )
    episode = dataclasses.replace(trajectory(turns), events=stepped(0, 1), reward_terms=terms)
    assert place(episode) == [0, 1, 3.5]
    assert sum(place(episode)) == episode.reward


def test_the_reward_of_a_turn_without_tokens_is_not_lost():
    turns = [turn([1], [2]), turn([3], [4], parent=0, sampled=False), turn([5], [6, 6], parent=1)]
    terms = (RewardTerm(name="step", score=1.0, turn=1), RewardTerm(name="answer", score=2.0))
    episode = dataclasses.replace(trajectory(turns), events=stepped(0, 1), reward_terms=terms)
    assert place(episode) == [0, 0, 3]


def test_a_reward_on_a_side_branch_stands_there():
    branches = [turn([1], [2]), turn([3], [4], parent=0), turn([5], [6], parent=0)]
    terms = (RewardTerm(name="side", score=1.0, turn=1), RewardTerm(name="answer", score=2.0))
    episode = dataclasses.replace(trajectory(branches), reward_terms=terms)
    assert place(episode) == [0, 2, 1]  # the main path, then the branch


def test_penalties_stand_with_the_answer():
    turns = [turn([1], [2]), turn([3], [4, 5], parent=0)]
    episode = dataclasses.replace(trajectory(turns, reward=1.0), events=stepped(0, 1))
    assert place(episode, penalties=[0.25]) == [0, 0, 0.75]


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 0.0), (12, 0.0), (13, 0.125), (16, 0.5), (20, 1.0), (30, 1.0)]
)
def test_the_overlong_penalty_rises_over_the_buffer(length, expected):
    # DAPO eq. 13 with L_max 20 and L_cache 8
    episode = dataclasses.replace(trajectory([turn([1], [2] * length)]), events=stepped(0))
    config = AlgorithmConfig(overlong={"buffer": 8}).overlong
    assert overlong_penalty(episode, config, max_tokens=20) == expected
    doubled = AlgorithmConfig(overlong={"buffer": 8, "penalty": 2.0}).overlong
    assert overlong_penalty(episode, doubled, max_tokens=20) == 2 * expected
    assert overlong_penalty(episode, AlgorithmConfig().overlong, max_tokens=20) == 0


def test_the_overlong_penalty_is_part_of_what_is_compared():
    lengths = (4, 8)
    episodes = tuple(
        dataclasses.replace(trajectory([turn([1], [2] * n)], reward=1.0, sample=i), events=stepped(0))
        for i, n in enumerate(lengths)
    )
    config = AlgorithmConfig(scale="none", overlong={"buffer": 4})
    algorithm = Algorithm(config, max_tokens=8)
    batch = algorithm.prepare([Group((0, 0), episodes)])
    assert batch.rewards.tolist() == [1, 0]
    assert batch.metrics["critic/score/mean"] == 1
    assert batch.metrics["critic/rewards/mean"] == 0.5
    assert batch.minibatches[0].advantages.tolist() == [0.5] * 4 + [-0.5] * 8
    assert not algorithm.has_signal(Group((0, 0), episodes))  # length alone is no reason to keep a group


def test_a_group_that_would_be_dropped_has_no_signal():
    episodes = tuple(trajectory([turn([1], [2])], reward=float(i), sample=i) for i in range(3))
    group = Group((0, 0), episodes)
    assert Algorithm(AlgorithmConfig()).has_signal(group)
    assert not Algorithm(AlgorithmConfig(smallest_group=4)).has_signal(group)
    assert not Algorithm(AlgorithmConfig(name="reinforce")).has_signal(Group((0, 0), episodes[:1]))
