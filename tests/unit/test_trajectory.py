import dataclasses
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import any_float, finite_float, groups, identical, reward_terms, trajectories, turn_forests

from hyperrl.errors import TrajectoryError
from hyperrl.trajectory import (
    NOT_SAMPLED,
    Event,
    Failure,
    Group,
    RewardTerm,
    Trajectory,
    TruncationReason,
    Turn,
)

SLOW_DRAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FAILURE = Failure(kind="reward_error", stage="reward", reason="boom")


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def turn(parent: int | None = None, versions: tuple[int, ...] = (0, 0), **values: object) -> Turn:
    length = len(versions)
    defaults = {
        "parent": parent,
        "context_ids": ids(1, 2, 3),
        "action_ids": np.arange(length, dtype=np.int32),
        "behavior_logprobs": np.full(length, -0.5, np.float32),
        "policy_versions": ids(*versions),
    }
    return Turn(**(defaults | values))


def unsampled(parent: int | None = None, **values: object) -> Turn:
    return turn(parent, (NOT_SAMPLED,) * 2, behavior_logprobs=None, **values)


def episode(*turns: Turn, **values: object) -> Trajectory:
    names = {"run_id": "r", "group_id": (0, 0), "sample_index": 0, "task_id": "t", "env_id": "e"}
    return Trajectory(**(names | {"turns": turns} | values))


# What holds for every trajectory.


@SLOW_DRAWS
@given(trajectories())
def test_the_sequences_of_a_turn_are_equally_long(trajectory):
    for each in trajectory.turns:
        assert len(each.policy_versions) == len(each.action_ids)
        assert each.behavior_logprobs is None or len(each.behavior_logprobs) == len(each.action_ids)


@SLOW_DRAWS
@given(trajectories())
def test_every_sampled_token_has_a_logprob_and_a_version(trajectory):
    for each in trajectory.turns:
        if each.sampled:
            assert np.isfinite(each.behavior_logprobs).all()
            assert (each.behavior_logprobs <= 0).all()
            assert (each.policy_versions >= 0).all()
        else:
            assert (each.policy_versions == NOT_SAMPLED).all()


@SLOW_DRAWS
@given(trajectories())
def test_parents_precede_children_and_versions_rise_along_a_path(trajectory):
    for index in range(len(trajectory.turns)):
        path = trajectory.path(index)
        assert list(path) == sorted(set(path))
        assert path[-1] == index
        for seat in {trajectory.turns[i].policy for i in path}:
            spoken = [t for t in map(trajectory.turns.__getitem__, path) if t.sampled and t.policy == seat]
            versions = [int(v) for t in spoken for v in t.policy_versions]
            assert versions == sorted(versions)


@SLOW_DRAWS
@given(trajectories())
def test_arrays_are_typed_and_read_only(trajectory):
    arrays = {"final_context_ids": trajectory.final_context_ids}
    for index, each in enumerate(trajectory.turns):
        arrays |= {f"{index} {f.name}": getattr(each, f.name) for f in dataclasses.fields(each)}
    for name, array in arrays.items():
        if isinstance(array, np.ndarray):
            assert array.dtype == (np.float32 if "logprobs" in name else np.int32)
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0


@SLOW_DRAWS
@given(trajectories())
def test_prompt_and_actions_concatenate_to_the_path(trajectory):
    for index, each in enumerate(trajectory.turns):
        seen = []
        for i in trajectory.path(index):
            seen += [*trajectory.turns[i].context_ids, *trajectory.turns[i].action_ids]
        assert [*trajectory.prompt_ids(index), *each.action_ids] == seen


@SLOW_DRAWS
@given(trajectories())
def test_pickling_gives_the_same_trajectory(trajectory):
    back = pickle.loads(pickle.dumps(trajectory))
    assert identical(back, trajectory)
    assert not back.final_context_ids.flags.writeable
    with pytest.raises(TypeError):
        back.metrics["new"] = 1.0


@SLOW_DRAWS
@given(trajectories())
def test_building_again_from_the_fields_changes_nothing(trajectory):
    fields = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    assert identical(Trajectory(**fields), trajectory)


