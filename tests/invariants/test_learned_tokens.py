"""What training learns from: sampled tokens of scored episodes, each once, and nothing else."""

import dataclasses
import tempfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import failures, finite_float, identical, trajectories

from hyperrl.store import TrajectoryWriter, read_trajectories
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batching import TrainBatch, make_loss_tokens, make_segments
from hyperrl.train.config import AlgorithmConfig
from hyperrl.trajectory import Failure, Group, RewardTerm, Trajectory

SLOW_DRAWS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
UNSCORED = Failure(kind="reward_error", stage="reward", reason="boom", exclude=False)


def learnable(trajectory: Trajectory) -> bool:
    """Whether every root has a token that can predict the first sampled one, and there are tokens."""
    roots = [turn for turn in trajectory.turns if turn.parent is None]
    own = [turn for turn in trajectory.turns if turn.use == "train"]
    recorded = not own or any(turn.sampled or len(turn.action_ids) for turn in own)
    return recorded and all(len(turn.context_ids) > 0 for turn in roots)


def scored(trajectory: Trajectory, group_id: tuple[int, int], sample: int, score: float) -> Trajectory:
    return dataclasses.replace(
        trajectory,
        group_id=group_id,
        sample_index=sample,
        reward_terms=(RewardTerm(name="r", score=score),),
        failure=None,
    )


@st.composite
def scored_groups(draw: st.DrawFn) -> list[Group]:
    groups = []
    for position in range(draw(st.integers(1, 2))):
        members = draw(st.lists(trajectories(max_turns=3).filter(learnable), min_size=2, max_size=3))
        scores = [draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in members]
        pairs = zip(members, scores, strict=True)
        episodes = [scored(member, (0, position), i, score) for i, (member, score) in enumerate(pairs)]
        groups.append(Group((0, position), tuple(episodes)))
    return groups


def prepare(groups: list[Group], **config: object) -> TrainBatch:
    return Algorithm(AlgorithmConfig.model_validate(config), seed=3).prepare(groups)


def contents(batch: TrainBatch) -> list[object]:
    """Everything that the learner computes with."""
    parts: list[object] = []
    for minibatch in batch.minibatches:
        for record in (minibatch.tokens, *minibatch.microbatches):
            parts += [getattr(record, field.name) for field in dataclasses.fields(record)]
        parts += [minibatch.advantages, minibatch.weights]
    return parts


@SLOW_DRAWS
@given(trajectories().filter(learnable))
def test_every_sampled_token_of_a_train_turn_is_learned_exactly_once(trajectory):
    tokens = make_loss_tokens(make_segments(trajectory))
    learned = Counter(
        zip(
            tokens.token_ids.tolist(),
            tokens.behavior_logprobs.tolist(),
            tokens.policy_versions.tolist(),
            strict=True,
        )
    )
    expected: Counter = Counter()
    for turn in trajectory.turns:
        if turn.use == "train" and turn.sampled:
            columns = (turn.action_ids, turn.behavior_logprobs, turn.policy_versions)
            expected.update(zip(*(column.tolist() for column in columns), strict=True))
    assert learned == expected


@SLOW_DRAWS
@given(trajectories().filter(learnable))
def test_what_was_read_is_never_in_the_loss(trajectory):
    # Other text in the same places gives the same loss tokens at the same positions.
    def rewritten(ids: np.ndarray) -> np.ndarray:
        return (2**31 - 1 - ids.astype(np.int64)).astype(np.int32)

    turns = [
        dataclasses.replace(
            turn,
            context_ids=rewritten(turn.context_ids),
            action_ids=turn.action_ids
            if turn.use == "train" and turn.sampled
            else rewritten(turn.action_ids),
        )
        for turn in trajectory.turns
    ]
    other = dataclasses.replace(
        trajectory, turns=tuple(turns), final_context_ids=rewritten(trajectory.final_context_ids)
    )
    one, two = make_loss_tokens(make_segments(trajectory)), make_loss_tokens(make_segments(other))
    for field in dataclasses.fields(one):
        assert getattr(one, field.name).tolist() == getattr(two, field.name).tolist(), field.name


@SLOW_DRAWS
@given(scored_groups(), trajectories(max_turns=3).filter(learnable), st.integers(0, 3), finite_float)
@pytest.mark.parametrize("why", ["unscored", "excluded"])
def test_an_unusable_episode_is_as_if_it_had_not_been(why, groups, trajectory, place, score):
    first = groups[0]
    stranger = scored(trajectory, first.group_id, 9, score)
    if why == "excluded":
        failure = dataclasses.replace(UNSCORED, exclude=True)
        stranger = dataclasses.replace(stranger, failure=failure)
    else:
        stranger = stranger.with_terms(RewardTerm(name="judge", score=None, error=UNSCORED))
    members = list(first.trajectories)
    members.insert(place, stranger)
    without = prepare(groups)
    with_it = prepare([Group(first.group_id, tuple(members)), *groups[1:]])
    assert identical(contents(with_it), contents(without))
    assert with_it.rewards.tolist() == without.rewards.tolist()
    assert with_it.metrics["episodes/excluded/reward_error"] == 1


@SLOW_DRAWS
@given(scored_groups(), failures)
def test_an_unscored_reward_is_never_a_number(groups, failure):
    first = groups[0]
    term = RewardTerm(name="r", score=None, error=failure)
    unscored = [dataclasses.replace(member, reward_terms=(term,)) for member in first]
    batch = prepare([Group(first.group_id, tuple(unscored)), *groups[1:]])
    assert {key.group_id for key in batch.episodes} == {group.group_id for group in groups[1:]}
    assert np.isfinite(batch.rewards).all()


@SLOW_DRAWS
@given(scored_groups())
def test_a_batch_made_from_the_store_is_the_same_batch(groups):
    with tempfile.TemporaryDirectory() as directory:
        TrajectoryWriter(directory).write_part([t for group in groups for t in group], iteration=0)
        back = list(read_trajectories(directory))
    again = [
        Group(group.group_id, tuple(t for t in back if t.group_id == group.group_id)) for group in groups
    ]
    assert identical(contents(prepare(again)), contents(prepare(groups)))


@SLOW_DRAWS
@given(scored_groups(), st.integers(1, 40))
def test_the_weights_do_not_depend_on_the_microbatches(groups, budget):
    assume(any(turn.sampled for group in groups for t in group for turn in t.turns))
    small, large = prepare(groups, microbatch_tokens=budget), prepare(groups)
    for one, two in zip(small.minibatches, large.minibatches, strict=True):
        assert identical([one.weights, one.advantages], [two.weights, two.advantages])
        assert sum(one.weights) == pytest.approx(1.0)
        predicted = np.concatenate([microbatch.tokens for microbatch in one.microbatches])
        assert sorted(predicted.tolist()) == list(range(len(one.tokens)))
