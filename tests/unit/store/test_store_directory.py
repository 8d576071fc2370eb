import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strategies import identical

from hyperrl.errors import StoreError
from hyperrl.store import TrajectoryWriter, export_jsonl, import_jsonl, list_episodes, read_trajectories
from hyperrl.store.schema import SCHEMA_VERSION
from hyperrl.trajectory import (
    Event,
    Failure,
    RewardTerm,
    ToolRecord,
    Trajectory,
    TruncationReason,
    Turn,
)

DATA = Path(__file__).parents[2] / "data" / "store"


def episode(index: int = 0, text: str = "") -> Trajectory:
    return Trajectory(
        run_id="run",
        group_id=(0, index),
        sample_index=0,
        task_id=f"task-{index}",
        env_id="hyperrl/Sums-v0",
        events=(Event(turn=None, observation=text),),
    )


def every_field() -> Trajectory:
    """The episode that the golden files of ``tests/data/store`` hold."""
    ids = np.array([1, 2, 3], np.int32)
    failure = Failure(kind="reward_error", stage="reward", reason="half a \ud83d", exclude=False)
    call = ToolRecord(
        call_id="c0", name="add", arguments="{}", status="ok", result="3", duration_s=0.1, repairs=("a",)
    )
    return Trajectory(
        run_id="run",
        group_id=(1, 2),
        sample_index=3,
        task_id="task",
        env_id="hyperrl/Sums-v0",
        env_version="1.2",
        env_kwargs={"digits": 3, "rate": 0.1, "names": ["a", None]},
        reset_options={"task": "4"},
        seed=5,
        program="my.loop",
        sandbox_level="process",
        turns=(
            Turn(
                parent=None,
                context_ids=ids,
                action_ids=ids,
                behavior_logprobs=np.array([-0.0, -0.5, -1e-45], np.float32),
                policy_versions=ids,
                temperature=0.7,
            ),
            Turn(
                parent=0,
                context_ids=ids,
                action_ids=ids[:1],
                behavior_logprobs=None,
                policy_versions=np.array([-1], np.int32),
                policy="judge",
                use="side",
            ),
        ),
        final_context_ids=ids,
        events=(Event(turn=0, observation="1+2", action="3", tool_calls=(call,), stepped=True),),
        reward_terms=(
            RewardTerm(name="right", score=1.0, weight=0.5, turn=0),
            RewardTerm(name="style", score=None, weight=0.0, error=failure),
        ),
        truncated=True,
        truncation_reason=TruncationReason.MAX_TURNS,
        failure=failure,
        metrics={"nan": float("nan"), "zero": -0.0},
        timings={"policy_s": 1.5},
    )


def tasks(directory: Path, **options: object) -> list[str]:
    return [trajectory.task_id for trajectory in read_trajectories(directory, **options)]


def test_parts_are_read_by_iteration_then_rank(tmp_path):
    writer = TrajectoryWriter(tmp_path / "new" / "store")
    for iteration, rank in [(10, 0), (2, 1), (2, 0), (100_000_000, 0)]:
        path = writer.write_part([episode(iteration + rank)], iteration=iteration, rank=rank)
        assert path.name == f"part-{iteration:08d}-{rank:05d}.parquet"
    assert tasks(writer.directory) == ["task-2", "task-3", "task-10", "task-100000000"]
    assert tasks(writer.directory, iterations=range(5)) == ["task-2", "task-3"]
    assert tasks(writer.directory, iterations={10}) == ["task-10"]


def test_a_replayed_iteration_replaces_its_own_part_only(tmp_path):
    writer = TrajectoryWriter(tmp_path)
    writer.write_part([episode(0), episode(1)], iteration=0)
    writer.write_part([episode(2)], iteration=1)
    writer.write_part([episode(3)], iteration=1, rank=1)
    writer.write_part([episode(4)], iteration=1)
    assert tasks(tmp_path) == ["task-0", "task-1", "task-4", "task-3"]
    writer.write_part([], iteration=0)
    assert tasks(tmp_path) == ["task-4", "task-3"]


