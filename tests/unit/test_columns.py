"""Trajectories built of columns: the same as those built of turns, in everything that can be asked."""

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import identical, trajectories

from hyperrl.columns import EventColumns, TurnColumns, columns_of
from hyperrl.errors import TrajectoryError
from hyperrl.trajectory import Event, RewardTerm, Trajectory

SLOW_DRAWS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OWN = ("turns", "events", "final_context_ids")


def sealed(columns: TurnColumns, **changes: object) -> TurnColumns:
    arrays = {name: getattr(columns, name).copy() for name in ("ids", "logprobs", "policy_versions")}
    changed = dataclasses.replace(columns, **(arrays | changes))
    for name in arrays:
        getattr(changed, name).flags.writeable = False
    return changed


def event_columns(events: tuple[Event, ...]) -> EventColumns:
    names = ("turn", "observation", "action", "tool_calls", "stepped")
    return EventColumns(*([getattr(event, name) for event in events] for name in names))


def rebuilt(trajectory: Trajectory, **changes: object) -> Trajectory:
    columns = columns_of(trajectory.turns)
    ids = np.concatenate([columns.ids, trajectory.final_context_ids])
    columns = sealed(dataclasses.replace(columns, ids=ids), **changes)
    names = [field.name for field in dataclasses.fields(trajectory) if field.name not in OWN]
    values = {name: getattr(trajectory, name) for name in names}
    return Trajectory.from_columns(columns, event_columns(trajectory.events), **values)


@SLOW_DRAWS
@given(trajectories())
def test_columns_give_the_same_trajectory_as_turns(trajectory):
    again = rebuilt(trajectory)
    assert again.main_path == trajectory.main_path
    assert again.answer_turn == trajectory.answer_turn
    assert again.tool_records == trajectory.tool_records
    for index in range(len(trajectory.turns)):
        assert identical(again.prompt_ids(index), trajectory.prompt_ids(index))
    assert identical(again, trajectory)
    assert again == trajectory
    for turn in again.turns:
        assert not turn.action_ids.flags.writeable
        assert not turn.policy_versions.flags.writeable


@SLOW_DRAWS
@given(trajectories())
def test_columns_survive_pickling_replacing_and_terms(trajectory):
    again = rebuilt(trajectory)
    assert identical(pickle.loads(pickle.dumps(again)), trajectory)
    term = RewardTerm(name="late", score=1.0)
    assert identical(rebuilt(trajectory).with_terms(term), trajectory.with_terms(term))
    assert identical(
        dataclasses.replace(rebuilt(trajectory), seed=5), dataclasses.replace(trajectory, seed=5)
    )


def columns(**changes: object) -> TurnColumns:
    """Two turns of one seat: contexts of 2 and 1 tokens, actions of 2 and 1."""
    plain = TurnColumns(
        ids=np.array([1, 2, 3, 4, 5, 6, 7], np.int32),
        starts=(0, 4, 6),
        action_starts=(2, 5),
        logprobs=np.array([-1, -1, -1], np.float32),
        policy_versions=np.array([0, 0, 0], np.int32),
        sampled=(True, True),
        parents=(None, 0),
        temperatures=(1.0, 1.0),
        stop_reasons=("stop", "stop"),
        policies=("main", "main"),
        uses=("train", "train"),
    )
    return sealed(plain, **changes)


def built(columns: TurnColumns, events: EventColumns | None = None) -> Trajectory:
    names = {"run_id": "r", "group_id": (0, 0), "sample_index": 0, "task_id": "t", "env_id": "e"}
    return Trajectory.from_columns(columns, events or EventColumns([], [], [], [], []), **names)


def test_turns_are_made_once_and_are_views() -> None:
    trajectory = built(columns())
    assert trajectory.turns is trajectory.turns
    assert [turn.context_ids.tolist() for turn in trajectory.turns] == [[1, 2], [5]]
    assert [turn.action_ids.tolist() for turn in trajectory.turns] == [[3, 4], [6]]
    assert trajectory.final_context_ids.tolist() == [7]
    assert all(turn.action_ids.base is trajectory.columns.ids for turn in trajectory.turns)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policy_versions": np.array([0, -1, 0], np.int32)},
            "turn 0: every sampled token needs the version",
        ),
        ({"policy_versions": np.array([2, 2, 1], np.int32)}, "turn 1: version 1 after version 2"),
        ({"logprobs": np.array([-1, np.nan, -1], np.float32)}, "turn 0: behavior_logprobs must be finite"),
        ({"logprobs": np.array([-1, -1, 0.5], np.float32)}, "turn 1: behavior_logprobs must be finite"),
        ({"ids": np.array([1, 2, 3, 4, 5, -6, 7], np.int32)}, "turn 1: token ids must not be negative"),
        ({"parents": (None, 1)}, "turn 1: parent 1 must be an earlier turn"),
        ({"temperatures": (1.0, -1.0)}, "turn 1: temperature must be finite"),
        ({"uses": ("train", "context")}, "turn 1: a context turn was not sampled"),
        ({"logprobs": np.array([-1, -1], np.float32)}, "3 sampled action_ids but 2 behavior_logprobs"),
        ({"sampled": (True,)}, "2 parents need one value a turn"),
        ({"starts": (0, 4, 9)}, "one after the other in the 7 ids"),
        ({"starts": (1, 4, 6)}, "one after the other in the 7 ids"),
        ({"ids": np.array([1, 2, 3, 4, 5, 6, 7], np.int64)}, "must be a one-dimensional int32 array"),
    ],
)
def test_broken_columns_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TrajectoryError, match=message):
        built(columns(**changes))


def test_columns_that_somebody_could_write_to_are_refused() -> None:
    writeable = dataclasses.replace(columns(), ids=np.arange(7, dtype=np.int32))
    with pytest.raises(TrajectoryError, match="ids must be a read-only array"):
        built(writeable)


def test_an_event_of_a_turn_that_is_not_there_is_refused() -> None:
    with pytest.raises(TrajectoryError, match="event names turn 2 of 2"):
        built(columns(), EventColumns([2], ["x"], ["y"], [()], [True]))