# What is refused.


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([turn(policy_versions=ids(0))], "turn 0: 2 action_ids but 1 policy_versions"),
        (
            [turn(behavior_logprobs=np.zeros(3, np.float32))],
            "turn 0: 2 action_ids but 3 behavior_logprobs",
        ),
        ([turn(), turn(behavior_logprobs=None)], "turn 1: policy versions without behavior_logprobs"),
        ([turn(policy_versions=ids(0, -1))], "turn 0: every sampled token needs the version"),
        (
            [turn(behavior_logprobs=np.array([-1, np.nan], np.float32))],
            "behavior_logprobs must be finite and at most 0",
        ),
        (
            [turn(behavior_logprobs=np.array([-1, 0.5], np.float32))],
            "behavior_logprobs must be finite and at most 0",
        ),
        (
            [turn(behavior_logprobs=np.array([-np.inf, 0], np.float32))],
            "behavior_logprobs must be finite and at most 0",
        ),
        ([turn(use="context")], "a context turn was not sampled"),
        ([turn(context_ids=ids(1, -5))], "turn 0: token ids must not be negative"),
        ([turn(action_ids=ids(-1, 0))], "turn 0: token ids must not be negative"),
        ([turn(temperature=-1.0)], "temperature must be finite and >= 0, got -1.0"),
        ([turn(temperature=math.nan)], "temperature must be finite and >= 0, got nan"),
        ([turn(parent=0)], "turn 0: parent 0 must be an earlier turn"),
        ([turn(), turn(parent=2)], "turn 1: parent 2 must be an earlier turn"),
        ([turn(), turn(parent=-1)], "turn 1: parent -1 must be an earlier turn"),
        ([turn(versions=(2, 1))], "turn 0: policy versions decrease within the action"),
        (
            [turn(versions=(3,)), turn(parent=0, versions=(2,))],
            "turn 1: version 2 after version 3 of its ancestor 0",
        ),
        (
            [turn(versions=(3,)), turn(0, (9,), policy="judge"), unsampled(1), turn(2, (2,))],
            "turn 3: version 2 after version 3 of its ancestor 0",
        ),
        (
            [turn(context_ids=np.array([1.0, 2.0]))],
            r"turn 0: context_ids must be a one-dimensional int32 array, got shape \(2,\) of float64",
        ),
        (
            [turn(action_ids=np.zeros((2, 1), np.int32))],
            r"turn 0: action_ids must be a one-dimensional int32 array, got shape \(2, 1\)",
        ),
        (
            [turn(behavior_logprobs=np.zeros(2))],
            "turn 0: behavior_logprobs must be a one-dimensional float32 array",
        ),
    ],
)
def test_a_broken_turn_is_refused(turns, message):
    with pytest.raises(TrajectoryError, match=message):
        episode(*turns)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"truncated": True}, "truncated and truncation_reason must be given together"),
        ({"truncation_reason": TruncationReason.CONTEXT}, "must be given together"),
        ({"sample_index": -1}, "sample_index must be >= 0, got -1"),
        ({"final_context_ids": np.zeros(1)}, "final_context_ids must be a one-dimensional int32 array"),
        ({"reward_terms": (RewardTerm(name="a", score=None),)}, "'a' is unscored without an error"),
        ({"reward_terms": (RewardTerm(name="a", score=math.nan),)}, "'a' has the score nan"),
        ({"reward_terms": (RewardTerm(name="a", score=math.inf),)}, "'a' has the score inf"),
        (
            {"reward_terms": (RewardTerm(name="a", score=1.0, weight=math.inf),)},
            "'a' has the weight inf",
        ),
        ({"reward_terms": (RewardTerm(name="a", score=1.0, turn=1),)}, "reward term names turn 1 of 1"),
        ({"events": (Event(turn=-1, observation=""),)}, "event names turn -1 of 1"),
        ({"events": (Event(turn=5, observation=""),)}, "event names turn 5 of 1"),
    ],
)
def test_a_broken_episode_is_refused(values, message):
    with pytest.raises(TrajectoryError, match=message):
        episode(turn(), **values)