def test_a_listing_shows_what_happened_and_where(tmp_path):
    full = every_field()
    TrajectoryWriter(tmp_path).write_part([episode(1), full], iteration=4, rank=1)
    plain, row = list_episodes(tmp_path)
    assert (row.iteration, row.rank, row.row) == (4, 1, 1)
    for name in ("run_id", "group_id", "sample_index", "task_id", "env_id", "env_version", "program", "seed"):
        assert getattr(row, name) == getattr(full, name)
    assert row.truncation_reason is TruncationReason.MAX_TURNS
    assert (row.terminated, row.truncated, row.reward) == (False, True, 0.5)
    assert row.failure_kind == "reward_error"
    assert (row.turn_count, row.context_tokens, row.action_tokens) == (2, 9, 4)
    assert (plain.reward, plain.failure_kind, plain.turn_count) == (None, None, 0)


def test_a_listing_reads_no_token_column(tmp_path):
    path = TrajectoryWriter(tmp_path).write_part([every_field()], iteration=0)
    columns = pq.ParquetFile(path).metadata.row_group(0)
    data = bytearray(path.read_bytes())
    for index in range(columns.num_columns):
        column = columns.column(index)
        if column.path_in_schema.split(".")[0] in {"turns", "events", "final_context_ids", "env_kwargs"}:
            start = column.dictionary_page_offset or column.data_page_offset
            data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    assert [row.task_id for row in list_episodes(tmp_path)] == ["task"]
    with pytest.raises(StoreError, match=r"part-00000000-00000\.parquet is damaged"):
        list(read_trajectories(tmp_path))


@pytest.mark.parametrize("read", [lambda d: list(read_trajectories(d)), list_episodes])
def test_a_missing_store_is_named(tmp_path, read):
    with pytest.raises(StoreError, match=r"no trajectory store at .*nowhere"):
        read(tmp_path / "nowhere")
    assert read(tmp_path) == []


