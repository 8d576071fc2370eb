"""Held-out evaluations of a run: settings of their own, several samples, episodes that are kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hyperrl.errors import ConfigError
from hyperrl.store import read_trajectories
from hyperrl.train.figures import compute_figures
from hyperrl.wiring.display import Silent
from hyperrl.wiring.eval_policies import ModelChoice
from hyperrl.wiring.evaluation import EvalSettings, run_evaluation
from hyperrl.wiring.held_out import evaluation_params
from hyperrl.wiring.preflight import check_run
from hyperrl.wiring.saved_model import evaluate_model
from hyperrl.wiring.training import run_training

OWN = {
    "episodes": 4,
    "samples": 3,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "max_tokens": 5,
    "every": 1,
}


def test_settings_that_are_not_given_are_those_of_the_rollout(make_run) -> None:
    rollout = {"temperature": 0.5, "top_k": 7, "max_tokens": 9, "allow_truncated_sampling": True}
    inherited = evaluation_params(make_run(rollout=rollout))
    assert (inherited.temperature, inherited.top_k, inherited.max_tokens) == (0.5, 7, 9)
    own = evaluation_params(make_run(rollout=rollout, evaluation=OWN))
    assert (own.temperature, own.top_p, own.top_k, own.max_tokens) == (0.7, 0.9, 40, 5)
    assert evaluation_params(make_run(evaluation=OWN), temperature=0.0).temperature == 0


def test_a_run_evaluates_with_settings_of_its_own_and_keeps_the_episodes(make_run, tmp_path: Path) -> None:
    config = make_run(evaluation=OWN)
    after = run_training(config, Silent()).result.after

    for kind, figures, copies in (("sampled", after.sampled, 3), ("greedy", after.greedy, 1)):
        folder = config.run.dir / "evaluations" / kind
        for iteration in (0, 1, 2):
            episodes = list(read_trajectories(folder, iterations=[iteration]))
            turns = [turn for episode in episodes for turn in episode.turns]
            assert len(episodes) == 4 * copies
            assert {turn.temperature for turn in turns} == {0.7 if kind == "sampled" else 0.0}
            assert max(len(turn.action_ids) for turn in turns) == 5
            assert {int(v) for turn in turns for v in turn.policy_versions} == {iteration}
        assert compute_figures(episodes, threshold=1.0, ks=sorted({1, copies})) == figures
    trained = next(read_trajectories(config.run.dir / "trajectories"))
    assert max(len(turn.action_ids) for turn in trained.turns) == 8

    lines = (config.run.dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if "validation/tasks" in (row := json.loads(line))]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[-1]["validation/episodes"] == 12
    assert rows[-1]["validation/pass_at/1"] == pytest.approx(rows[-1]["validation/sampled_success"])
    assert rows[-1]["validation/pass_at_high/3"] >= rows[-1]["validation/pass_at/3"]

    path = config.run.dir / "model"
    saved = config.model_copy(update={"model": config.model.model_copy(update={"path": path})})
    assert evaluate_model(saved, Silent()) == dataclasses.replace(after, version=0)
    settings = EvalSettings(config=saved, policy=ModelChoice(path, "float32"), samples=3, ks=(1, 3))
    assert run_evaluation(settings, Silent()).figures == after.sampled


def test_the_gain_is_taken_task_by_task(make_run) -> None:
    config = make_run(evaluation={"episodes": 8, "samples": 2, "success": 0.3}, iterations=1)
    result = run_training(config, Silent()).result
    before, after = result.before.sampled.success_by_task, result.after.sampled.success_by_task
    differences = np.array([after[task] - before[task] for task in before])
    half = 1.959963984540054 * differences.std(ddof=1) / np.sqrt(len(differences))
    summary = result.summary()
    assert summary["gain"] == pytest.approx(differences.mean())
    assert summary["gain_low"] == pytest.approx(differences.mean() - half)
    assert summary["gain_high"] == pytest.approx(differences.mean() + half)


def test_an_answer_of_an_evaluation_that_does_not_fit_is_refused(make_run) -> None:
    config = make_run(evaluation={"max_tokens": 10_000})
    with pytest.raises(ConfigError, match=r"evaluation\.max_tokens is 10000"):
        check_run(config)
