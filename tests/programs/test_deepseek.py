"""The real DeepSeek Harness against the gateway, over a scripted policy with the real Qwen3 tokenizer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from repairs import RecordingSampler, call, play_with

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.agents.rollout import RolloutLimits
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.deepseek import DeepSeekAdapter, DeepSeekProgram, DeepSeekSettings
from hyperrl.harness.cli_program import CliSettings
from hyperrl.trajectory import TruncationReason

pytestmark = pytest.mark.slow


@pytest.fixture
def deepseek(dsh_binary: str, homes: Path) -> DeepSeekProgram:
    return DeepSeekProgram(DeepSeekSettings(binary=dsh_binary), CliSettings(timeout_s=90, homes=homes))


def test_the_shell_of_dsh_does_not_see_the_key_and_a_limit_is_no_failure(
    deepseek: DeepSeekProgram, renderer: TemplateRenderer
) -> None:
    probe = "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"
    look = call("bash", command=probe, description="Look")
    limits = RolloutLimits(max_turns=2, wall_clock_s=90)
    [trajectory] = play_with(deepseek, RecordingSampler(renderer, [look] * 9), renderer, limits=limits)
    assert trajectory.failure is None
    assert trajectory.truncation_reason is TruncationReason.MAX_TURNS
    assert "HOME=" in trajectory.events[0].tool_calls[0].result
    assert "sk-hyperrl" not in trajectory.events[0].tool_calls[0].result


def test_a_missing_dsh_says_how_to_install_it() -> None:
    with pytest.raises(ConfigError, match="pip install deepseek-harness-runtime-bin"):
        asyncio.run(DeepSeekAdapter(DeepSeekSettings(binary="no-such-dsh")).check())
