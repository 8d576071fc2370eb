"""The real Codex against the gateway, over a scripted policy with the real Qwen3 tokenizer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from repairs import RecordingSampler, call, play_with

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.codex import CodexAdapter, CodexProgram, CodexSettings
from hyperrl.harness.cli_program import CliSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def codex(codex_binary: str, homes: Path) -> CodexProgram:
    return CodexProgram(CodexSettings(binary=codex_binary, retries=0), CliSettings(timeout_s=60, homes=homes))


def test_the_commands_of_the_model_see_neither_key_nor_gateway(
    codex: CodexProgram, renderer: TemplateRenderer
) -> None:
    probe = (
        "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n';"
        " python3 -c 'import socket,os; socket.create_connection((\"127.0.0.1\", 9))'; touch /tmp/codex-probe"
    )
    sampler = RecordingSampler(renderer, [call("exec_command", cmd=probe), "5"])
    [trajectory] = play_with(codex, sampler, renderer, env="Question")
    assert trajectory.reward == 1.0
    seen = trajectory.events[0].tool_calls[0].result
    assert "sk-hyperrl" not in seen
    assert "Operation not permitted" in seen
    assert not Path("/tmp/codex-probe").exists()


def test_a_missing_or_strange_codex_says_how_to_install_it(tmp_path: Path) -> None:
    strange = tmp_path / "codex"
    strange.write_text("#!/bin/sh\necho codex-cli 0.99.1\n")
    strange.chmod(0o755)
    for binary, said in (("no-such-codex", "there is no program"), (str(strange), "is Codex 0.99.1")):
        with pytest.raises(ConfigError, match=rf"{said}.*npm install -g @openai/codex"):
            asyncio.run(CodexAdapter(CodexSettings(binary=binary)).check())
    asyncio.run(CodexAdapter(CodexSettings(binary=str(strange), any_version=True)).check())
