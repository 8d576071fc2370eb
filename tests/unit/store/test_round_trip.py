import dataclasses
import json
import struct
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from strategies import any_float, identical, json_mappings, trajectories, unicode_text

from hyperrl.errors import StoreError
from hyperrl.store import TrajectoryWriter, export_jsonl, import_jsonl, list_episodes, read_trajectories
from hyperrl.store.text import escape, restore
from hyperrl.trajectory import Event, Trajectory, Turn

SLOW_DRAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def episode(**values: object) -> Trajectory:
    return Trajectory(
        **({"run_id": "r", "group_id": (0, 0), "sample_index": 0, "task_id": "t", "env_id": "e"} | values)
    )


def stored(*episodes: Trajectory) -> list[Trajectory]:
    with tempfile.TemporaryDirectory() as directory:
        TrajectoryWriter(directory).write_part(episodes, iteration=0)
        return list(read_trajectories(directory))


@SLOW_DRAWS
@given(st.lists(trajectories(), max_size=4))
def test_every_field_comes_back_bit_for_bit(episodes):
    assert identical(stored(*episodes), episodes)


@SLOW_DRAWS
@given(st.lists(trajectories(), max_size=3))
def test_jsonl_is_exact_in_both_directions(episodes):
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        TrajectoryWriter(base / "a").write_part(episodes, iteration=7, rank=2)
        assert export_jsonl(base / "a", base / "all.jsonl") == len(episodes)
        assert import_jsonl(base / "all.jsonl", base / "b") == len(episodes)
        assert identical(list(read_trajectories(base / "b")), episodes)
        places = {(row.iteration, row.rank) for row in list_episodes(base / "b")}
        assert places == ({(7, 2)} if episodes else set())


@given(unicode_text)
@example("\ud83d\ude00")  # an emoji in two code points is not the emoji
@example("\ufdd0d83d")
@example("\ufdd0\ufdd0\ud83d0000")
def test_escaped_text_is_utf8_and_restores(text):
    escaped = escape(text)
    escaped.encode("utf-8")
    assert restore(escaped) == text


@pytest.mark.parametrize("character", ["a", "\U0001f600", "\udc80", "\x00"])
def test_megabytes_of_text_survive(character):
    text = character * 2**20  # at least 1 MB
    [back] = stored(episode(task_id=text, events=(Event(turn=None, observation=text, action=text),)))
    assert back.task_id == text
    assert back.events[0].action == text


@given(st.lists(any_float, max_size=20))
def test_metrics_keep_every_bit_of_a_float(values):
    metrics = {str(index): value for index, value in enumerate(values)}
    [back] = stored(episode(metrics=metrics))
    bits = [struct.pack(">d", back.metrics[name]) for name in metrics]
    assert bits == [struct.pack(">d", value) for value in values]


def test_equal_floats_of_different_bits_are_not_merged():
    values = [0.0, -0.0] * 100
    nans = [struct.unpack(">d", bytes.fromhex(f"7ff80000000000{i:02x}"))[0] for i in range(1, 100)]
    metrics = {f"{index:03d}": value for index, value in enumerate([*values, *nans])}
    [back] = stored(episode(metrics=metrics))
    assert identical(back, episode(metrics=metrics))


def test_the_smallest_and_the_negative_zero_logprobs_survive():
    logprobs = np.array([-0.0, 0.0, -1e-45, -3.4028235e38], np.float32)
    ids = np.arange(4, dtype=np.int32)
    turn = Turn(parent=None, context_ids=ids, action_ids=ids, behavior_logprobs=logprobs, policy_versions=ids)
    [back] = stored(episode(turns=(turn,)))
    assert back.turns[0].behavior_logprobs.tobytes() == logprobs.tobytes()


@given(json_mappings)
def test_env_kwargs_are_strict_json_in_the_file(kwargs):
    with tempfile.TemporaryDirectory() as directory:
        path = TrajectoryWriter(directory).write_part([episode(env_kwargs=kwargs)], iteration=0)
        [text] = pq.read_table(path, columns=["env_kwargs"]).column(0).to_pylist()
    assert json.loads(restore(text), parse_constant=pytest.fail) == kwargs


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("env_kwargs", {"sizes": (1, 2)}, r"env_kwargs: it\['sizes'\] holds \(1, 2\) of type tuple"),
        ("env_kwargs", {"deep": [{1: "a"}]}, r"\['deep'\]\[0\] has the key 1; JSON knows only str keys"),
        ("env_kwargs", {"x": float("nan")}, "nan, which JSON cannot express"),
        ("reset_options", {"task": object()}, "reset_options: .*of type object"),
        ("reset_options", {"n": np.int64(3)}, "of type int64"),
        ("reset_options", {"n": 10**5000}, "no JSON form"),
        ("metrics", {"a": "1.0"}, "metrics: value: expected a number, got '1.0' of type str"),
        ("metrics", {"a": 2**53 + 1}, "would be rounded"),
        ("metrics", {"a": 10**400}, "does not fit"),
        ("metrics", {3: 1.0}, "metrics: name: expected text, got 3 of type int"),
        ("seed", 2**63, "seed: 9223372036854775808 cannot be kept as int64"),
        ("run_id", 5, "run_id: expected text, got 5"),
        (
            "events",
            (Event(turn=None, observation="", stepped="yes"),),
            "events: stepped: 'yes' cannot be kept",
        ),
    ],
)
def test_a_value_that_would_not_come_back_is_refused(tmp_path, field, value, message):
    good, bad = episode(), episode(sample_index=4, task_id="sum-3", **{field: value})
    with pytest.raises(StoreError, match=message) as caught:
        TrajectoryWriter(tmp_path).write_part([good, bad], iteration=0)
    assert "sample 4, task 'sum-3'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_mapping_that_contains_itself_is_refused(tmp_path):
    loop: dict = {}
    loop["again"] = loop
    with pytest.raises(StoreError, match="nested too deeply, or refers to itself"):
        TrajectoryWriter(tmp_path).write_part([episode(env_kwargs=loop)], iteration=0)


def test_integers_and_flags_in_metrics_come_back_as_floats():
    [back] = stored(episode(metrics={"turns": 3, "solved": True, "mean": np.float32(0.1)}))
    assert dict(back.metrics) == {"turns": 3.0, "solved": 1.0, "mean": float(np.float32(0.1))}
    assert all(type(value) is float for value in back.metrics.values())


def test_arrays_are_read_only_and_own_their_memory():
    ids = np.arange(50, dtype=np.int32)
    turn = Turn(
        parent=None,
        context_ids=ids,
        action_ids=ids,
        behavior_logprobs=np.zeros(50, np.float32),
        policy_versions=ids,
    )
    [back, _] = stored(episode(turns=(turn,), final_context_ids=ids), episode())
    arrays = [getattr(back.turns[0], f.name) for f in dataclasses.fields(Turn)]
    arrays = [a for a in [*arrays, back.final_context_ids] if isinstance(a, np.ndarray)]
    assert len(arrays) == 5
    for array in arrays:
        assert array.base is None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_many_row_groups_keep_the_order(tmp_path):
    text = "x" * 2**20
    episodes = [episode(sample_index=i, events=(Event(turn=None, observation=text),)) for i in range(70)]
    path = TrajectoryWriter(tmp_path).write_part(iter(episodes), iteration=0)
    assert pq.ParquetFile(path).num_row_groups > 1
    assert list(read_trajectories(tmp_path)) == episodes
    assert [row.row for row in list_episodes(tmp_path)] == list(range(70))
