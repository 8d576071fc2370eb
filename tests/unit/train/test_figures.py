"""Figures of an evaluation: what counts, and what is counted apart."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hyperrl.train.figures import compute_figures, unscored_cause
from hyperrl.train.metrics import find_metric
from hyperrl.trajectory import Event, Failure, RewardTerm, ToolRecord, Trajectory, TruncationReason

TIMEOUT = Failure(kind="reward_timeout", stage="reward", reason="too slow")
DOWN = Failure(kind="endpoint_refused", stage="policy", reason="no server")


def episode(task: int, sample: int, score: float | None, **values: Any) -> Trajectory:
    term = RewardTerm(name="right", score=score, error=TIMEOUT if score is None else None)
    values.setdefault("reward_terms", (term,))
    return Trajectory(
        run_id="eval", group_id=(0, task), sample_index=sample, task_id=str(task), env_id="env", **values
    )


def test_means_are_over_tasks_and_unscored_episodes_are_in_none() -> None:
    played = [
        *[episode(0, i, score) for i, score in enumerate((1.0, 1.0, 0.0, None))],
        *[episode(1, i, score) for i, score in enumerate((0.0, 0.5, 0.0, 0.0))],
        episode(2, 0, 1.0, failure=DOWN),
    ]
    figures = compute_figures(played, threshold=1.0, ks=(1, 2, 4))
    assert (figures.episodes, figures.scored) == (9, 7)
    assert figures.unscored == {"endpoint_refused": 1, "reward_timeout": 1}
    assert figures.causes == {"right": 2, "wrong": 5, "timeout": 1, "failed": 1}
    assert figures.success.mean == pytest.approx((2 / 3 + 0) / 2)
    assert figures.reward.mean == pytest.approx((2 / 3 + 0.125) / 2)
    assert figures.pass_at[1].mean == pytest.approx(figures.success.mean)
    assert figures.pass_at[2].mean == pytest.approx(0.5)
    assert figures.pass_at[4].tasks == 1, "the other task has three scored samples"
    assert figures.pass_at[4].mean == 0


def test_all_unscored_is_no_zero() -> None:
    figures = compute_figures([episode(0, 0, None)], threshold=1.0)
    assert math.isnan(figures.success.mean)
    assert math.isnan(figures.pass_at[1].mean)
    assert figures.metrics()["eval/unscored"] == 1


def test_causes_of_no_reward() -> None:
    assert unscored_cause(episode(0, 0, 1.0)) == ""
    assert unscored_cause(episode(0, 0, None)) == "reward_timeout"
    assert unscored_cause(episode(0, 0, None, failure=DOWN)) == "endpoint_refused"
    assert unscored_cause(episode(0, 0, None, reward_terms=())) == "no_reward"


def test_what_else_is_counted_has_a_row_in_the_table_of_metrics() -> None:
    call = ToolRecord(call_id="1", name="add", arguments="{}", status="ok", result="5")
    cut = episode(
        1,
        0,
        0.0,
        truncated=True,
        truncation_reason=TruncationReason.MAX_TURNS,
        metrics={"endpoint_prompt_tokens": 30, "endpoint_completion_tokens": 7},
        events=(Event(turn=None, observation="", tool_calls=(call,)),),
    )
    figures = compute_figures([episode(0, 0, None), cut], threshold=1.0, ks=(1,))
    metrics = figures.metrics()
    for name in metrics:
        find_metric(name)
    assert metrics["eval/truncated/max_turns"] == 1
    assert metrics["eval/tool_calls/ok"] == 1
    assert (metrics["eval/prompt_tokens"], metrics["eval/completion_tokens"]) == (30, 7)
