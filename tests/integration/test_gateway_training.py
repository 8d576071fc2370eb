"""Training on what an agent did that knows nothing of hyperrl."""

from __future__ import annotations

import json
import threading

import pytest

pytest.importorskip("uvicorn")

import client_agent

from hyperrl.store import read_trajectories
from hyperrl.wiring.display import Silent
from hyperrl.wiring.saved_model import roll_out
from hyperrl.wiring.training import run_training


@pytest.mark.slow
def test_two_updates_on_episodes_of_an_agent_behind_the_gateway(make_run) -> None:
    program = f"{client_agent.__name__}:run"
    config = make_run(
        env={"id": "hyperrl/GSM8K-v0", "kwargs": {"format_weight": 1.0}, "program": program},
        rollout={"max_turns": 4, "max_tokens": 24},
        evaluation={"episodes": 2},
    )
    before = threading.active_count()
    run_training(config, Silent())
    assert threading.active_count() == before
    rows = [json.loads(line) for line in (config.run.dir / "metrics.jsonl").read_text().splitlines()]
    assert all(row["rollout/new_root_rate"] == 0 for row in rows if "rollout/new_root_rate" in row)
    played = list(read_trajectories(config.run.dir / "trajectories"))
    assert len(played) == 24
    assert {trajectory.program for trajectory in played} == {program}
    assert {len(trajectory.turns) for trajectory in played} <= {1, 2}
    assert any(len(trajectory.turns) == 2 for trajectory in played)
    assert all(trajectory.failure is None for trajectory in played)
    versions = {version for t in played for turn in t.turns for version in turn.policy_versions.tolist()}
    assert versions == {0, 1}


@pytest.mark.parametrize("learn_from", [[], ["subagent"]])
def test_a_config_says_which_side_requests_are_learned_from(make_run, learn_from: list[str]) -> None:
    config = make_run(
        env={"program": f"{client_agent.__name__}:run_with_a_child", "learn_from": learn_from},
        rollout={"groups": 1, "group_size": 2, "max_turns": 4},
    )
    [group] = roll_out(config, Silent(), out=None)
    uses = {tuple(turn.use for turn in trajectory.turns) for trajectory in group}
    assert uses == {("train", "train" if learn_from else "side")}
