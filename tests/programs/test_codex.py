"""The real Codex against the gateway, over a scripted policy with the real Qwen3 tokenizer."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")
from faulty_vendor import FaultyVendor
from repairs import (
    BROKEN,
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
from hyperrl.harness.adapters.codex import CodexAdapter, CodexProgram, CodexSettings
from hyperrl.harness.cli_program import CliProgram, CliSettings, Launch, Place
from hyperrl.harness.gateway import Gateway
from hyperrl.trajectory import Trajectory, TruncationReason

pytestmark = pytest.mark.slow
SCRIPT = repair_script("exec_command", "cmd", "mcp__env__run_tests")
LOOK = call("exec_command", cmd="cat calc.py")


@pytest.fixture(scope="module")
def renderer(qwen3_dir: Path) -> TemplateRenderer:
    return load_renderer(qwen3_dir)


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where the homes of one test are; its workspaces are in ``tmp_path``."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="codex-homes-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def codex(codex_binary: str, homes: Path) -> CodexProgram:
    return CodexProgram(CodexSettings(binary=codex_binary, retries=0), CliSettings(timeout_s=60, homes=homes))


class Traced(CodexAdapter):
    """Codex under strace, which writes down every connection of it and its children."""

    log = Path()

    def launch(self, place: Place) -> Launch:
        launch = super().launch(place)
        words = ("/usr/bin/strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg", "-o", str(self.log))
        return dataclasses.replace(launch, words=(*words, *launch.words))


def left_behind(homes: Path, workspaces: Path) -> list[str]:
    """Homes, workspaces, and processes that were started with one of the homes."""
    found = [str(path) for path in (*homes.iterdir(), *workspaces.glob("repair-*"))]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if str(homes).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().decode())
            except OSError:
                continue
    return found


def check_repaired(trajectory: Trajectory, sampler: RecordingSampler) -> None:
    assert trajectory.failure is None
    assert trajectory.program == "codex"
    assert trajectory.terminated
    assert {term.name: term.score for term in trajectory.reward_terms} == {"repaired": 1.0, "said_done": 1.0}
    check_every_token(trajectory, sampler)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1, 2, 3]
    assert {turn.use for turn in trajectory.turns} == {"train"}
    assert trajectory.metrics["new_root_rate"] == 0.0
    assert trajectory.metrics["delivered_fraction"] == 1.0
    assert trajectory.metrics["gateway_requests"] == 5
    looked, bad, mended, tested, ended = [event.tool_calls for event in trajectory.events]
    assert {record.name for record in looked} == {"run_tests", "exec_command"}
    assert any(BROKEN.strip() in record.result for record in looked)
    assert any("FAILED: add(2, 3) should be 5" in record.result for record in looked)
    assert bad[0].status == "invalid_json"
    assert "unsupported call" in bad[0].result
    assert "exited with code 0" in mended[0].result
    assert (tested[0].name, tested[0].result) == ("run_tests", "passed")
    assert ended == ()


def test_codex_repairs_a_repository_token_exactly(
    codex: CodexProgram, renderer: TemplateRenderer, homes: Path, tmp_path: Path
) -> None:
    sampler = RecordingSampler(renderer, SCRIPT)
    started, cpu = time.perf_counter(), os.times()
    played = play_with(codex, sampler, renderer, size=2)
    for trajectory in played:
        check_repaired(trajectory, sampler)
    spent = os.times()
    ours, theirs = spent.user + spent.system - cpu.user - cpu.system, spent[2] + spent[3] - cpu[2] - cpu[3]
    print(
        f"codex: {(time.perf_counter() - started) / 2:.1f} s an episode of 5 turns,"
        f" CPU {ours / 2:.2f} s here and {theirs / 2:.2f} s in its processes"
    )
    assert left_behind(homes, tmp_path) == []


def test_codex_connects_to_nothing_but_the_gateway(
    codex_binary: str, renderer: TemplateRenderer, tmp_path: Path
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    adapter = Traced(CodexSettings(binary=codex_binary, retries=0, sandbox_mode="danger-full-access"))
    adapter.log = tmp_path / "connections"
    sampler = RecordingSampler(renderer, SCRIPT)
    [trajectory] = play_with(CliProgram(adapter, CliSettings(timeout_s=120)), sampler, renderer)
    check_repaired(trajectory, sampler)
    text = adapter.log.read_text()
    addresses = set(re.findall(r'inet_addr\("([^"]+)"\)', text)) | set(
        re.findall(r'"([0-9a-f:]*::[0-9a-f:]*)"', text)
    )
    assert addresses == {"127.0.0.1"}
    ports = set(re.findall(r"connect\(\d+, {sa_family=AF_INET, sin_port=htons\((\d+)\)", text))
    assert len(ports) == 1


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


def test_reasoning_without_an_answer_is_a_failure_of_its_own(
    codex: CodexProgram, renderer: TemplateRenderer
) -> None:
    sampler = RecordingSampler(renderer, ["<think>\nHm.\n</think>\n\n"])
    [trajectory] = play_with(codex, sampler, renderer, env="Question")
    assert trajectory.failure is not None
    assert trajectory.failure.kind == "no_answer"


def test_limits_cut_the_episode_and_it_is_scored(codex: CodexProgram, renderer: TemplateRenderer) -> None:
    for limits, reason in (
        (RolloutLimits(max_turns=3, wall_clock_s=60), TruncationReason.MAX_TURNS),
        (RolloutLimits(max_context=2500, wall_clock_s=60), TruncationReason.CONTEXT),
    ):
        sampler = RecordingSampler(renderer, [SCRIPT[2]] + [LOOK] * 40)
        [trajectory] = play_with(codex, sampler, renderer, limits=limits)
        assert trajectory.failure is None
        assert trajectory.truncation_reason is reason
        assert trajectory.reward == 1.0


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("400", "program_exit"),
        ("429", "program_exit"),
        ("500", "program_exit"),
        ("dies", "program_exit"),
        ("refuses", "program_exit"),
        ("SIGTERM", "program_signal"),
    ],
)
def test_a_vendor_that_fails_ends_codex_within_its_limit(
    fault: str, kind: str, codex: CodexProgram, renderer: TemplateRenderer
) -> None:
    async def main() -> Trajectory:
        async with FaultyVendor(fault) as vendor:
            sampler = RecordingSampler(renderer, [])
            settings = settings_for(codex, sampler, renderer, gateway=vendor)
            [plan] = plans_for("Question", 1)
            return await play_episode(plan, settings, envs=pool())

    trajectory = asyncio.run(main())
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.failure.stage) == (kind, "program")
    assert trajectory.timings["total_s"] < 60


def test_cancelled_and_killed_episodes_leave_nothing_behind(
    codex: CodexProgram, renderer: TemplateRenderer, homes: Path, tmp_path: Path
) -> None:
    background = call("exec_command", cmd="setsid sleep 300 & sleep 300", yield_time_ms=30_000)

    async def main() -> None:
        tasks, files = asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))
        port = 0
        async with Gateway() as gateway:
            settings = settings_for(
                codex, RecordingSampler(renderer, [background]), renderer, gateway=gateway
            )
            for _ in range(4):
                works = [
                    asyncio.create_task(play_episode(plan, settings, envs=pool()))
                    for plan in plans_for("Repair", 5)
                ]
                await asyncio.sleep(2.0)
                port = int(gateway.address.rpartition(":")[2] or 0) or port
                for work in works:
                    work.cancel()
                await asyncio.wait(works)
                assert all(work.cancelled() for work in works)
            killed = dataclasses.replace(
                settings, program=CliProgram(Suicidal(codex.adapter), codex.settings)
            )
            for _ in range(2):
                works = [
                    asyncio.create_task(play_episode(plan, killed, envs=pool()))
                    for plan in plans_for("Repair", 5)
                ]
                for trajectory in await asyncio.gather(*works):
                    assert trajectory.failure is not None
                    assert trajectory.failure.kind == "program_signal"
            assert not gateway.sessions
        assert asyncio.all_tasks() == tasks
        assert len(os.listdir("/proc/self/fd")) <= files + 2
        assert port
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))

    asyncio.run(main())
    assert left_behind(homes, tmp_path) == []


class Suicidal:
    """An adapter whose Codex is killed two seconds after its start, as by a kernel without memory."""

    name = "codex"

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    async def check(self) -> None:
        await self._adapter.check()

    def launch(self, place: Place) -> Launch:
        launch = self._adapter.launch(place)
        script = '(sleep 2; kill -9 $$) & exec "$@"'
        return dataclasses.replace(launch, words=("/bin/sh", "-c", script, "sh", *launch.words))

    def answer(self, place: Place, ended: Any) -> str | None:
        return self._adapter.answer(place, ended)


def test_a_missing_or_strange_codex_says_how_to_install_it(tmp_path: Path) -> None:
    strange = tmp_path / "codex"
    strange.write_text("#!/bin/sh\necho codex-cli 0.99.1\n")
    strange.chmod(0o755)
    for binary, said in (("no-such-codex", "there is no program"), (str(strange), "is Codex 0.99.1")):
        with pytest.raises(ConfigError, match=rf"{said}.*npm install -g @openai/codex"):
            asyncio.run(CodexAdapter(CodexSettings(binary=binary)).check())
    asyncio.run(CodexAdapter(CodexSettings(binary=str(strange), any_version=True)).check())
