"""Trajectories built of columns, at once or as a draft: the same as those built of turns in everything."""

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import identical, trajectories

from hyperrl.columns import EventColumns, TurnColumns, columns_of
from hyperrl.drafts import (
    ColumnsDraft,
    TrajectoryDraft,
    finish_columns,
    finish_trajectory,
    of_turn,
    scored_term,
)
from hyperrl.errors import TrajectoryError
from hyperrl.trajectory import Event, Failure, RewardTerm, Trajectory

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


def drafted(columns: TurnColumns, events: EventColumns, **values: Any) -> Trajectory:
    """The same as ``Trajectory.from_columns``, by way of drafts."""
    known = {part.name: part.default for part in dataclasses.fields(Trajectory) if part.name not in OWN}
    empty: Any = {name: {} for name in ("env_kwargs", "reset_options", "metrics", "timings")}
    draft, columns_draft = TrajectoryDraft(), ColumnsDraft()
    for name, value in (known | empty | values).items():
        setattr(draft, name, value)
    for part in dataclasses.fields(columns):
        setattr(columns_draft, part.name, getattr(columns, part.name))
    return finish_trajectory(draft, finish_columns(columns_draft), events)


WAYS = pytest.mark.parametrize("build", [Trajectory.from_columns, drafted])


def rebuilt(trajectory: Trajectory, build: Any = Trajectory.from_columns, **changes: object) -> Trajectory:
    columns = columns_of(trajectory.turns)
    ids = np.concatenate([columns.ids, trajectory.final_context_ids])
    columns = sealed(dataclasses.replace(columns, ids=ids), **changes)
    names = [field.name for field in dataclasses.fields(trajectory) if field.name not in OWN]
    values = {name: getattr(trajectory, name) for name in names}
    return build(columns, event_columns(trajectory.events), **values)


@WAYS
@SLOW_DRAWS
@given(trajectories())
def test_columns_give_the_same_trajectory_as_turns(build, trajectory):
    again = rebuilt(trajectory, build)
    assert type(again) is Trajectory
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


@WAYS
@SLOW_DRAWS
@given(trajectories())
def test_columns_survive_pickling_replacing_and_terms(build, trajectory):
    again = rebuilt(trajectory, build)
    assert identical(pickle.loads(pickle.dumps(again)), trajectory)
    term = RewardTerm(name="late", score=1.0)
    assert identical(rebuilt(trajectory, build).with_terms(term), trajectory.with_terms(term))
    assert identical(
        dataclasses.replace(rebuilt(trajectory, build), seed=5), dataclasses.replace(trajectory, seed=5)
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


def built(
    columns: TurnColumns,
    events: EventColumns | None = None,
    build: Any = Trajectory.from_columns,
    **values: Any,
) -> Trajectory:
    names = {"run_id": "r", "group_id": (0, 0), "sample_index": 0, "task_id": "t", "env_id": "e"}
    return build(columns, events or EventColumns([], [], [], [], []), **(names | values))


def test_turns_are_made_once_and_are_views() -> None:
    trajectory = built(columns())
    assert trajectory.turns is trajectory.turns
    assert [turn.context_ids.tolist() for turn in trajectory.turns] == [[1, 2], [5]]
    assert [turn.action_ids.tolist() for turn in trajectory.turns] == [[3, 4], [6]]
    assert trajectory.final_context_ids.tolist() == [7]
    assert all(turn.action_ids.base is trajectory.columns.ids for turn in trajectory.turns)


@WAYS
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
        ({"temperatures": (np.nan, np.nan)}, "turn 0: temperature must be finite"),
        ({"temperatures": (np.inf, np.inf)}, "turn 0: temperature must be finite"),
        ({"uses": ("train", "context")}, "turn 1: a context turn was not sampled"),
        ({"logprobs": np.array([-1, -1], np.float32)}, "3 sampled action_ids but 2 behavior_logprobs"),
        ({"sampled": (True,)}, "2 parents need one value a turn"),
        ({"starts": (0, 4, 9)}, "one after the other in the 7 ids"),
        ({"starts": (1, 4, 6)}, "one after the other in the 7 ids"),
        ({"action_starts": (5, 5)}, "one after the other in the 7 ids"),
        ({"starts": (0, 5, 5), "action_starts": (2, 6)}, "one after the other in the 7 ids"),
        ({"sampled": (True, False)}, "2 sampled action_ids but 3 behavior_logprobs and 3 policy_versions"),
        ({"policy_versions": np.array([0, 0], np.int32)}, "3 behavior_logprobs and 2 policy_versions"),
        ({"logprobs": np.array([-1, -np.inf, -1], np.float32)}, "turn 0: behavior_logprobs must be finite"),
        ({"ids": np.array([1, 2, 3, 4, 5, 6, 7], np.int64)}, "must be a one-dimensional int32 array"),
    ],
)
def test_broken_columns_are_refused(build: Any, changes: dict[str, object], message: str) -> None:
    packed = {
        name: np.frombuffer(value.tobytes(), value.dtype) if isinstance(value, np.ndarray) else value
        for name, value in changes.items()
    }
    for broken in (columns(**changes), dataclasses.replace(columns(), **packed)):
        with pytest.raises(TrajectoryError, match=message):
            built(broken, build=build)


