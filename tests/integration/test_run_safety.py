"""Runs that meet bad input, interrupts and nothing to learn from: nothing is lost, nothing is left locked."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import graded_env
import pytest

from hyperrl.errors import ConfigError, HyperrlError, ModelError, RolloutError, RunDirectoryError
from hyperrl.store import read_trajectories
from hyperrl.wiring.display import Silent
from hyperrl.wiring.observer import describe_losses
from hyperrl.wiring.preflight import check_run
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.run_directory import RunDirectory, kept_files, refuse_unavailable
from hyperrl.wiring.saved_model import evaluate_model, roll_out
from hyperrl.wiring.sft import run_warm_start
from hyperrl.wiring.training import run_training

GRADED = {"id": graded_env.ENV_ID, "kwargs": {}}


class Notes(Silent):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def advance(self, units: int = 1, text: str = "") -> None:
        self.texts.append(text)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with something precious in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.txt").write_text("long work", encoding="utf-8")
    return tmp_path


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in metrics")) for line in lines]


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_weights_that_cannot_be_read_are_refused_before_anything_is_written(
    make_run, tiny_model: Path, tmp_path: Path, damage: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    weights = broken / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:-500])
    config = make_run(model={"path": str(broken)})
    with pytest.raises(ModelError, match="broken"):
        run_training(config, Silent())
    assert not config.run.dir.exists()


def test_splits_with_the_same_tasks_are_told(make_run, caplog) -> None:
    check_run(make_run())
    assert caplog.text == ""
    check_run(make_run(env=GRADED))
    assert "'train' and 'test' of hyperrl-tests/Graded-v0 seem to hold the same tasks" in caplog.text


def test_a_run_never_removes_the_model_that_it_starts_from(make_run) -> None:
    first = make_run()
    run_training(first, Silent())
    model = first.run.dir / "model"
    again = make_run(run={"overwrite": True}, model={"path": str(model)})
    with pytest.raises(ConfigError, match=r"lies in its own run\.dir"):
        run_training(again, Silent())
    assert (model / "model.safetensors").exists()
    assert (first.run.dir / "summary.json").exists()


@pytest.mark.parametrize(
    ("grading", "why"),
    [("none", "no group has two scored episodes"), ("same", "the rewards within every group are equal")],
)
def test_iterations_without_signal_go_on_and_say_so(make_run, grading: str, why: str) -> None:
    config = make_run(env=GRADED | {"kwargs": {"grading": grading}})
    display = Notes()
    result = run_training(config, display).result
    assert result.iterations == 2
    assert result.policy_version == 0
    for iteration in (1, 2):
        assert f"iteration {iteration}: no update, version 0 stays: {why}" in display.notes
    rows = read_metrics(config.run.dir)
    assert [row["policy/version"] for row in rows] == [0, 0, 0, 0]
    assert len(list(read_trajectories(config.run.dir / "trajectories"))) == 24


def test_numbers_that_are_none_are_null(make_run) -> None:
    config = make_run(env=GRADED | {"kwargs": {"grading": "none"}})
    display = Notes()
    assert math.isnan(run_training(config, display).result.before.sampled.success.mean)
    summary = json.loads((config.run.dir / "summary.json").read_text(encoding="utf-8"))
    assert summary["before"] is summary["after"] is summary["gain"] is None
    assert read_metrics(config.run.dir)[0]["validation/sampled_success"] is None
    assert "iteration 1: 3 groups dropped; episodes left out: 12 unscored" in display.notes
    assert "no reward" in display.texts


def test_a_skipped_update_is_told() -> None:
    metrics = {"groups/kept": 2.0, "actor/updates_skipped": 1.0, "policy/version": 4.0}
    assert describe_losses(metrics) == ["no update, version 4 stays: loss or gradient is not finite"]
    assert describe_losses({"groups/kept": 2.0, "actor/updates_applied": 1.0, "policy/version": 5.0}) == []


def test_an_iteration_shows_its_episodes_and_its_update(make_run) -> None:
    display = Notes()
    run_training(make_run(iterations=1), display)
    assert [f"{done}/12 episodes" for done in range(1, 13)] == [t for t in display.texts if "episodes" in t]
    assert "updating" in display.texts


def test_fewer_tasks_than_groups_are_played_in_several_epochs(make_run) -> None:
    config = make_run(env=GRADED, rollout={"groups": 5, "group_size": 2}, iterations=1)
    run_training(config, Silent())
    played = list(read_trajectories(config.run.dir / "trajectories"))
    assert sorted({t.group_id for t in played}) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert len({t.seed for t in played}) == 5


def test_neither_timing_nor_places_break_repeatability(make_run) -> None:
    env = GRADED | {"kwargs": {"jitter": True}}
    rollout = {"groups": 4, "max_turns": 3, "max_concurrent": 5}
    runs = [make_run(name, run={"name": "same"}, env=env, rollout=rollout) for name in ("a", "b")]
    for config in runs:
        run_training(config, Silent())
    rows = [
        [
            {name: value for name, value in row.items() if not name.startswith(("timing_s/", "perf/"))}
            for row in read_metrics(config.run.dir)
        ]
        for config in runs
    ]
    assert rows[0] == rows[1]


HOLD = """
import sys, time
from pathlib import Path
from hyperrl.wiring.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_folder_is_free_again_when_its_process_was_killed(make_run) -> None:
    config = make_run(iterations=1)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(config.run.dir)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunDirectoryError, match=f"in use by another run .process {holder.pid}."):
            run_training(config, Silent())
        assert sorted(path.name for path in config.run.dir.iterdir()) == ["run.lock"]
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert kept_files(config.run.dir) == []
    assert run_training(config, Silent()).result.iterations == 1
    assert kept_files(config.run.dir)[0] == "config.yaml"


