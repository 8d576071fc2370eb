"""The logic of `make check-learning`: what is run again, what fails, and the page made from records."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import check_learning  # noqa: E402
import learning_page  # noqa: E402
import learning_runs  # noqa: E402
from learning_runs import RUNS, LearningRun, execute, read_record  # noqa: E402


def make_record(run: LearningRun, **values: object) -> dict[str, object]:
    curve = [[0, 0.5, 0.44, 0.56, 0.7], [20, 0.81, 0.76, 0.86, 0.9]]
    figures = {"before": 0.5, "after": 0.81, "gain": 0.31, "gain_low": 0.24, "gain_high": 0.38}
    return {
        "name": run.name,
        "task": run.task,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "digest": run.digest(),
        "unmet": [],
        "warm": {"steps": 100, "success": 0.5},
        **figures,
        "iterations": 20,
        "tasks": 256,
        "curve": curve,
        "seconds": 61.0,
        "cpu_seconds": 60.0,
        "date": "2026-01-02",
        "machine": "2 CPU cores",
        "versions": {"Python": "3.11.9", "torch": "2.13.0"},
        **({"calculator_off": 0.004, "calculator_none": 0.0} if run.task == "calculator" else {}),
        **values,
    }


def write_record(run: LearningRun, root: Path, **values: object) -> None:
    folder = root / run.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(make_record(run, **values)), encoding="utf-8")


def test_the_runs_are_the_ones_that_the_tables_need() -> None:
    names = {run.name for run in RUNS}
    assert len(names) == len(RUNS)
    both = {
        f"{task}-{name}-{s}" for task in ("sort6", "reverse5") for name in ("grpo", "ppo") for s in range(3)
    }
    single = {f"sort6-{name}-0" for name in ("dr_grpo", "gspo", "cispo", "rloo")}
    assert names == both | single | {"calculator-grpo-0", "arithmetic_smollm2-grpo-0"}
    for run in RUNS:
        assert run.config(Path("x")).algorithm.name == run.algorithm


def test_a_record_counts_for_its_config_in_any_folder_and_for_no_other(tmp_path: Path) -> None:
    run = RUNS[-1]
    assert read_record(run, tmp_path) is None
    write_record(run, tmp_path)
    assert read_record(run, tmp_path) == make_record(run)
    changed = dataclasses.replace(run, overrides=(*run.overrides, "optimizer.lr=0.01"))
    assert read_record(changed, tmp_path) is None
    assert dataclasses.replace(run, cost=1.0).digest() == run.digest()
    (tmp_path / run.name / "summary.json").write_text("{torn", encoding="utf-8")
    assert read_record(run, tmp_path) is None


def test_what_is_done_is_not_run_again_and_the_page_is_made(tmp_path: Path, capsys) -> None:
    for run in RUNS:
        write_record(run, tmp_path / "runs")
    options = ["--dir", str(tmp_path / "runs"), "--docs", str(tmp_path / "docs")]
    assert check_learning.main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{len(RUNS)} of {len(RUNS)} runs are done, 0 to go"
    figures = json.loads(lines[-1])
    assert (figures["runs"], figures["failed"], figures["smallest_gain"]) == (len(RUNS), [], 0.31)
    assert figures["calculator_off"] == 0.004
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert page.count("| +0.310 | +0.240 to +0.380 | 0.700 to 0.900 | 20 | 60 | yes |") == len(RUNS)
    assert "2026-01-02, 2 CPU cores; Python 3.11.9, torch 2.13.0." in page
    assert "solves 0.4%" in page
    for task in learning_page.TITLES:
        plot = tmp_path / "docs" / "results" / f"{task}.svg"
        assert f"results/{task}.svg" in page
        assert plot.read_text(encoding="utf-8").startswith("<?xml")
        assert plot.stat().st_size < 100_000


def test_a_run_that_showed_too_little_fails_the_check_and_is_in_the_page(tmp_path: Path, capsys) -> None:
    for run in RUNS:
        unmet = ["gain: 0.010 gained; at least 0.15 is required"] if run.name == "sort6-gspo-0" else []
        write_record(run, tmp_path / "runs", unmet=unmet)
    options = ["--dir", str(tmp_path / "runs"), "--docs", str(tmp_path / "docs")]
    assert check_learning.main(options) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["failed"] == ["sort6-gspo-0"]
    assert "at least 0.15 is required |" in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")


def test_names_that_there_are_not_are_refused(tmp_path: Path, capsys) -> None:
    assert check_learning.main(["--only", "sort7-grpo-0", "--dir", str(tmp_path)]) == 2
    assert "sort7-grpo-0" in capsys.readouterr().err


@pytest.mark.skipif(not (ROOT / "docs" / "results").exists(), reason="`make check-learning` was not run")
def test_the_shipped_page_is_made_from_the_shipped_records() -> None:
    docs = ROOT / "docs"
    records = json.loads((docs / "results" / "results.json").read_text(encoding="utf-8"))
    assert [record["name"] for record in records] == [run.name for run in RUNS]
    assert (docs / "results.md").read_text(encoding="utf-8") == learning_page.results_page(records)


@pytest.mark.slow
def test_a_run_is_warmed_up_trained_and_recorded_with_what_it_lacks(tmp_path: Path, monkeypatch) -> None:
    """A tiny calculator run: three steps do not reach the floor, one iteration gains nothing."""
    monkeypatch.setattr(learning_runs, "MOST_ROUNDS", 2)
    monkeypatch.setattr(learning_runs, "FURTHER_STEPS", 2)
    small = ("sft.steps=3", "sft.examples=8", "sft.batch_size=2", "rollout.groups=2", "rollout.group_size=2")
    run = LearningRun(
        task="calculator",
        algorithm="grpo",
        overrides=(*small, "iterations=1", "evaluation.episodes=4", "algorithm.minibatches=1"),
    )
    record = execute(run, tmp_path)
    assert record == read_record(run, tmp_path)
    habit = 30  # steps of the second warm start, which makes calling the calculator a choice
    assert record["warm"] == {"steps": 3 + 2 + habit, "success": 0.0}
    assert record["unmet"][0].startswith("nonzero_gradients: no update with a gradient above 0")
    assert any(reason.startswith("gain: 0.000 gained") for reason in record["unmet"])
    assert (record["calculator_off"], record["calculator_none"]) == (0.0, 0.0)
    assert [row[0] for row in record["curve"]] == [0, 1]
    other = dataclasses.replace(run, overrides=(*run.overrides, "optimizer.lr=0.01"))
    before = (tmp_path / "warm" / "calculator-0" / "warm.json").stat().st_mtime_ns
    assert execute(other, tmp_path)["warm"] == record["warm"]
    assert (tmp_path / "warm" / "calculator-0" / "warm.json").stat().st_mtime_ns == before, "made once"
