"""From groups to a train batch."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from training_cases import random_groups, trajectory, turn

from hyperrl.errors import TrajectoryError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig
from hyperrl.train.metrics import find_metric
from hyperrl.train.statistics import describe_play
from hyperrl.trajectory import Event, Failure, Group, StopReason, ToolRecord, TruncationReason


def prepare(groups, seed=0, **config):
    return Algorithm(AlgorithmConfig.model_validate(config), seed=seed).prepare(groups)


def group(rewards, position=0, action=(5, 6), **fields):
    members = [
        trajectory([turn([1, 2], action)], reward=reward, group=(0, position), sample=i, **fields)
        for i, reward in enumerate(rewards)
    ]
    return Group((0, position), tuple(members))


def test_a_hand_computed_batch():
    first, second = group([1.0, 0.0], 0, action=[5]), group([0.0, 2.0, 1.0], 1, action=[5, 6])
    batch = prepare([first, second], scale="none", aggregation="seq_mean_token_mean")
    (minibatch,) = batch.minibatches
    assert minibatch.tokens.trajectory.tolist() == [0, 1, 2, 2, 3, 3, 4, 4]
    assert minibatch.advantages.tolist() == [0.5, -0.5, -1, -1, 1, 1, 0, 0]
    assert minibatch.weights.tolist() == [0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert batch.rewards.tolist() == [1, 0, 0, 2, 1]
    assert batch.episodes[3] == ((0, 1), 1)
    scaled = prepare([first])
    half = 0.5 / (math.sqrt(0.5) + 1e-6)
    assert scaled.minibatches[0].advantages.tolist() == pytest.approx([half, -half])


def test_an_unscored_episode_leaves_its_group_alone():
    # TRL 5773: one reward that is None made the whole group's statistics NaN
    batch = prepare([group([1.0, None, 0.0, 1.0])], scale="none")
    assert batch.rewards.tolist() == [1, 0, 1]
    assert np.unique(batch.minibatches[0].advantages).tolist() == pytest.approx([-2 / 3, 1 / 3])
    assert batch.metrics["episodes/excluded/reward_error"] == 1


def test_episodes_of_an_endpoint_are_refused():
    foreign = [trajectory([turn([], [], sampled=False)], reward=r, sample=i) for i, r in enumerate((1, 0))]
    with pytest.raises(TrajectoryError, match="played by a remote endpoint or a script"):
        prepare([Group(foreign[0].group_id, tuple(foreign))])


def test_a_group_of_one_is_dropped_and_counted():
    batch = prepare([group([1.0, None], 0), group([1.0, 0.0], 1), group([], 2)])
    assert {key.group_id for key in batch.episodes} == {(0, 1)}
    assert batch.metrics["groups/dropped"] == 2
    assert batch.metrics["groups/kept"] == 1
    assert batch.metrics["episodes/excluded/small_group"] == 1
    assert batch.metrics["episodes/excluded/reward_error"] == 1


def test_a_failure_excludes_unless_it_says_otherwise():
    lost = Failure(kind="tool_timeout", stage="tool", reason="made up")
    kept = Failure(kind="max_turns", stage="program", reason="made up", exclude=False)
    members = (*group([0.0, 1.0]).trajectories, trajectory([turn([1], [2])], sample=2, failure=lost))
    batch = prepare([Group((0, 0), (*members, trajectory([turn([1], [2])], sample=3, failure=kept)))])
    assert [key.sample_index for key in batch.episodes] == [0, 1, 3]
    assert batch.metrics["episodes/excluded/tool_timeout"] == 1
    assert batch.metrics["episodes/failed"] == 2


def test_equal_rewards_give_exactly_zero():
    batch = prepare([group([10000.1] * 6)])
    assert not batch.minibatches[0].advantages.any()
    assert batch.metrics["groups/zero_std_fraction"] == 1


def test_statistics_count_episodes_not_segments():
    # the first episode has three segments; its reward still counts once
    branches = [turn([1], [2])] + [turn([i], [4], parent=0) for i in range(3)]
    episodes = (
        trajectory(branches, reward=1.0),
        trajectory([turn([1], [2])], reward=0.0, sample=1),
    )
    batch = prepare([Group((0, 0), episodes)], scale="none", aggregation="seq_mean_token_mean")
    (minibatch,) = batch.minibatches
    assert minibatch.advantages.tolist() == [0.5] * 4 + [-0.5]
    assert minibatch.weights.tolist() == [0.125] * 4 + [0.5]
    assert batch.metrics["response_length/mean"] == 2.5
    assert batch.metrics["critic/rewards/mean"] == 0.5


def test_an_episode_is_never_split_between_minibatches():
    groups = random_groups(0, groups=4, size=5)
    batch = prepare(groups, minibatches=3, seed=1)
    held = [set(minibatch.tokens.trajectory.tolist()) for minibatch in batch.minibatches]
    assert sorted(index for part in held for index in part) == list(range(20))
    assert sorted(map(len, held)) == [6, 7, 7]
    again = prepare(groups, minibatches=3, seed=1)
    for one, two in zip(batch.minibatches, again.minibatches, strict=True):
        assert np.array_equal(one.tokens.trajectory, two.tokens.trajectory)
    other = prepare(groups, minibatches=3, seed=2)
    assert held != [set(minibatch.tokens.trajectory.tolist()) for minibatch in other.minibatches]


def test_another_batch_has_another_order():
    moved = [_at(group, (1, group.group_id[1])) for group in random_groups(0)]
    one, two = (prepare(groups, minibatches=2) for groups in (random_groups(0), moved))
    assert not np.array_equal(one.minibatches[0].tokens.trajectory, two.minibatches[0].tokens.trajectory)


def _at(group, group_id):
    members = (
        trajectory(episode.turns, reward=episode.reward, group=group_id, sample=episode.sample_index)
        for episode in group
    )
    return Group(group_id, tuple(members))


def test_no_usable_episode_gives_an_empty_batch():
    for groups in ([], [group([None, None])]):
        batch = prepare(groups)
        assert batch.minibatches == ()
        assert batch.metrics["episodes/used"] == 0


def test_episodes_without_a_sampled_token_are_counted():
    # they are scored, so their group is compared with them; there is only nothing to learn from
    episodes = (
        trajectory([turn([1], [2])], reward=1.0),
        trajectory([turn([1], [2], sampled=False)], reward=0.0, sample=1),
    )
    batch = prepare([Group((0, 0), episodes)], scale="none")
    assert batch.minibatches[0].advantages.tolist() == [0.5]
    assert batch.metrics["episodes/without_tokens"] == 1


def test_metrics_describe_the_batch_and_have_rows():
    cut = [turn([1, 2, 3], [4], stop_reason=StopReason.LENGTH), turn([1], [2, 3], parent=0)]
    members = (trajectory(cut, reward=3.0), trajectory([turn([1], [2])], reward=1.0, sample=1))
    metrics = prepare([Group((0, 0), members)]).metrics
    assert all(find_metric(name) for name in metrics)
    assert metrics["critic/rewards/mean"] == 2
    assert metrics["critic/rewards/max"] == 3
    assert metrics["prompt_length/mean"] == 2
    assert metrics["response_length/max"] == 3
    assert metrics["response_length/clip_ratio"] == 0.5
    assert metrics["episodes/turns/mean"] == 1.5
    assert metrics["rollout/new_root_rate"] == 0
    assert metrics["perf/total_num_tokens"] == 9


def test_what_was_played_is_described_whether_learned_from_or_not():
    tools = [
        ToolRecord(call_id=str(i), name="f", arguments="", status=s, result="") for i, s in enumerate("aab")
    ]
    lost = trajectory([turn([1], [2]), turn([1, 3], [4, 5])], reward=None)
    lost = dataclasses.replace(lost, events=(Event(turn=0, observation="", tool_calls=tuple(tools)),))
    cut = trajectory([turn([1], [2])], sample=1)
    cut = dataclasses.replace(cut, truncated=True, truncation_reason=TruncationReason.MAX_TURNS)
    metrics = describe_play([Group((0, 0), (lost, cut))])
    assert all(find_metric(name) for name in metrics)
    assert metrics["rollout/tool_calls/a"] == 2
    assert metrics["rollout/tool_calls/b"] == 1
    assert metrics["rollout/new_root_rate"] == pytest.approx(1 / 3)
    assert metrics["rollout/delivered_fraction"] == 1
    assert metrics["episodes/truncated_fraction"] == 0.5
    assert metrics["response_length/max"] == 3
    assert describe_play([]) == {"episodes/failed": 0}


def test_what_dynamic_sampling_leaves_out_is_counted_and_described():
    played = [group([1.0, 0.0], 0), group([1.0, 1.0], 1), group([1.0, None], 2), group([None, None], 3)]
    algorithm = Algorithm(AlgorithmConfig(name="dapo"))
    learned = [one for one in played if algorithm.has_signal(one)]
    assert learned == played[:1]
    metrics = algorithm.prepare(learned, played=played).metrics
    assert all(find_metric(name) for name in metrics)
    assert metrics["groups/kept"] == metrics["groups/without_signal"] == 1
    assert metrics["groups/dropped"] == 2
    assert metrics["episodes/used"] == 2
    assert metrics["episodes/excluded/reward_error"] == 3
    assert metrics["episodes/excluded/small_group"] == 1
    assert metrics["perf/total_num_tokens"] == 8 * 4
