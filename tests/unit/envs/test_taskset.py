from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hyperrl.envs import JsonlTaskset, ListTaskset, ParquetTaskset, ProceduralTaskset, Task, Taskset
from hyperrl.envs.taskset import find_task
from hyperrl.errors import ConfigError, DataError


def digits(rng):
    return {"digits": rng.integers(0, 10, 6).tolist()}


@pytest.fixture
def rows():
    return [{"id": f"row-{i}", "question": f"q{i} é \U0001f600", "answer": i} for i in range(25)]


@pytest.fixture
def jsonl(tmp_path, rows):
    path = tmp_path / "tasks.jsonl"
    path.write_text("\ufeff" + "\n\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def parquet(tmp_path, rows):
    path = tmp_path / "tasks.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=4)
    return path


def test_a_task_reads_like_a_mapping():
    task = Task("7", {"question": "q", "answer": 1})
    assert task["question"] == "q"
    assert task.get("answer") == 1
    assert task.get("hint", "none") == "none"
    assert "answer" in task
    assert "hint" not in task
    assert list(task) == ["question", "answer"]
    with pytest.raises(KeyError, match=r"no field 'qestion'.*Did you mean 'question'"):
        task["qestion"]


def test_generated_tasks_depend_on_seed_and_position_alone():
    tasks, again = ProceduralTaskset(digits, 1000, 3), ProceduralTaskset(digits, 2000, 3)
    assert isinstance(tasks, Taskset)
    assert [tasks[i] for i in (999, 0, 5)] == [again[i] for i in (999, 0, 5)]
    assert tasks[0] != ProceduralTaskset(digits, 1000, 4)[0]
    assert tasks[0].data != tasks[1].data
    assert len({tasks[i].task_id for i in range(1000)}) == 1000
    assert tasks.index_of(tasks[17].task_id) == 17


@pytest.mark.parametrize("task_id", ["3-1000", "4-1", "3-", "3-01", "17", "3--1", "x"])
def test_generated_tasks_refuse_other_ids(task_id):
    with pytest.raises(KeyError):
        ProceduralTaskset(digits, 1000, 3).index_of(task_id)


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (1, -1)])
def test_generated_tasks_refuse_bad_numbers(count, seed):
    with pytest.raises(ConfigError, match="needs a"):
        ProceduralTaskset(digits, count, seed)


def test_every_taskset_ends_with_an_index_error(jsonl, parquet):
    for tasks in (
        ListTaskset([{"a": 1}]),
        ProceduralTaskset(digits, 3, 0),
        JsonlTaskset(jsonl),
        ParquetTaskset(parquet),
    ):
        assert len(list(tasks)) == len(tasks)
        for index in (len(tasks), -1):
            with pytest.raises(IndexError, match="expected a position"):
                tasks[index]


@pytest.mark.parametrize("kind", [JsonlTaskset, ParquetTaskset])
def test_files_are_read_at_random(kind, jsonl, parquet, rows):
    path = jsonl if kind is JsonlTaskset else parquet
    tasks = kind(path)
    assert len(tasks) == 25
    for index in (24, 0, 13, 13, 4, 3):
        assert dict(tasks[index].data) == rows[index]
        assert tasks[index].task_id == str(index)
    named = kind(path, id_column="id")
    assert named[4].task_id == "row-4"
    assert named.index_of("row-4") == 4
    assert find_task(named, "row-24") == named[24]


def test_parquet_reads_only_the_columns_asked_for(parquet):
    tasks = ParquetTaskset(parquet, columns=["answer"])
    assert dict(tasks[3].data) == {"answer": 3}
    assert tasks.columns == ("id", "question", "answer")


@pytest.mark.parametrize("kind", [JsonlTaskset, ParquetTaskset])
def test_missing_columns_are_named_with_what_was_found(kind, jsonl, parquet):
    path = jsonl if kind is JsonlTaskset else parquet
    with pytest.raises(
        DataError, match=r"lacks \['prompt'\].*'prompt'.*found were \['id', 'question', 'answer'\]"
    ):
        kind(path, columns=["prompt", "answer"])


@pytest.mark.parametrize("kind", [JsonlTaskset, ParquetTaskset])
def test_a_missing_file_is_named(kind, tmp_path):
    with pytest.raises(DataError, match=r"no file .*nowhere"):
        kind(tmp_path / "nowhere")


def test_broken_files_say_where(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n{"a": }\n[1]\n')
    tasks = JsonlTaskset(path)
    with pytest.raises(DataError, match=r"line 3 of .* is not JSON"):
        tasks[1]
    with pytest.raises(DataError, match=r"line 4 of .* is a list; expected a JSON object"):
        tasks[2]
    path.write_text("\n")
    with pytest.raises(DataError, match="no rows"):
        JsonlTaskset(path)
    path.write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        ParquetTaskset(path)


def test_an_empty_parquet_is_refused(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int32())}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no rows"):
        ParquetTaskset(tmp_path / "x.parquet")


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n')
    assert len(JsonlTaskset(path)) == 1
    path.write_text('{"a": 1}\n{"a": 2}\n')
    os.utime(path, ns=(1, 1))
    assert len(JsonlTaskset(path)) == 2


@pytest.mark.parametrize("wanted", [3, np.int64(3), "0-3", Task("own", {})])
def test_a_task_is_found_by_position_id_or_itself(wanted):
    tasks = ProceduralTaskset(digits, 10, 0)
    assert find_task(tasks, wanted) == (wanted if isinstance(wanted, Task) else tasks[3])


def test_a_mapping_is_a_new_task():
    tasks = ListTaskset([{"a": 1}])
    assert find_task(tasks, {"a": 5}) == Task("given", {"a": 5})
    assert find_task(tasks, {"task_id": "mine", "a": 5}).task_id == "mine"


@pytest.mark.parametrize("wanted", [10, -1, True, 1.5, None, [1]])
def test_an_impossible_task_is_refused_with_the_range(wanted):
    with pytest.raises(ConfigError, match="from 0 to 9"):
        find_task(ProceduralTaskset(digits, 10, 0), wanted)


def test_an_unknown_id_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"10 tasks, the first is '0-0'. Did you mean"):
        find_task(ProceduralTaskset(digits, 10, 0), "0-33")


def test_a_taskset_without_index_is_searched():
    class Two:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return Task("ab"[index], {})

    assert find_task(Two(), "b").task_id == "b"
    with pytest.raises(ConfigError, match="no task has the id 'c'"):
        find_task(Two(), "c")
