"""A whole training run in this process: real environment, sampler, learner, publication, store."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import secret_env

from hyperrl.errors import (
    ConfigError,
    DataError,
    InvariantError,
    ModelError,
    RunDirectoryError,
)
from hyperrl.store import read_tokenizers, read_trajectories
from hyperrl.train.config import load_config
from hyperrl.train.device import resolve_dtype
from hyperrl.train.models import load_model, make_tiny_model
from hyperrl.train.trainer import Trainer
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.display import Silent
from hyperrl.wiring.eval_policies import ModelChoice
from hyperrl.wiring.evaluation import EvalSettings, run_evaluation
from hyperrl.wiring.saved_model import evaluate_model, roll_out
from hyperrl.wiring.sft import run_warm_start
from hyperrl.wiring.training import run_training

TIMINGS = ("timing_s/", "perf/")


def metrics_of(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {name: value for name, value in json.loads(line).items() if not name.startswith(TIMINGS)}
        for line in lines
    ]


def without_timings(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    import dataclasses

    return [dataclasses.replace(t, timings={}) for t in trajectories]


def test_a_run_leaves_everything_it_promises(make_run) -> None:
    config = make_run()
    outcome = run_training(config, Silent())

    folder = config.run.dir
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert set(summary) == {
        *("before", "after", "gain", "gain_low", "gain_high", "iterations", "policy_version", "seconds"),
        "unmet",
    }
    assert summary["iterations"] == 2
    assert summary["policy_version"] == 2
    assert summary["gain"] == pytest.approx(summary["after"] - summary["before"])
    assert outcome.result.before.sampled.scored == 6
    assert (folder / "reward_curve.png").read_bytes().startswith(b"\x89PNG")
    assert load_config(folder / "config.yaml") == config
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (folder / "model").iterdir()
    }


def test_every_trajectory_is_stored_with_the_version_that_drew_it(make_run) -> None:
    config = make_run()
    run_training(config, Silent())

    for iteration in (1, 2):
        stored = list(read_trajectories(config.run.dir / "trajectories", iterations=[iteration]))
        assert len(stored) == 12
        for trajectory in stored:
            assert trajectory.failure is None
            assert trajectory.reward is not None
            for turn in trajectory.turns:
                assert turn.sampled
                assert set(turn.policy_versions.tolist()) == {iteration - 1}


def test_updates_change_the_weights_and_the_gate_saw_every_token(make_run) -> None:
    config = make_run()
    run_training(config, Silent())

    before = load_model(config.model.path, dtype=resolve_dtype("float32"), device=torch_cpu())
    after = load_model(config.run.dir / "model", dtype=resolve_dtype("float32"), device=torch_cpu())
    changed = [
        not np.array_equal(old.detach().numpy(), new.detach().numpy())
        for old, new in zip(before.parameters(), after.parameters(), strict=True)
    ]
    assert any(changed)
    rows = [row for row in metrics_of(config.run.dir) if "actor/grad_norm" in row]
    assert [row["policy/version"] for row in rows] == [1, 2]
    assert all(row["actor/grad_norm"] > 0 for row in rows)
    stored = read_trajectories(config.run.dir / "trajectories")
    sampled = sum(len(turn.action_ids) for t in stored for turn in t.turns)
    assert sum(row["consistency/tokens"] for row in rows) == sampled


def torch_cpu():
    from hyperrl.train.device import resolve_device

    return resolve_device("cpu")


def test_the_same_seed_gives_the_same_run_and_another_seed_another(make_run) -> None:
    first, second = make_run("a"), make_run("b", run={"name": "a"})
    other = make_run("c", run={"name": "a", "seed": 4})
    for config in (first, second, other):
        run_training(config, Silent())

    assert metrics_of(first.run.dir) == metrics_of(second.run.dir)
    played = [
        without_timings(read_trajectories(config.run.dir / "trajectories"))
        for config in (first, second, other)
    ]
    assert played[0] == played[1]
    assert played[0] != played[2]


def test_splitting_the_batch_does_not_change_what_is_learned(make_run) -> None:
    whole = make_run("whole", run={"name": "x"}, model={"dtype": "float64"}, consistency={"mode": "off"})
    split = make_run(
        "split",
        run={"name": "x"},
        model={"dtype": "float64"},
        consistency={"mode": "off"},
        algorithm={"microbatch_tokens": 300},
    )
    for config in (whole, split):
        run_training(config, Silent())
    left, right = metrics_of(whole.run.dir), metrics_of(split.run.dir)
    for a, b in zip(left, right, strict=True):
        if "actor/grad_norm" in a:
            assert math.isclose(a["actor/grad_norm"], b["actor/grad_norm"], rel_tol=1e-9)
            assert math.isclose(a["actor/pg_loss"], b["actor/pg_loss"], rel_tol=1e-6, abs_tol=1e-12)


def test_float64_decoding_is_exact_and_the_gate_agrees(make_run) -> None:
    config = make_run(model={"dtype": "float64"})
    run_training(config, Silent())
    rows = [row for row in metrics_of(config.run.dir) if "consistency/logprob_diff_max" in row]
    assert rows
    assert all(row["consistency/logprob_diff_max"] <= 1e-6 for row in rows)


def test_a_warm_start_is_what_training_goes_on_from(make_run, tiny_model: Path, tmp_path: Path) -> None:
    sft = {"start": str(tiny_model), "steps": 3, "batch_size": 4, "examples": 8}
    config = make_run(
        model={"path": str(tmp_path / "warm")},
        env={"id": "hyperrl/SortDigits-v0", "kwargs": {}},
        rollout={"max_tokens": 10},
        sft=sft,
    )
    assert run_warm_start(config, Silent()) == tmp_path / "warm"
    with pytest.raises(RunDirectoryError, match="exists already"):
        run_warm_start(config, Silent())
    assert run_training(config, Silent()).result.policy_version >= 0


def test_a_saved_model_evaluates_to_the_number_of_its_run(make_run) -> None:
    config = make_run()
    outcome = run_training(config, Silent())
    saved = config.model_copy(
        update={"model": config.model.model_copy(update={"path": config.run.dir / "model"})}
    )
    evaluation = evaluate_model(saved, Silent())
    assert evaluation.sampled == outcome.result.after.sampled
    assert evaluation.greedy == outcome.result.after.greedy


def test_hyperrl_eval_gives_the_number_of_the_run(make_run, tmp_path: Path) -> None:
    config = make_run(env={"id": "hyperrl/SortDigits-v0", "kwargs": {}}, iterations=1)
    outcome = run_training(config, Silent())
    path = config.run.dir / "model"
    saved = config.model_copy(update={"model": config.model.model_copy(update={"path": path})})
    settings = EvalSettings(config=saved, policy=ModelChoice(path, "float32"), out=tmp_path / "eval")
    figures = run_evaluation(settings, Silent()).figures
    after = outcome.result.after
    assert figures == after.sampled
    assert all(
        turn.sampled for t in read_trajectories(tmp_path / "eval" / "trajectories") for turn in t.turns
    )
    assert read_tokenizers(tmp_path / "eval" / "trajectories") == read_tokenizers(
        config.run.dir / "trajectories"
    )
    greedy = run_evaluation(dataclasses.replace(settings, out=None, temperature=0.0), Silent()).figures
    assert greedy == after.greedy


def test_a_rollout_is_stored_and_not_over_another(make_run, tmp_path: Path) -> None:
    config = make_run()
    groups = roll_out(config, Silent(), out=tmp_path / "episodes")
    played = [trajectory for group in groups for trajectory in group]
    assert list(read_trajectories(tmp_path / "episodes")) == played
    with pytest.raises(RunDirectoryError, match="not empty"):
        roll_out(config, Silent(), out=tmp_path / "episodes")


def test_several_turns_with_a_tool_are_learned_from(make_run, tmp_path: Path) -> None:
    """The gold calls the tool; after a warm start on it the policy calls it by itself."""
    start = make_tiny_model(
        tmp_path / "start", hidden=64, layers=2, heads=2, kv_heads=1, ffn=128, context=512
    )
    config = make_run(
        env={"id": secret_env.ENV_ID, "kwargs": {}},
        model={"path": str(tmp_path / "warm")},
        rollout={"max_turns": 3, "max_tokens": 40, "groups": 2},
        sft={"start": str(start), "steps": 40, "batch_size": 2, "examples": 2, "lr": 1e-2},
        evaluation={"episodes": 2},
        iterations=1,
    )
    run_warm_start(config, Silent())
    run_training(config, Silent())
    played = list(read_trajectories(config.run.dir / "trajectories"))
    longest = max(played, key=lambda trajectory: len(trajectory.turns))
    assert len(longest.turns) > 1
    assert any(call.status == "ok" for t in played for event in t.events for call in event.tool_calls)
    for index, turn in enumerate(longest.turns[1:], start=1):
        assert turn.parent == index - 1
        before = longest.prompt_ids(index - 1).tolist() + longest.turns[index - 1].action_ids.tolist()
        assert longest.prompt_ids(index).tolist()[: len(before)] == before


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    [
        ({"model": {"path": "nowhere"}}, ModelError, "nowhere"),
        ({"rollout": {"max_tokens": 250}}, ConfigError, "beyond the model's context of 256"),
        ({"env": {"id": "hyperrl/GSM9K-v0"}}, ConfigError, "GSM8K"),
        ({"env": {"kwargs": {"path": "none.parquet"}}}, DataError, "none.parquet"),
        ({"env": {"kwargs": {"modus": 1}}}, ConfigError, "modus"),
        ({"env": {"program": "turn_lop"}}, ConfigError, "turn_loop"),
        ({"model": {"device": "warp"}}, ConfigError, "warp"),
        ({"env": {"train_split": "trian"}}, ConfigError, "train"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(make_run, sections, error, message) -> None:
    config = make_run(**sections)
    threads = threading.active_count()
    with pytest.raises(error, match=message):
        run_training(config, Silent())
    assert not config.run.dir.exists()
    assert threading.active_count() == threads


def test_a_folder_belongs_to_one_run_at_a_time(make_run) -> None:
    from hyperrl.wiring.run_directory import RunDirectory

    config = make_run()
    with (
        RunDirectory(config.run.dir),
        pytest.raises(RunDirectoryError, match="in use by another run"),
    ):
        run_training(config, Silent())
    run_training(config, Silent())
    with pytest.raises(RunDirectoryError, match=r"run\.overwrite=true"):
        run_training(config, Silent())
    again = config.model_copy(update={"run": config.run.model_copy(update={"overwrite": True})})
    assert run_training(again, Silent()).result.iterations == 2


def test_an_interrupt_in_the_middle_leaves_no_thread_and_keeps_what_was_written(make_run) -> None:
    config = make_run(iterations=50)
    threads = {thread.name for thread in threading.enumerate()}

    class Interrupting(Silent):
        def advance(self, units: int = 1, text: str = "") -> None:
            if units and text:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_training(config, Interrupting())
    assert {thread.name for thread in threading.enumerate()} == threads
    assert len(list(read_trajectories(config.run.dir / "trajectories"))) == 12
    assert len(metrics_of(config.run.dir)) == 2
    assert not (config.run.dir / "summary.json").exists()


def test_a_stale_batch_stops_the_run(make_run, monkeypatch) -> None:
    config = make_run()

    def skip_ahead(self: Trainer, version: int) -> None:
        self.version = version

    publish = Trainer._publish
    monkeypatch.setattr(
        Trainer, "_publish", lambda self, version: (publish if version == 0 else skip_ahead)(self, version)
    )
    with pytest.raises(InvariantError, match="sampler serves 0"):
        run_training(config, Silent())


def test_the_rollout_thread_cancels_what_still_runs() -> None:
    from hyperrl.wiring.rollout_thread import RolloutThread

    ended = []

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with RolloutThread() as thread:
        asyncio.run_coroutine_threadsafe(wait_forever(), thread._loop)
        assert thread.run(asyncio.sleep(0.01, "slept")) == "slept"
    assert ended == [True]
