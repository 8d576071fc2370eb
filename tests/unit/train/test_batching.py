"""Flattening, masks, padding and partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import trajectories
from training_cases import random_groups, trajectory, turn

from hyperrl.errors import TrajectoryError
from hyperrl.train.batching import (
    make_loss_tokens,
    make_microbatches,
    make_segments,
    partition_segments,
    split_minibatches,
)


def test_one_path_is_one_segment_with_the_tokens_the_policy_saw():
    episode = trajectory(
        [
            turn([1, 2], [3, 4], logprobs=[-0.5, -0.25]),
            turn([5], [6], parent=0, logprobs=[-2.0], temperature=0.5),
        ]
    )
    (segment,) = make_segments(episode, 7)
    assert segment.trajectory == 7
    assert segment.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert segment.loss_mask.tolist() == [False, False, True, True, False, True]
    assert segment.sampled_mask.tolist() == segment.loss_mask.tolist()
    assert segment.behavior_logprobs.tolist() == [0, 0, -0.5, -0.25, 0, -2.0]
    assert segment.policy_versions.tolist() == [-1, -1, 0, 0, -1, 0]
    assert segment.temperature.tolist() == [1, 1, 1, 1, 1, 0.5]
    assert segment.input_length == 5


def test_a_shared_prefix_is_learned_from_once_on_the_main_path():
    # 0 -> 1 (a branch) and 0 -> 2 (the main path: it holds the last train turn of the seat)
    episode = trajectory([turn([1], [2]), turn([3], [4], parent=0), turn([5], [6], parent=0)])
    main, branch = make_segments(episode)
    assert main.token_ids.tolist() == [1, 2, 5, 6]
    assert main.loss_mask.tolist() == [False, True, False, True]
    assert branch.token_ids.tolist() == [1, 2, 3, 4]
    assert branch.loss_mask.tolist() == [False, False, False, True]
    assert branch.sampled_mask.tolist() == [False, True, False, True]
    assert len(make_loss_tokens([main, branch])) == 3


def test_side_and_context_turns_are_read_but_never_learned_from():
    episode = trajectory(
        [
            turn([1], [2], use="side"),
            turn([1], [2], use="context", sampled=False),
            turn([3], [4], parent=1),
            turn([5], [6], parent=2, use="side"),
        ]
    )
    (segment,) = make_segments(episode)
    assert segment.token_ids.tolist() == [1, 2, 3, 4]
    assert segment.loss_mask.tolist() == [False, False, False, True]
    assert segment.sampled_mask.tolist() == [False, False, False, True]


def test_gold_turns_are_learned_from_only_when_asked():
    episode = trajectory([turn([1], [2, 3], sampled=False)])
    assert make_segments(episode) == []
    (segment,) = make_segments(episode, learn="gold")
    assert segment.loss_mask.tolist() == [False, True, True]
    assert not segment.sampled_mask.any()
    assert make_segments(trajectory([turn([1], [2])]), learn="gold") == []


def test_a_seat_that_answers_the_main_seat_extends_the_main_path():
    episode = trajectory([turn([1], [2]), turn([3], [4], parent=0, policy="judge"), turn([9], [8])])
    paths = [segment.token_ids.tolist() for segment in make_segments(episode)]
    assert paths == [[9, 8], [1, 2, 3, 4]]


def test_a_turn_without_action_gives_no_segment():
    assert make_segments(trajectory([turn([1], [])])) == []
    assert make_segments(trajectory([])) == []


def test_an_action_without_a_prompt_is_refused():
    with pytest.raises(TrajectoryError, match="no context_ids"):
        make_segments(trajectory([turn([], [2])]))


def test_greedy_tokens_are_scored_at_temperature_one():
    (segment,) = make_segments(trajectory([turn([1], [2], temperature=0.0)]))
    assert segment.temperature.tolist() == [1, 1]


def test_the_mask_never_looks_at_ids():
    # pad == eos == 0 everywhere: still exactly the action tokens are learned from
    episode = trajectory([turn([0, 0], [0, 0, 0]), turn([0], [0], parent=0)])
    (segment,) = make_segments(episode)
    assert segment.loss_mask.sum() == 4


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    budget=st.integers(1, 200),
    classes=st.integers(1, 3),
)
def test_a_partition_holds_everything_once_within_the_budget(lengths, budget, classes):
    sizes = np.array(lengths, np.int64)
    kinds = np.arange(len(sizes)) % classes
    parts = partition_segments(sizes, budget, kinds)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(sizes)))
    for part in parts:
        assert len(part) == 1 or len(part) * sizes[part].max() <= budget
        assert len(set(kinds[part].tolist())) == 1
    again = partition_segments(sizes, budget, kinds)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_a_segment_longer_than_the_budget_is_alone():
    parts = partition_segments(np.array([3, 100, 4]), 10)
    assert [part.tolist() for part in parts] == [[1], [2, 0]]


@settings(deadline=None)
@given(seed=st.integers(0, 1000), budget=st.integers(1, 100))
def test_microbatches_predict_every_loss_token_once_from_the_token_before_it(seed, budget):
    episodes = [episode for group in random_groups(seed) for episode in group]
    segments = [segment for i, episode in enumerate(episodes) for segment in make_segments(episode, i)]
    tokens = make_loss_tokens(segments)
    micros = make_microbatches(segments, tokens, budget)
    assert sorted(np.concatenate([m.tokens for m in micros]).tolist()) == list(range(len(tokens)))
    for micro in micros:
        width = micro.input_ids.shape[1]
        for token, place, target in zip(micro.tokens, micro.predictors, micro.targets, strict=True):
            segment = segments[tokens.segment[token]]
            position = tokens.position[token]
            row = micro.input_ids[place // width]
            assert place % width == position - 1
            assert row[:position].tolist() == segment.token_ids[:position].tolist()
            assert target == segment.token_ids[position]


@settings(deadline=None)
@given(count=st.integers(1, 40), parts=st.integers(1, 8), seed=st.integers(0, 9))
def test_minibatches_split_episodes_evenly_and_repeatably(count, parts, seed):
    split = split_minibatches(count, parts, entropy=(seed, 1, 2))
    assert sorted(np.concatenate(split).tolist()) == list(range(count))
    assert max(map(len, split)) - min(map(len, split)) <= 1
    again = split_minibatches(count, parts, entropy=(seed, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(split, again, strict=True))


def test_the_order_of_minibatches_follows_the_seed():
    first = split_minibatches(40, 2, entropy=(0, 0, 0))
    assert not np.array_equal(first[0], split_minibatches(40, 2, entropy=(1, 0, 0))[0])
    assert np.array_equal(split_minibatches(5, 1, entropy=(3,))[0], np.arange(5))


@settings(deadline=None)
@given(trajectories())
def test_any_trajectory_is_learned_from_exactly_once(episode):
    wanted = [t for t in episode.turns if t.use == "train" and t.sampled and len(t.action_ids)]
    try:
        segments = make_segments(episode)
    except TrajectoryError:
        assert any(t.parent is None and not len(t.context_ids) for t in wanted)
        return
    tokens = make_loss_tokens(segments)
    learned = sorted(
        zip(
            tokens.token_ids.tolist(),
            tokens.behavior_logprobs.tolist(),
            tokens.policy_versions.tolist(),
            strict=True,
        )
    )
    expected = sorted(
        entry
        for t in wanted
        for entry in zip(
            t.action_ids.tolist(), t.behavior_logprobs.tolist(), t.policy_versions.tolist(), strict=True
        )
    )
    assert learned == expected
    for segment in segments:
        assert not (segment.loss_mask & ~segment.sampled_mask).any()