def test_asking_whether_a_folder_is_available_writes_nothing(tmp_path: Path) -> None:
    refuse_unavailable(tmp_path / "new" / "run", overwrite=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunDirectoryError, match="is not a folder"):
            refuse_unavailable(path, overwrite=True)
    with RunDirectory(tmp_path / "run"), pytest.raises(RunDirectoryError, match="in use"):
        refuse_unavailable(tmp_path / "run", overwrite=True)


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    [
        ({"rollout": {"max_tokens": 300}}, ConfigError, "beyond the model's context of 256"),
        ({"sft": {"start": "nowhere"}}, HyperrlError, "nowhere"),
        ({"model": {"path": "thesis"}}, RunDirectoryError, "is not a model directory"),
        ({"model": {"path": "thesis/text.txt/model"}}, RunDirectoryError, "is not a folder"),
    ],
)
def test_a_warm_start_is_refused_before_it_starts(
    make_run, tiny_model: Path, in_folder: Path, sections: dict[str, Any], error: type, message: str
) -> None:
    thesis = in_folder / "thesis" / "text.txt"
    started = {"model": {"path": "warm"}, "sft": {"start": str(tiny_model), "steps": 1}}
    merged = {name: {**started.get(name, {}), **values} for name, values in {**started, **sections}.items()}
    config = make_run(run={"overwrite": True}, **merged)
    display = Notes()
    with pytest.raises(error, match=message):
        run_warm_start(config, display)
    assert display.texts == []
    assert thesis.read_text(encoding="utf-8") == "long work"
    assert not (in_folder / "warm").exists()


PLAYS = {
    "train": lambda config: run_training(config, Silent()),
    "eval": lambda config: evaluate_model(config, Silent()),
    "rollout": lambda config: roll_out(config, Silent(), out=None),
}


@pytest.mark.parametrize("command", PLAYS)
@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"max_tokens": 250}, "beyond the model's context of 256"),
        ({"max_episode_tokens": 20}, "max_episode_tokens is 20, and the first prompt alone has"),
    ],
)
def test_limits_that_no_episode_fits_are_refused(make_run, command: str, rollout: Any, message: str) -> None:
    config = make_run(rollout=rollout)
    threads = threading.active_count()
    with pytest.raises(ConfigError, match=message):
        PLAYS[command](config)
    assert threading.active_count() == threads


def test_an_output_that_cannot_be_written_is_refused_before_the_rollout(make_run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "episodes"):
        display = Notes()
        with pytest.raises(RunDirectoryError, match="is not a folder"):
            roll_out(make_run(), display, out=out)
        assert display.texts == []


def test_an_interrupted_rollout_keeps_the_episodes_that_ended(make_run, tmp_path: Path) -> None:
    config = make_run(rollout={"max_concurrent": 2})
    threads = threading.active_count()

    class Failing(Silent):
        """Stands for a terminal that goes away."""

        shown = 0

        def advance(self, units: int = 1, text: str = "") -> None:
            self.shown += 1
            if self.shown == 5:
                raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        roll_out(config, Failing(), out=tmp_path / "episodes")
    kept = list(read_trajectories(tmp_path / "episodes"))
    assert 5 <= len(kept) < 12
    assert kept == sorted(kept, key=lambda t: (t.group_id, t.sample_index))
    assert threading.active_count() == threads


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_rollout_thread_ends_the_wait_for_it(end: type[BaseException]) -> None:
    async def leave() -> None:
        raise end("away")

    async def play() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(leave())
            tasks.create_task(asyncio.sleep(600))

    with RolloutThread() as thread, pytest.raises((RolloutError, asyncio.CancelledError, end)):
        thread.run(play())
    with pytest.raises(RolloutError, match="not running"):
        thread.run(play())