@pytest.mark.parametrize("read", [lambda d: list(read_trajectories(d)), list_episodes])
def test_a_damaged_or_foreign_file_is_named(tmp_path, read):
    path = TrajectoryWriter(tmp_path).write_part([every_field()] * 3, iteration=0)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[: len(whole) // 2], b"x" * 1000):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"part-00000000-00000\.parquet cannot be read .*move it away"):
            read(tmp_path)
    pq.write_table(pa.table({"question": ["1+1"]}), path)
    with pytest.raises(StoreError, match=r"part-00000000-00000\.parquet is a Parquet file, but not one"):
        read(tmp_path)
    path.rename(tmp_path / "train.parquet")
    with pytest.raises(StoreError, match=r"train\.parquet is no part of a trajectory store"):
        read(tmp_path)


def test_a_flipped_bit_in_the_tokens_is_noticed(tmp_path):
    path = TrajectoryWriter(tmp_path).write_part([every_field()], iteration=0)
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = next(
        group.column(i) for i in range(group.num_columns) if "action_ids" in group.column(i).path_in_schema
    )
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        list(read_trajectories(tmp_path))


def test_values_that_break_an_invariant_are_reported_as_damage(tmp_path):
    path = TrajectoryWriter(tmp_path).write_part([episode()], iteration=0)
    table = pq.read_table(path)
    at = table.schema.get_field_index("truncated")
    pq.write_table(table.set_column(at, "truncated", pa.array([True])), path)
    with pytest.raises(StoreError, match="truncated and truncation_reason"):
        list(read_trajectories(tmp_path))


def rewritten(path: Path, *, version: int | str, drop: tuple[str, ...] = ()) -> None:
    table = pq.read_table(path).drop_columns(list(drop))
    pq.write_table(table.replace_schema_metadata({"hyperrl.trajectories": str(version)}), path)


def test_a_newer_version_is_refused(tmp_path):
    path = TrajectoryWriter(tmp_path).write_part([episode()], iteration=0)
    rewritten(path, version=SCHEMA_VERSION + 1)
    for read in (lambda: list(read_trajectories(tmp_path)), lambda: list_episodes(tmp_path)):
        with pytest.raises(StoreError, match=r"part-0.*newer hyperrl \(trajectory schema 2; .*Upgrade"):
            read()


def test_a_field_that_an_older_file_lacks_takes_its_default(tmp_path):
    path = TrajectoryWriter(tmp_path).write_part([every_field()], iteration=0)
    rewritten(path, version=SCHEMA_VERSION, drop=("sandbox_level", "timings", "events"))
    [back] = read_trajectories(tmp_path)
    assert (back.sandbox_level, dict(back.timings), back.events) == ("none", {}, ())
    assert back.turns == every_field().turns
    rewritten(path, version=SCHEMA_VERSION, drop=("run_id",))
    with pytest.raises(StoreError, match="run_id"):
        list(read_trajectories(tmp_path))


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_files_of_every_older_version_open(tmp_path, version):
    shutil.copy(DATA / f"schema-{version}.parquet", tmp_path / "part-00000000-00000.parquet")
    assert identical(list(read_trajectories(tmp_path)), [every_field()])
    assert len(list_episodes(tmp_path)) == 1
    import_jsonl(DATA / f"schema-{version}.jsonl", tmp_path / "imported")
    assert identical(list(read_trajectories(tmp_path / "imported")), [every_field()])


def test_names_and_numbers_of_parts_are_checked(tmp_path):
    writer = TrajectoryWriter(tmp_path)
    with pytest.raises(StoreError, match="at least 0, got -1 and 0"):
        writer.write_part([], iteration=-1)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make the trajectory store"):
        TrajectoryWriter(tmp_path / "file" / "store")


def test_a_failing_source_leaves_the_old_part(tmp_path):
    def broken():
        yield episode(1)
        raise RuntimeError("no more")

    writer = TrajectoryWriter(tmp_path)
    writer.write_part([episode(0)], iteration=0)
    with pytest.raises(RuntimeError, match="no more"):
        writer.write_part(broken(), iteration=0)
    assert tasks(tmp_path) == ["task-0"]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_refuses_is_reported(tmp_path):
    (tmp_path / "part-00000000-00000.parquet").mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*part-00000000-00000\.parquet"):
        TrajectoryWriter(tmp_path).write_part([episode()], iteration=0)


WRITER = """
    import sys
    import numpy as np
    from hyperrl.store import TrajectoryWriter
    from hyperrl.trajectory import Event, Trajectory

    def episodes(count, announce_at=None):
        for index in range(count):
            if index == announce_at:
                print("writing", flush=True)
                sys.stdin.read()
            text = f"{index} " * 400_000
            yield Trajectory(run_id="r", group_id=(0, index), sample_index=0, task_id=f"task-{index}",
                             env_id="e", events=(Event(turn=None, observation=text),))

    writer = TrajectoryWriter(sys.argv[1])
"""


def start_writer(directory: Path, body: str) -> subprocess.Popen:
    code = textwrap.dedent(WRITER) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_killed_writer_loses_only_the_part_it_was_writing(tmp_path):
    process = start_writer(
        tmp_path,
        """
        writer.write_part(episodes(2), iteration=0)
        writer.write_part(episodes(3), iteration=1)
        writer.write_part(episodes(100, announce_at=60), iteration=1)
        """,
    )
    assert process.stdout.readline() == "writing\n"
    kill(process)
    [leftover] = tmp_path.glob("*.tmp")
    assert leftover.stat().st_size > 0, "row groups had been written"
    assert tasks(tmp_path) == ["task-0", "task-1", "task-0", "task-1", "task-2"]
    assert len(list_episodes(tmp_path)) == 5

    writer = TrajectoryWriter(tmp_path)
    writer.write_part([episode(8)], iteration=2)
    assert leftover.exists(), "another part is no business of this writer"
    writer.write_part([episode(9)], iteration=1)
    assert not list(tmp_path.glob("*.tmp"))
    assert tasks(tmp_path) == ["task-0", "task-1", "task-9", "task-8"]


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.1, 0.2, 0.35])
def test_a_store_opens_whenever_its_writer_is_killed(tmp_path, delay_s):
    process = start_writer(
        tmp_path,
        """
        writer.write_part(episodes(3), iteration=0)
        print("ready", flush=True)
        for iteration in range(100_000):
            writer.write_part(episodes(3), iteration=iteration % 7)
        """,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay_s)
    kill(process)
    parts = list(tmp_path.glob("*.parquet"))
    assert len(list(tmp_path.glob("*.tmp"))) <= 1
    assert tasks(tmp_path) == ["task-0", "task-1", "task-2"] * len(parts)