@pytest.mark.parametrize("place", [0, 7, 19])
@pytest.mark.parametrize(
    "values",
    [
        {"context_ids": ids(3, -1)},
        {"action_ids": ids(-1, 2)},
        {"behavior_logprobs": np.array([-0.5, math.nan], np.float32)},
        {"behavior_logprobs": np.array([-math.inf, -0.5], np.float32)},
        {"behavior_logprobs": np.array([-0.5, 1e-6], np.float32)},
        {"behavior_logprobs": np.zeros(3, np.float32)},
        {"policy_versions": ids(0, -1)},
        {"policy_versions": ids(1, 0)},
        {"temperature": math.nan},
        {"parent": 19},
    ],
)
def test_one_broken_turn_among_many_is_refused_and_named(place, values):
    turns = [turn(i - 1 if i else None) for i in range(20)]
    turns[place] = dataclasses.replace(turns[place], **values)
    with pytest.raises(TrajectoryError, match=f"turn {place}: "):
        episode(*turns)


def test_versions_of_different_seats_and_paths_are_independent():
    forest = [turn(versions=(5,)), turn(0, (1,), policy="judge"), turn(versions=(2,)), turn(2, (3,))]
    assert len(episode(*forest).turns) == 4


@SLOW_DRAWS
@given(turn_forests(), st.data())
def test_a_later_version_before_an_earlier_one_is_never_accepted(turns, data):
    spoken = [i for i, t in enumerate(turns) if t.sampled and len(t.action_ids)]
    if not spoken:
        return
    last = turns[data.draw(st.sampled_from(spoken))]
    step_back = int(last.policy_versions[-1]) - 1
    child = turn(turns.index(last), (max(step_back, 0),), policy=last.policy)
    if step_back < 0:
        assert episode(*turns, child)
    else:
        with pytest.raises(TrajectoryError, match="after version"):
            episode(*turns, child)


def test_arrays_of_the_caller_cannot_reach_the_trajectory():
    array, view = ids(1, 2, 3), ids(4, 5, 6)
    trajectory = episode(turn(context_ids=array), final_context_ids=view[1:])
    array[:] = 0
    view[:] = 0
    assert trajectory.turns[0].context_ids.tolist() == [1, 2, 3]
    assert trajectory.final_context_ids.tolist() == [5, 6]


def test_sealed_arrays_are_not_copied_again():
    first = episode(turn())
    again = dataclasses.replace(first, seed=3)
    assert again.turns[0].action_ids is first.turns[0].action_ids


def test_mappings_of_the_caller_cannot_reach_the_trajectory():
    metrics = {"a": 1.0}
    trajectory = episode(metrics=metrics)
    metrics["a"] = 2.0
    assert trajectory.metrics["a"] == 1.0
    with pytest.raises(TypeError):
        trajectory.metrics["a"] = 3.0


# Equality.


@SLOW_DRAWS
@given(trajectories(max_turns=2), st.data())
def test_a_changed_field_makes_a_different_trajectory(trajectory, data):
    name, value = data.draw(
        st.sampled_from(
            [("run_id", trajectory.run_id + "x"), ("seed", trajectory.seed ^ 1), ("program", object())]
        )
    )
    assert dataclasses.replace(trajectory, **{name: value}) != trajectory


@given(any_float, any_float)
def test_floats_are_compared_bit_for_bit(one, other):
    same_bits = struct.pack(">d", one) == struct.pack(">d", other)
    assert (episode(metrics={"a": one}) == episode(metrics={"a": other})) == same_bits


def test_arrays_are_compared_bit_for_bit():
    zero, minus = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert episode(turn(versions=(0,), behavior_logprobs=zero)) != episode(
        turn(versions=(0,), behavior_logprobs=minus)
    )
    assert turn(versions=(0,)) == turn(versions=(0,))
    assert turn() != "turn"
    assert episode() != "episode"


# Reward.


def term(score: float | None, weight: float = 1.0, **values: object) -> RewardTerm:
    error = FAILURE if score is None else None
    return RewardTerm(**({"name": "a", "score": score, "weight": weight, "error": error} | values))


@pytest.mark.parametrize(
    ("terms", "reward"),
    [
        ((), None),
        ((term(1.0), term(0.5, 2.0)), 2.0),
        ((term(1.0), term(None)), None),
        ((term(1.0), term(None, 0.0)), 1.0),
        ((term(None, 0.0),), None),
        ((term(5.0, 0.0),), None),
        ((term(0.0),), 0.0),
        ((term(1.0, -0.5),), -0.5),
    ],
)
def test_the_reward_is_the_weighted_sum_of_terms_that_count(terms, reward):
    trajectory = episode(reward_terms=terms)
    assert trajectory.reward == reward
    assert trajectory.usable == (reward is not None)


