"""Commands as agent programs: the environment's tools over MCP, the answer, the ways to fail."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")
from repairs import BROKEN, RecordingSampler, call, check_every_token, play_with, repair_script

from hyperrl.agents.rendering import TemplateRenderer, load_renderer
from hyperrl.agents.rollout import RolloutLimits
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.command import CommandAdapter
from hyperrl.harness.cli_program import CliProgram, CliSettings
from hyperrl.harness.gateway import sessions
from hyperrl.trajectory import TruncationReason

AGENT = str(Path(__file__).parents[1] / "plain_agent.py")
SCRIPT = repair_script("sh", "cmd", "run_tests")


def plain(*flags: str, settings: CliSettings | None = None, **values: Any) -> CliProgram:
    adapter = CommandAdapter(
        name="plain",
        words=(sys.executable, AGENT, *flags),
        env={
            "AGENT_URL": "{base_url}",
            "AGENT_KEY": "{api_key}",
            "AGENT_MODEL": "{model}",
            "AGENT_TOOLS": "{mcp_url}",
        },
    )
    return CliProgram(dataclasses.replace(adapter, **values), settings)


@pytest.fixture(scope="module")
def renderer(qwen3_dir: Path) -> TemplateRenderer:
    return load_renderer(qwen3_dir)


def test_a_command_repairs_a_repository_with_the_tools_of_the_environment(renderer: TemplateRenderer) -> None:
    sampler = RecordingSampler(renderer, SCRIPT)
    first, second = play_with(plain(), sampler, renderer, size=2)
    for trajectory in (first, second):
        assert trajectory.failure is None
        assert trajectory.program == "plain"
        assert trajectory.reward == 1.5
        assert trajectory.terminated
        check_every_token(trajectory, sampler)
        assert [turn.parent for turn in trajectory.turns] == [None, 0, 1, 2, 3]
        assert trajectory.metrics["new_root_rate"] == 0.0
        assert trajectory.metrics["delivered_fraction"] == 1.0
        records = [[(r.name, r.status) for r in event.tool_calls] for event in trajectory.events]
        looked = {("sh", "ok"), ("run_tests", "ok")}
        assert [set(found) for found in records] == [
            looked,
            {("", "invalid_json")},
            {("sh", "ok")},
            {("run_tests", "ok")},
            set(),
        ]
        results = {r.name: r.result for r in trajectory.events[0].tool_calls}
        assert results == {"sh": BROKEN.rstrip("\n") + "\n", "run_tests": "FAILED: add(2, 3) should be 5"}
        assert trajectory.events[3].tool_calls[0].result == "passed"
        assert len({r.call_id for event in trajectory.events for r in event.tool_calls}) == 5


def test_reasoning_and_answer_reach_the_environment_as_in_the_turn_loop(renderer: TemplateRenderer) -> None:
    [trajectory] = play_with(plain(), RecordingSampler(renderer, [SCRIPT[-1]]), renderer)
    assert {term.name: term.score for term in trajectory.reward_terms} == {"repaired": 0.0, "said_done": 1.0}
    assert trajectory.events[0].stepped


@pytest.mark.parametrize(
    ("flags", "kind", "said"),
    [
        (("--crash",), "program_exit", "it broke at the end"),
        (("--silent",), "no_answer", "plain ended without an answer"),
    ],
)
def test_a_program_that_fails_is_a_failure_of_its_own_kind(
    flags: tuple[str, ...], kind: str, said: str, renderer: TemplateRenderer
) -> None:
    [trajectory] = play_with(plain(*flags), RecordingSampler(renderer, ["5"]), renderer, env="Question")
    assert trajectory.failure.kind == kind
    assert trajectory.failure.stage == "program"
    assert said in trajectory.failure.reason


def test_work_without_an_answer_is_scored_where_none_is_needed(renderer: TemplateRenderer) -> None:
    program = plain("--silent", settings=CliSettings(needs_answer=False))
    [trajectory] = play_with(program, RecordingSampler(renderer, SCRIPT), renderer)
    assert trajectory.failure is None
    assert {term.name: term.score for term in trajectory.reward_terms} == {"repaired": 1.0, "said_done": 0.0}


def test_a_program_that_hangs_ends_within_its_limit(renderer: TemplateRenderer) -> None:
    settings = CliSettings(timeout_s=1.0, interrupt_s=0.2)
    program = plain(words=("sleep", "300"), settings=settings)
    [trajectory] = play_with(program, RecordingSampler(renderer, []), renderer, env="Question")
    assert trajectory.failure.kind == "program_timeout"


def test_a_program_that_is_killed_is_recorded_with_the_signal(renderer: TemplateRenderer) -> None:
    program = plain(words=("sh", "-c", "kill -TERM $$"))
    [trajectory] = play_with(program, RecordingSampler(renderer, []), renderer, env="Question")
    assert trajectory.failure.kind == "program_signal"
    assert "signal 15" in trajectory.failure.reason


def test_a_limit_ends_a_program_that_goes_on_asking(renderer: TemplateRenderer) -> None:
    program = plain("--loop", settings=CliSettings(closing_s=0.2, interrupt_s=1.0))
    looks = [call("sh", cmd="echo hello")] * 9
    limits = RolloutLimits(max_turns=2, wall_clock_s=60)
    [trajectory] = play_with(program, RecordingSampler(renderer, looks), renderer, limits=limits)
    assert trajectory.failure is None
    assert trajectory.truncation_reason is TruncationReason.MAX_TURNS
    assert trajectory.reward == 0.0


def test_a_context_without_room_for_the_first_prompt_is_no_failure(renderer: TemplateRenderer) -> None:
    limits = RolloutLimits(max_context=50, wall_clock_s=60)
    sampler = RecordingSampler(renderer, SCRIPT)
    [trajectory] = play_with(plain(), sampler, renderer, env="Question", limits=limits)
    assert trajectory.failure is None
    assert trajectory.truncation_reason is TruncationReason.CONTEXT
    assert trajectory.reward == 0.0


def test_a_first_prompt_that_fills_the_episode_is_warned_of_once(
    renderer: TemplateRenderer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_WARNED", set())
    limits = RolloutLimits(max_episode_tokens=50, wall_clock_s=60)
    sampler = RecordingSampler(renderer, SCRIPT)
    played = play_with(plain(), sampler, renderer, env="Question", limits=limits, size=2)
    assert {t.truncation_reason for t in played} == {TruncationReason.MAX_TOKENS}
    [said] = [record.getMessage() for record in caplog.records if record.name == sessions.__name__]
    assert re.search(r"before its first answer: a first prompt of \d+ tokens leaves none of the 50", said)


def test_out_of_time_is_truncated_and_scored(renderer: TemplateRenderer) -> None:
    limits = RolloutLimits(wall_clock_s=3.0)
    sampler = RecordingSampler(renderer, [SCRIPT[2], call("sh", cmd="setsid sleep 300")])
    [trajectory] = play_with(plain(), sampler, renderer, limits=limits)
    assert trajectory.failure is None
    assert trajectory.truncation_reason is TruncationReason.WALL_CLOCK
    assert trajectory.reward == 1.0  # what was mended counts


def test_home_and_workspace_go_and_the_environment_of_the_caller_stays_out(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "x")
    seen = tmp_path / "seen"
    program = plain("--silent", settings=CliSettings(needs_answer=False))
    look = call("sh", cmd=f"env > {seen}; pwd >> {seen}; ls -A $HOME >> {seen}")
    [trajectory] = play_with(program, RecordingSampler(renderer, [look, "5"]), renderer, env="Question")
    assert trajectory.failure is None
    text = seen.read_text()
    assert "SECRET_OF_THE_CALLER" not in text
    places = [line.partition("=")[2] for line in text.splitlines() if line.startswith(("HOME=", "PWD="))]
    assert len(places) == 2
    assert not any(os.path.exists(place) for place in places)


def test_placeholders_are_checked_and_other_braces_in_files_stay() -> None:
    with pytest.raises(ConfigError, match=r"no placeholder \{promt\}.*prompt"):
        CommandAdapter(name="x", words=("x", "{promt}"))
    with pytest.raises(ConfigError, match="no words"):
        CommandAdapter(name="x", words=())


def test_a_missing_program_says_how_to_install_it(renderer: TemplateRenderer) -> None:
    program = plain(words=("no-such-agent",), install="pip install no-such-agent")
    with pytest.raises(ConfigError, match="Install it: pip install no-such-agent"):
        play_with(program, RecordingSampler(renderer, []), renderer, env="Question")


def test_a_run_with_a_missing_program_is_refused_before_it_starts(
    make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hyperrl.wiring.preflight import check_run

    monkeypatch.setenv("HYPERRL_CODEX", "/nowhere/codex")
    config = make_run(env={"id": "hyperrl/GSM8K-v0", "kwargs": {}, "program": "codex"})
    with pytest.raises(ConfigError, match="Install Codex: npm install"):
        check_run(config)
    assert not config.run.dir.exists()
