"""Vendors that fail, and signals: each ends a real program within its limit, as a failure of its kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_vendor import FaultyVendor
from real_programs import RealProgram, files_in, note, processes_of
from repairs import RecordingSampler, plans_for, play_with, pool, settings_for

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.agents.rollout import RolloutLimits, play_episode
from hyperrl.trajectory import Trajectory, TruncationReason

pytestmark = pytest.mark.slow
FAULTS = ("context", "400", "429", "500", "dies", "refuses", "SIGTERM")
PATIENT = ("429", "500", "refuses")  # after these DeepSeek Harness tries again for about 20 s
CASES = [
    *[pytest.param("codex", fault) for fault in FAULTS],
    *[
        pytest.param("deepseek", fault, marks=pytest.mark.full if fault in PATIENT else ())
        for fault in FAULTS
    ],
]
REASONS = {"max_turns": TruncationReason.MAX_TURNS, "max_context": TruncationReason.CONTEXT}
LONG = {"codex": 2500, "deepseek": 3400}
"""Tokens of a context that holds the first prompts of a program, but no long conversation."""
KINDS = {"codex": {"SIGTERM": "program_signal"}, "deepseek": {"SIGTERM": "no_answer"}}


@pytest.mark.parametrize(("real", "fault"), CASES, indirect=["real"])
def test_a_vendor_that_fails_ends_a_program_within_its_limit(
    real: RealProgram,
    fault: str,
    renderer: TemplateRenderer,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    async def main() -> tuple[Trajectory, int]:
        async with FaultyVendor(fault) as vendor:
            sampler = RecordingSampler(renderer, [])
            settings = settings_for(real.program(timeout_s=90), sampler, renderer, gateway=vendor)
            [plan] = plans_for("Question", 1)
            return await play_episode(plan, settings, envs=pool()), vendor.requests

    trajectory, requests = asyncio.run(main())
    assert trajectory.failure is not None
    seconds = trajectory.timings["total_s"]
    note(
        record_property,
        program=real.name,
        fault=fault,
        kind=trajectory.failure.kind,
        requests=requests,
        seconds=seconds,
    )
    kind = KINDS[real.name].get(fault, "program_exit")
    assert (trajectory.failure.kind, trajectory.failure.stage) == (kind, "program")
    assert requests > 0 or fault == "refuses"
    assert files_in(real.homes, tmp_path) + processes_of(real.homes, tmp_path) == []


def test_reasoning_without_an_answer_is_a_failure_of_its_own(
    real: RealProgram, renderer: TemplateRenderer
) -> None:
    sampler = RecordingSampler(renderer, ["<think>\nHm.\n</think>\n\n"])
    [trajectory] = play_with(real.program(), sampler, renderer, env="Question")
    assert trajectory.failure is not None
    assert trajectory.failure.kind == "no_answer"


@pytest.mark.parametrize("limit", ["max_turns", "max_context"])
def test_limits_of_an_episode_cut_it_and_it_is_scored(
    limit: str, real: RealProgram, renderer: TemplateRenderer
) -> None:
    most = {"max_turns": 3, "max_context": LONG[real.name]}[limit]
    limits = RolloutLimits(wall_clock_s=100, **{limit: most})
    script = [real.script()[2]] + [real.shell("cat calc.py")] * 40
    [trajectory] = play_with(real.program(), RecordingSampler(renderer, script), renderer, limits=limits)
    assert trajectory.failure is None
    assert trajectory.truncation_reason is REASONS[limit]
    assert trajectory.reward == 1.0
    assert len(trajectory.turns) > 1


def test_a_task_that_is_too_long_for_the_policy_is_cut_before_its_first_turn(
    real: RealProgram, renderer: TemplateRenderer
) -> None:
    sampler = RecordingSampler(renderer, ["5"], context=100)
    [trajectory] = play_with(real.program(), sampler, renderer, env="Question")
    assert trajectory.failure is None
    assert trajectory.truncation_reason is TruncationReason.CONTEXT
    assert len(trajectory.turns) == 0
