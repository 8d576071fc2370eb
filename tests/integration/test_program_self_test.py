"""The self-test of agent programs: what it sees in good ones and bad ones, and what versions it admits."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")

from hyperrl.agents import FunctionProgram
from hyperrl.cli.app import app
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.command import CommandAdapter
from hyperrl.harness.adapters.installed import KnownProgram, machine
from hyperrl.harness.cli_program import CliProgram, CliSettings, Launch, Place
from hyperrl.harness.self_test import SelfTest, run_self_test

AGENT = str(Path(__file__).parents[1] / "plain_agent.py")
KNOWN = KnownProgram(
    title="Plain",
    command="plain",
    variable="HYPERRL_TEST_PLAIN",
    first=(1, 2),
    beyond=(1, 4),
    install="pip install plain==1.3",
)


def plain(*flags: str) -> CliProgram:
    env = {
        "AGENT_URL": "{base_url}",
        "AGENT_KEY": "{api_key}",
        "AGENT_MODEL": "{model}",
        "AGENT_TOOLS": "{mcp_url}",
    }
    adapter = CommandAdapter(name="plain", words=(sys.executable, AGENT, *flags), env=env)
    return CliProgram(adapter, CliSettings(timeout_s=60))


def statuses(tested: SelfTest) -> dict[str, str]:
    return {check.name: check.status for check in tested.checks}


@pytest.fixture
def strace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stands in for strace: writes one connection into its log and runs the command."""

    def install(address: str) -> None:
        path = tmp_path / "bin" / "strace"
        path.parent.mkdir()
        line = f'connect(3, {{sa_family=AF_INET, sin_addr=inet_addr("{address}")}}, 16) = 0'
        path.write_text(f"#!/bin/sh\nshift 5\necho '{line}' > $1\nshift\nexec \"$@\"\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")

    return install


def test_a_good_program_passes(strace: Callable[[str], None]) -> None:
    strace("127.0.0.1")
    tested = asyncio.run(run_self_test(plain()))
    assert statuses(tested) == dict.fromkeys(
        ["ends", "asks", "calls", "extends", "answers", "loopback"], "pass"
    )
    assert tested.failed == ()


def test_a_connection_elsewhere_is_seen(strace: Callable[[str], None]) -> None:
    strace("192.0.2.7")
    tested = asyncio.run(run_self_test(plain()))
    assert [(check.name, check.detail) for check in tested.failed] == [("loopback", "connects to 192.0.2.7")]


def test_a_watch_that_saw_not_even_the_gateway_passes_nothing(strace: Callable[[str], None]) -> None:
    strace("")
    tested = asyncio.run(run_self_test(plain()))
    assert statuses(tested)["loopback"] == "skip"
    assert tested.failed == ()


async def answers_at_once(ctx: Any) -> None:
    await ctx.step((await ctx.policy.respond(ctx.observation.messages)).text)


async def forgets(ctx: Any) -> None:
    messages = list(ctx.observation.messages)
    reply = await ctx.policy.respond(messages, ctx.tools)
    outcome = await ctx.step(reply)
    rewritten = [
        {"role": "user", "content": "Summary of what was done: noreh"},
        *outcome.observation.messages,
    ]
    await ctx.step(await ctx.policy.respond(rewritten, ctx.tools))


async def asks_for_a_title(ctx: Any) -> None:
    side = ctx.recorder.policy("main", use="side")
    await side.respond([{"role": "user", "content": "A title, noreh?"}])
    messages = list(ctx.observation.messages)
    reply = await ctx.policy.respond(messages, ctx.tools)
    outcome = await ctx.step(reply)
    messages += [reply.message, *outcome.observation.messages]
    await ctx.step(await ctx.policy.respond(messages, ctx.tools))


@pytest.mark.parametrize(
    ("program", "failed"),
    [
        (plain("--silent"), {"ends", "answers"}),
        (plain("--crash"), {"ends", "answers"}),
        (FunctionProgram("at_once", answers_at_once), {"calls"}),
        (FunctionProgram("forgets", forgets), {"extends"}),
        (FunctionProgram("title", asks_for_a_title), {"asks", "extends"}),
    ],
)
def test_a_bad_program_fails_what_it_does_wrong(program: Any, failed: set[str]) -> None:
    assert {check.name for check in asyncio.run(run_self_test(program)).failed} == failed


