"""The real DeepSeek Harness as one process with many sessions."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from repairs import RecordingSampler, call, check_every_token, plans_for, play_with, pool, settings_for

from hyperrl.agents.rendering import TemplateRenderer, load_renderer
from hyperrl.agents.rollout import play_groups
from hyperrl.harness.adapters.deepseek import DeepSeekSettings
from hyperrl.harness.adapters.deepseek_shared import SharedDeepSeekProgram
from hyperrl.harness.cli_program import CliSettings
from hyperrl.harness.gateway import Gateway

pytestmark = pytest.mark.slow
LOOK = call("bash", command="echo here; pwd", description="Look")
SCRIPT = [
    f"<think>\nFirst look.\n</think>\n\n{LOOK}\n{call('bash', command='exit 3', description='Fail')}",
    '<tool_call>\n{"name": "bash", "arguments": {"command": "ls",, }\n</tool_call>',
    "<think>\nIt is five.\n</think>\n\n5",
]


@pytest.fixture(scope="module")
def renderer(qwen3_dir: Path) -> TemplateRenderer:
    return load_renderer(qwen3_dir)


@pytest.fixture
def homes() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dsh-homes-", dir="/var/tmp") as folder:
        yield Path(folder)


def running(homes: Path, name: bytes = b"") -> list[int]:
    """Processes that were started with one of the homes, and whose command has a name in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                in_home = str(homes).encode() in (entry / "environ").read_bytes()
                if in_home and name in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def traced(binary: str, tmp_path: Path) -> tuple[str, Path]:
    """Return a dsh that writes down every connection of it and its children, where strace is installed."""
    log = tmp_path / "connections"
    if shutil.which("strace") is None:
        return binary, log
    path = tmp_path / "dsh"
    path.write_text(f'#!/bin/sh\nexec strace -f -qq -e trace=connect -o {log} {binary} "$@"\n')
    path.chmod(0o755)
    return str(path), log


def test_one_dsh_plays_six_episodes_token_exactly_over_loopback_only(
    dsh_binary: str, renderer: TemplateRenderer, homes: Path, tmp_path: Path
) -> None:
    binary, log = traced(dsh_binary, tmp_path)
    program = SharedDeepSeekProgram(DeepSeekSettings(binary=binary), CliSettings(timeout_s=150, homes=homes))
    sampler = RecordingSampler(renderer, SCRIPT)
    played = play_with(program, sampler, renderer, env="Question", size=6)
    for trajectory in played:
        assert trajectory.failure is None
        assert trajectory.reward == 1.0
        check_every_token(trajectory, sampler)
        assert [turn.parent for turn in trajectory.turns] == [None, 0, 1]
        assert trajectory.metrics["new_root_rate"] == 0.0
        assert trajectory.metrics["delivered_fraction"] == 1.0
        looked, bad, _ = [event.tool_calls for event in trajectory.events]
        assert [record.name for record in looked] == ["bash", "bash"]
        assert "here" in looked[0].result
        assert "exit code: 3" in looked[1].result
        assert bad[0].status == "invalid_json"
    places = {re.search(r"/sessions/(hyperrl-\w+)", t.events[0].tool_calls[0].result)[1] for t in played}  # type: ignore[index]
    assert len(places) == 6
    assert running(homes) == []
    assert list(homes.iterdir()) == []
    if log.exists():
        assert set(re.findall(r'inet_addr\("([^"]+)"\)', log.read_text())) == {"127.0.0.1"}


def test_episodes_of_a_dsh_that_is_killed_fail_and_the_next_gets_another(
    dsh_binary: str, renderer: TemplateRenderer, homes: Path
) -> None:
    program = SharedDeepSeekProgram(
        DeepSeekSettings(binary=dsh_binary), CliSettings(timeout_s=150, homes=homes)
    )
    asked = []

    def script(prompt: str, key: Any) -> str:
        asked.append(key.sample_index)
        if key.sample_index < 2 and len(set(asked)) == 2:
            for process in running(homes, b"--profile"):
                os.kill(process, signal.SIGKILL)
        return call("bash", command="setsid sleep 300", description="Wait") if key.sample_index < 2 else "5"

    async def main() -> list[Any]:
        async with Gateway() as gateway:
            sampler = RecordingSampler(renderer, script)
            settings = settings_for(program, sampler, renderer, gateway=gateway)
            [group] = await play_groups(plans_for("Question", 3), settings, envs=pool(), max_concurrent=2)
            return list(group.trajectories)

    first, second, third = asyncio.run(main())
    assert [t.failure and t.failure.kind for t in (first, second, third)] == ["program_signal"] * 2 + [None]
    assert third.reward == 1.0
    assert running(homes) == []
    assert list(homes.iterdir()) == []


def test_sub_agents_of_a_shared_dsh_are_counted_to_their_episodes(
    dsh_binary: str, renderer: TemplateRenderer, homes: Path
) -> None:
    given_back = ("subagent", "subagent-spawn-in-process", "tool-subagent", "tool-subagent-control")
    patch = "\n".join([f'- {{"id": "{plugin}", "disabled": false}}' for plugin in given_back])
    program = SharedDeepSeekProgram(
        DeepSeekSettings(binary=dsh_binary, patch=patch), CliSettings(timeout_s=150, homes=homes)
    )

    def script(prompt: str, key: Any) -> str:
        if "parent agent id" in prompt:
            return f"the child of {key.sample_index} says 5"
        if '"name": "subagent"' in prompt.rpartition("</tools>")[2]:
            return "5"
        return call("subagent", description="Ask", prompt="How much is it?")

    played = play_with(program, RecordingSampler(renderer, script), renderer, env="Question", size=2)
    for index, trajectory in enumerate(played):
        assert trajectory.failure is None
        assert trajectory.reward == 1.0
        [child] = [i for i, turn in enumerate(trajectory.turns) if turn.use == "side"]
        assert trajectory.turns[child].parent is None
        assert f"the child of {index} says" in trajectory.events[child].action
        assert trajectory.metrics["gateway_subagent_requests"] == 1.0
    assert running(homes) == []