def write_share(directory: str, rank: int) -> int:
    writer = TrajectoryWriter(directory)
    for iteration in range(5):
        writer.write_part([episode(10 * iteration + rank)] * 3, iteration=iteration, rank=rank)
    return os.getpid()


def test_ranks_write_at_the_same_time(tmp_path):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(write_share, [str(tmp_path)] * 4, range(4)))
    expected = [
        f"task-{10 * iteration + rank}" for iteration in range(5) for rank in range(4) for _ in range(3)
    ]
    assert tasks(tmp_path) == expected


def test_an_export_takes_the_iterations_asked_for(tmp_path):
    writer = TrajectoryWriter(tmp_path / "store")
    for iteration in range(3):
        writer.write_part([episode(iteration)], iteration=iteration)
    assert export_jsonl(writer.directory, tmp_path / "one.jsonl", iterations={1}) == 1
    [line] = (tmp_path / "one.jsonl").read_text().splitlines()
    assert (json.loads(line)["iteration"], json.loads(line)["task_id"]) == (1, "task-1")


def test_an_import_never_overwrites_a_store(tmp_path):
    TrajectoryWriter(tmp_path / "store").write_part([episode()], iteration=0)
    export_jsonl(tmp_path / "store", tmp_path / "all.jsonl")
    with pytest.raises(StoreError, match="already holds a trajectory store"):
        import_jsonl(tmp_path / "all.jsonl", tmp_path / "store")


def test_an_unreadable_line_is_named(tmp_path):
    TrajectoryWriter(tmp_path / "store").write_part([episode(0), episode(1)], iteration=0)
    export_jsonl(tmp_path / "store", tmp_path / "all.jsonl")
    first, second = (tmp_path / "all.jsonl").read_text().splitlines()
    cases = {
        "{": "JSONDecodeError",
        "[]": "not an exported episode",
        second.replace('"schema": 1', '"schema": 9'): "newer hyperrl",
        second.replace('"seed"', '"sead"'): "sead",
        second.replace('"truncated": false', '"truncated": true'): "TrajectoryError",
        second.replace('"iteration": 0, ', ""): "iteration",
    }
    for number, (line, message) in enumerate(cases.items()):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(f"{first}\n{line}\n")
        with pytest.raises(StoreError, match=rf"{number}\.jsonl, line 2 .*{message}"):
            import_jsonl(path, tmp_path / f"store-{number}")
    with pytest.raises(StoreError, match="cannot read"):
        import_jsonl(tmp_path / "missing.jsonl", tmp_path / "empty")


def test_scattered_episodes_of_a_part_are_refused(tmp_path):
    writer = TrajectoryWriter(tmp_path / "store")
    writer.write_part([episode(0)], iteration=0)
    writer.write_part([episode(1)], iteration=1)
    export_jsonl(writer.directory, tmp_path / "all.jsonl")
    first, second = (tmp_path / "all.jsonl").read_text().splitlines()
    (tmp_path / "mixed.jsonl").write_text("\n".join([first, second, first]) + "\n")
    with pytest.raises(StoreError, match="do not stand together"):
        import_jsonl(tmp_path / "mixed.jsonl", tmp_path / "other")