@given(st.lists(finite_float.filter(lambda x: abs(x) < 1e100), min_size=1, max_size=8), st.randoms())
def test_the_order_of_terms_does_not_change_the_reward(scores, random):
    terms = [term(score) for score in scores]
    reward = episode(reward_terms=tuple(terms)).reward
    random.shuffle(terms)
    assert episode(reward_terms=tuple(terms)).reward == reward


@SLOW_DRAWS
@given(trajectories(max_turns=2), st.lists(reward_terms(), max_size=3))
def test_terms_are_added_to_a_copy(trajectory, terms):
    before = trajectory.reward_terms
    longer = trajectory.with_terms(*terms)
    assert longer.reward_terms == (*before, *terms)
    assert trajectory.reward_terms == before
    assert identical(dataclasses.replace(longer, reward_terms=before), trajectory)


def test_added_terms_are_checked():
    with pytest.raises(TrajectoryError, match="reward term names turn 0 of 0"):
        episode().with_terms(term(1.0, turn=0))


@pytest.mark.parametrize(("exclude", "usable"), [(True, False), (False, True)])
def test_a_failure_decides_whether_learning_may_use_it(exclude, usable):
    failure = dataclasses.replace(FAILURE, exclude=exclude)
    assert episode(reward_terms=(term(1.0),), failure=failure).usable is usable


# Paths.


def stepped(*turns: int) -> tuple[Event, ...]:
    return tuple(Event(turn=index, observation="", stepped=True) for index in turns)


FORESTS = {
    "empty": ([], (), (), None),
    "chain": ([turn(), turn(0), turn(1)], (0, 1, 2), (0, 1, 2), 2),
    "chain whose last action was not stepped": ([turn(), turn(0), turn(1)], (0, 1, 2), (0, 1), 1),
    "nothing stepped": ([turn(), turn(0)], (0, 1), (), None),
    "tree: the branch that ends last": ([turn(), turn(0), turn(0), turn(1)], (0, 1, 3), (1, 2), 1),
    "several roots: the last context": ([turn(), turn(0), turn(), turn(2)], (2, 3), (0, 1, 2), 2),
    "side requests are off the path": ([turn(), turn(0), turn(0, use="side")], (0, 1), (0, 1, 2), 1),
    "another seat speaks last": ([turn(), turn(0), turn(1, policy="judge")], (0, 1), (0, 2), 0),
    "another seat in between": ([turn(), turn(0, policy="judge"), turn(1)], (0, 1, 2), (2,), 2),
    "context turns carry the path": ([unsampled(use="context"), turn(0)], (0, 1), (1,), 1),
    "only side turns": ([turn(use="side")], (), (0,), None),
}


@pytest.mark.parametrize(("turns", "path", "steps", "answer"), FORESTS.values(), ids=FORESTS)
def test_the_main_path_and_the_answer_turn(turns, path, steps, answer):
    trajectory = episode(*turns, events=stepped(*steps))
    assert trajectory.main_path == path
    assert trajectory.answer_turn == answer


def test_prompt_ids_follow_one_branch_only():
    trajectory = episode(
        turn(context_ids=ids(1), action_ids=ids(2, 3)),
        turn(0, context_ids=ids(4), action_ids=ids(5, 6)),
        turn(0, context_ids=ids(7), action_ids=ids(8, 9)),
        turn(context_ids=ids(), action_ids=ids(10, 11)),
    )
    assert trajectory.prompt_ids(2).tolist() == [1, 2, 3, 7]
    assert trajectory.prompt_ids(3).tolist() == []
    assert trajectory.prompt_ids(3).dtype == np.int32


# Groups.


@SLOW_DRAWS
@given(groups())
def test_a_group_holds_its_members_and_knows_the_usable_ones(group):
    assert len(group) == len(list(group)) == len(group.trajectories)
    assert list(group.usable) == [member for member in group if member.usable]


def test_a_group_refuses_a_stranger():
    with pytest.raises(TrajectoryError, match=r"group \(0, 0\) holds a trajectory of \(0, 1\)"):
        Group((0, 0), (episode(), episode(group_id=(0, 1))))