@pytest.fixture
def binary(tmp_path: Path) -> Callable[[str], str]:
    def make(version: str) -> str:
        path = tmp_path / f"plain-{version}"
        path.write_text(f"#!/bin/sh\necho plain {version}\n")
        path.chmod(0o755)
        return str(path)

    return make


def refuse(_path: str) -> CliProgram:
    raise AssertionError("no self-test is needed")


def test_known_versions_are_taken_as_they_are(binary: Callable[[str], str]) -> None:
    for version, any_version in (("1.2.0", False), ("1.3.9", False), ("1.4.0", True)):
        path = binary(version)
        checked = KNOWN.check(path, any_version=any_version, trial=refuse)
        assert asyncio.run(checked) == path


def test_an_unknown_version_is_tried_once_and_taken_with_a_warning(
    binary: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    path, tried = binary("1.4.0"), []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Counted(CommandAdapter):
        def launch(self, place: Place) -> Launch:
            tried.append(place)
            return super().launch(place)

    def trial(found: str) -> CliProgram:
        assert found == path
        given = plain().adapter
        assert isinstance(given, CommandAdapter)
        return CliProgram(Counted(name=given.name, words=given.words, env=given.env))

    async def twice() -> list[str]:
        work = [KNOWN.check(path, any_version=False, trial=trial) for _ in range(2)]
        return list(await asyncio.gather(*work))

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(twice()) == [path, path]
        assert asyncio.run(twice()) == [path, path]
    assert len(tried) == 1
    [warned] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "is Plain 1.4.0; hyperrl knows 1.2 and newer below 1.4; the self-test passed" in warned


def test_an_unknown_version_that_fails_is_refused_with_what_failed(binary: Callable[[str], str]) -> None:
    path = binary("1.5.1")
    said = r"is Plain 1\.5\.1;.*self-test failed \(ends: no_answer.*Install one: pip install plain==1\.3"
    with pytest.raises(ConfigError, match=said):
        asyncio.run(KNOWN.check(path, any_version=False, trial=lambda _: plain("--silent")))


def test_a_program_is_looked_for_where_one_says(
    binary: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, named, packaged = binary("1.2.1"), binary("1.2.2"), binary("1.2.3")
    known = dataclasses.replace(KNOWN, packaged=lambda: Path(packaged))
    assert asyncio.run(known.find()).version == "1.2.3"
    monkeypatch.setenv("HYPERRL_TEST_PLAIN", named)
    assert asyncio.run(known.find()).version == "1.2.2"
    found = asyncio.run(known.find(given))
    assert (found.version, found.known, found.range) == ("1.2.1", True, "1.2 and newer below 1.4")
    assert not asyncio.run(known.find(binary("1.4.0"))).known
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\n")
    mute.chmod(0o755)
    with pytest.raises(ConfigError, match=r"does not tell its version.*pip install plain==1\.3"):
        asyncio.run(known.find(str(mute)))
    script = dataclasses.replace(KNOWN, native=lambda _: None)
    with pytest.raises(ConfigError, match=r"comes without the program itself.*pip install"):
        asyncio.run(script.find(given))
    monkeypatch.delenv("HYPERRL_TEST_PLAIN")
    with pytest.raises(ConfigError, match=r"no program 'plain'.*or set HYPERRL_TEST_PLAIN"):
        asyncio.run(KNOWN.find())
    assert machine() in ("x64", "arm64")


def test_the_command_says_what_it_sees() -> None:
    runner = CliRunner()
    good = runner.invoke(app, ["programs", "check", "turn_loop", "--json"])
    assert good.exit_code == 0
    said = json.loads(good.stdout)
    assert said["ok"]
    assert [check["name"] for check in said["checks"]][:3] == ["ends", "asks", "calls"]
    bad = runner.invoke(app, ["programs", "check", f"{__name__}:answers_at_once"])
    assert bad.exit_code == 1
    assert "fail" in bad.stdout


def test_the_command_says_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERRL_CODEX", "no-such-codex")
    with pytest.raises(ConfigError, match=r"npm install -g @openai/codex"):
        CliRunner().invoke(app, ["programs", "check", "codex"], catch_exceptions=False)
