"""The real DeepSeek Harness against the gateway, over a scripted policy with the real Qwen3 tokenizer."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")
from faulty_vendor import FaultyVendor
from repairs import (
    RecordingSampler,
    call,
    check_every_token,
    plans_for,
    play_with,
    pool,
    repair_script,
    settings_for,
)

from hyperrl.agents.rendering import TemplateRenderer, load_renderer
from hyperrl.agents.rollout import RolloutLimits, play_episode
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.deepseek import DeepSeekAdapter, DeepSeekProgram, DeepSeekSettings
from hyperrl.harness.cli_program import CliProgram, CliSettings, Launch, Place
from hyperrl.trajectory import Trajectory, TruncationReason

pytestmark = pytest.mark.slow
WORDS = {"description": "Work on it"}
SCRIPT = [
    text.replace('"arguments": {"command"', '"arguments": {"description": "Work on it", "command"')
    for text in repair_script("bash", "command", "mcp__env__run_tests")
]


@pytest.fixture(scope="module")
def renderer(qwen3_dir: Path) -> TemplateRenderer:
    return load_renderer(qwen3_dir)


@pytest.fixture
def deepseek(dsh_binary: str) -> DeepSeekProgram:
    return DeepSeekProgram(DeepSeekSettings(binary=dsh_binary), CliSettings(timeout_s=90))


class Traced(DeepSeekAdapter):
    """dsh under strace, which writes down every connection of it and its children."""

    log = Path()

    def launch(self, place: Place) -> Launch:
        launch = super().launch(place)
        words = ("/usr/bin/strace", "-f", "-qq", "-e", "trace=connect", "-o", str(self.log))
        return dataclasses.replace(launch, words=(*words, *launch.words))


def check_repaired(trajectory: Trajectory, sampler: RecordingSampler) -> None:
    assert trajectory.failure is None
    assert trajectory.program == "deepseek"
    assert trajectory.reward == 1.5
    check_every_token(trajectory, sampler)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1, 2, 3]
    assert {turn.use for turn in trajectory.turns} == {"train"}
    assert trajectory.metrics["delivered_fraction"] == 1.0
    looked, bad, mended, tested, ended = [event.tool_calls for event in trajectory.events]
    assert {record.name for record in looked} == {"run_tests", "bash"}
    assert bad[0].status == "invalid_json"
    assert mended[0].result == "(no output)"
    assert (tested[0].name, tested[0].result) == ("run_tests", "passed")
    assert ended == ()


def test_dsh_repairs_a_repository_token_exactly_over_loopback_only(
    dsh_binary: str, renderer: TemplateRenderer, tmp_path: Path
) -> None:
    adapter = Traced(DeepSeekSettings(binary=dsh_binary))
    adapter.log = tmp_path / "connections"
    traced = shutil.which("strace") is not None
    program = CliProgram(adapter if traced else DeepSeekAdapter(adapter.settings), CliSettings(timeout_s=150))
    sampler = RecordingSampler(renderer, SCRIPT)
    limits = RolloutLimits(wall_clock_s=200)
    [trajectory] = play_with(program, sampler, renderer, limits=limits)
    check_repaired(trajectory, sampler)
    if traced:
        text = adapter.log.read_text()
        assert set(re.findall(r'inet_addr\("([^"]+)"\)', text)) == {"127.0.0.1"}
        assert "AF_INET6" not in text


def test_the_shell_of_dsh_does_not_see_the_key_and_a_limit_is_no_failure(
    deepseek: DeepSeekProgram, renderer: TemplateRenderer
) -> None:
    look = call("bash", command="env", **WORDS)
    limits = RolloutLimits(max_turns=2, wall_clock_s=90)
    [trajectory] = play_with(deepseek, RecordingSampler(renderer, [look] * 9), renderer, limits=limits)
    assert trajectory.failure is None
    assert trajectory.truncation_reason is TruncationReason.MAX_TURNS
    assert "HOME=" in trajectory.events[0].tool_calls[0].result
    assert "sk-hyperrl" not in trajectory.events[0].tool_calls[0].result


@pytest.mark.parametrize(("fault", "kind"), [("400", "program_exit"), ("SIGTERM", "no_answer")])
def test_a_vendor_that_fails_ends_dsh_within_its_limit(
    fault: str, kind: str, deepseek: DeepSeekProgram, renderer: TemplateRenderer
) -> None:
    async def main() -> Trajectory:
        async with FaultyVendor(fault) as vendor:
            settings = settings_for(deepseek, RecordingSampler(renderer, []), renderer, gateway=vendor)
            [plan] = plans_for("Question", 1)
            return await play_episode(plan, settings, envs=pool())

    trajectory = asyncio.run(main())
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.failure.stage) == (kind, "program")


def test_a_missing_dsh_says_how_to_install_it() -> None:
    with pytest.raises(ConfigError, match="pip install deepseek-harness-runtime-bin"):
        asyncio.run(DeepSeekAdapter(DeepSeekSettings(binary="no-such-dsh")).check())
