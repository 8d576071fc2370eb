"""Real programs mend a repository through the gateway: a scripted policy with the real Qwen3 tokenizer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from connections import Connections
from real_programs import RealProgram, files_in, note, processes_of, turns_of
from repairs import BROKEN, RecordingSampler, check_every_token, play_with

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.agents.rollout import RolloutLimits
from hyperrl.trajectory import Trajectory

pytestmark = pytest.mark.slow
SHELLS = {"codex": "exec_command", "deepseek": "bash"}


def check_repaired(trajectory: Trajectory, sampler: RecordingSampler) -> None:
    """Assert that every sampled token is recorded once and learned from, and that the tools worked."""
    assert trajectory.failure is None
    assert trajectory.terminated
    assert {term.name: term.score for term in trajectory.reward_terms} == {"repaired": 1.0, "said_done": 1.0}
    check_every_token(trajectory, sampler)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1, 2, 3]
    assert {turn.use for turn in trajectory.turns} == {"train"}
    assert trajectory.metrics["new_root_rate"] == 0.0
    assert trajectory.metrics["delivered_fraction"] == 1.0
    assert trajectory.metrics["gateway_requests"] == 5
    looked, bad, mended, tested, ended = [event.tool_calls for event in trajectory.events]
    assert {record.name for record in looked} == {"run_tests", SHELLS[trajectory.program]}
    assert any(BROKEN.strip() in record.result for record in looked)
    assert any("FAILED: add(2, 3) should be 5" in record.result for record in looked)
    assert [record.status for record in bad] == ["invalid_json"]
    assert [record.status for record in mended] == ["ok"]
    assert [(record.name, record.result) for record in tested] == [("run_tests", "passed")]
    assert ended == ()


def test_programs_repair_a_repository_token_exactly_over_loopback_only(
    real: RealProgram,
    renderer: TemplateRenderer,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    sampler = RecordingSampler(renderer, real.script())
    began, before = time.perf_counter(), os.times()
    with Connections() as connections:
        program = real.program(lambda: connections.words)
        limits = RolloutLimits(wall_clock_s=200)
        [trajectory] = play_with(program, sampler, renderer, limits=limits)
    seconds, after = time.perf_counter() - began, os.times()
    note(
        record_property,
        program=real.name,
        turns=turns_of(trajectory),
        connections=connections.seen,
        seconds=seconds,
        cpu_here_s=after.user + after.system - before.user - before.system,
        cpu_program_s=after[2] + after[3] - before[2] - before[3],
    )
    assert trajectory.program == real.name
    check_repaired(trajectory, sampler)
    assert {address for address, _ in connections.seen} == {"127.0.0.1"}
    assert len({port for _, port in connections.seen}) == 1
    assert files_in(real.homes, tmp_path) + processes_of(real.homes, tmp_path) == []