@WAYS
@pytest.mark.parametrize("name", ["ids", "logprobs", "policy_versions"])
def test_columns_that_somebody_could_write_to_are_refused(build: Any, name: str) -> None:
    writeable = dataclasses.replace(columns(), **{name: getattr(columns(), name).copy()})
    with pytest.raises(TrajectoryError, match=f"{name} must be a read-only array"):
        built(writeable, build=build)
    view = getattr(writeable, name)[:]
    view.flags.writeable = False
    with pytest.raises(TrajectoryError, match=f"{name} must be a read-only array"):
        built(dataclasses.replace(writeable, **{name: view}), build=build)


@WAYS
@pytest.mark.parametrize(
    ("events", "values", "message"),
    [
        (EventColumns([2], ["x"], ["y"], [()], [True]), {}, "event names turn 2 of 2"),
        (EventColumns((0, 1, 2), "xyz", "xyz", [()] * 3, [True] * 3), {}, "event names turn 2 of 2"),
        (None, {"reward_terms": (RewardTerm(name="r", score=1.0, turn=2),)}, "reward term names turn 2 of 2"),
        (None, {"reward_terms": (RewardTerm(name="r", score=np.nan),)}, "has the score nan"),
        (None, {"truncated": True}, "must be given together"),
        (None, {"sample_index": -1}, "sample_index must be >= 0"),
    ],
)
def test_what_columns_cannot_hold_is_refused(build: Any, events: Any, values: Any, message: str) -> None:
    with pytest.raises(TrajectoryError, match=message):
        built(columns(), events, build, **values)


def test_a_finished_draft_cannot_be_set_and_owns_its_mappings() -> None:
    env_kwargs, reset_options = {"size": 2}, {"task": 2}
    trajectory = built(columns(), build=drafted, env_kwargs=env_kwargs, reset_options=reset_options)
    env_kwargs["size"] = reset_options["task"] = 3
    assert (trajectory.env_kwargs, trajectory.reset_options) == ({"size": 2}, {"task": 2})
    for mapping in (trajectory.env_kwargs, trajectory.reset_options, trajectory.metrics, trajectory.timings):
        with pytest.raises(TypeError):
            mapping["size"] = 4  # type: ignore[index]
    for record in (trajectory, trajectory.columns, of_turn(RewardTerm(name="r", score=1.0), 1)):
        for part in dataclasses.fields(record):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, part.name, None)


def test_a_term_of_a_turn_differs_in_nothing_else() -> None:
    failure = Failure(kind="k", stage="reward", reason="r")
    for term in (
        RewardTerm(name="r", score=-0.0, weight=2.0, cause="unparsed"),
        RewardTerm(name="r", score=None, error=failure, turn=7),
    ):
        assert identical(of_turn(term, 3), dataclasses.replace(term, turn=3))
        assert type(of_turn(term, None)) is RewardTerm
    made = scored_term("r", 1.0, 0.5)
    assert identical(made, RewardTerm(name="r", score=1.0, weight=0.5))
    assert type(made) is RewardTerm
