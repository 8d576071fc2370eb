"""Tools from MCP servers: a real server written with the official SDK, over its streams and over HTTP."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from playground import CountingPool, plans, seat, settings

from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.rollout import RolloutLimits, play_groups
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs import McpServer, TextEnv, reward
from hyperrl.errors import ConfigError, ToolServerError

pytest.importorskip("mcp")

SERVER = Path(__file__).parent / "library_server.py"
CALL = '<tool_call>{{"name": "{}", "arguments": {{{}}}}}</tool_call>'


def running(mark):
    """Process ids whose command line holds ``mark``."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if mark.encode() in line:
                found.add(int(entry.name))
    return found


def wait_for_none(mark, limit_s=20):
    deadline = time.monotonic() + limit_s
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return running(mark)


@pytest.fixture
def mark(request):
    """What stands in the command line of every process that this test starts."""
    text = f"library-of-{os.getpid()}-{abs(hash(request.node.name))}"
    yield text
    assert wait_for_none(text) == set()


def library(mark, **kwargs):
    command = [sys.executable, str(SERVER), mark]
    return McpServer(command=command, env={"LIBRARY_MARK": mark}, **kwargs)


def play(server, *calls):
    """Open a connection, call tools one after the other, return what they gave."""

    async def run():
        async with server.open() as connection:
            tools = {tool.name: tool for tool in connection.tools}
            return [await tools[name].call(arguments) for name, arguments in calls]

    return asyncio.run(run())


def test_calls_are_checked_coerced_and_answered(mark):
    results = play(
        library(mark, max_output_chars=1_000),
        ("lend", {"title": "Emma", "copies": "2"}),
        ("lend", {"title": 1984}),
        ("find", {"shelf": {"room": "3", "side": "right"}}),
        ("recite", {"length": 5_000}),
        ("refuse", {"reason": "no"}),
        ("lend", {"titel": "Emma"}),
        ("lend", {"title": "Emma", "copies": "many"}),
        ("find", {"shelf": {"room": 1, "side": "up"}}),
        ("lend", {}),
    )
    assert [result.status for result in results] == ["ok"] * 4 + ["error"] + ["bad_arguments"] * 4
    assert results[0].text == "2 of 'Emma', 2 in all"
    assert results[1].text == "1 of '1984', 3 in all"
    assert '"side": "right"' in results[2].text
    assert "4,080 of 5,000 characters left out" in results[3].text
    assert len(results[3].text) <= 1_000
    assert results[4].text.startswith("Error: Error executing tool refuse")
    assert "no argument 'titel' Did you mean 'title'?" in results[5].text
    assert "argument 'copies': 'many' is not of type 'integer'" in results[6].text
    assert "argument 'shelf.side': 'up' is not one of ['left', 'right']" in results[7].text
    assert "'title' is a required property" in results[8].text


def test_schemas_are_taken_over_and_names_may_have_a_prefix(mark):
    async def run():
        async with library(mark, prefix="library_").open() as connection:
            return {tool.name: tool.schema["function"] for tool in connection.tools}

    schemas = asyncio.run(run())
    lend = schemas["library_lend"]
    assert lend["description"] == "Lend a book."
    assert lend["parameters"]["required"] == ["title"]
    assert lend["parameters"]["properties"]["copies"]["default"] == 1
    assert "Shelf" in schemas["library_find"]["parameters"]["$defs"]


def test_a_slow_call_times_out_the_next_one_works_and_calls_overlap(mark):
    async def run():
        async with library(mark, timeout_s=0.5).open() as connection:
            tools = {tool.name: tool for tool in connection.tools}
            slow = await tools["wait"].call({"seconds": 60})
            started = time.monotonic()
            both = await asyncio.gather(*[tools["wait"].call({"seconds": 0.3}) for _ in range(5)])
            return slow, both, time.monotonic() - started

    slow, both, spent_s = asyncio.run(run())
    assert (slow.status, slow.text) == (
        "timeout",
        "Error: the tool did not finish within 0.5 s and was stopped",
    )
    assert {result.text for result in both} == {"waited 0.3 s"}
    assert spent_s < 5 * 0.3


def test_a_hanging_server_and_what_it_started_are_gone_at_the_end(mark):
    results = play(library(mark, timeout_s=0.3), ("spawn", {}), ("hang", {}))
    assert [result.status for result in results] == ["ok", "timeout"]
    assert running(mark) == set()


def test_a_server_that_dies_is_an_error_with_its_last_words(mark):
    with pytest.raises(ToolServerError, match=r"is gone: 'die' was not answered.*it said last: .*farewell"):
        play(library(mark), ("die", {"last_words": "farewell"}))

    async def run():
        async with library(mark).open() as connection:
            tools = {tool.name: tool for tool in connection.tools}
            with pytest.raises(ToolServerError):
                await tools["die"].call({})
            with pytest.raises(ToolServerError, match="is closed, so 'lend' cannot be called"):
                await tools["lend"].call({"title": "Emma"})

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('no key')", "it said last: no key"),
        ("import time; time.sleep(60)", "did not tell its tools within 0.5 s"),
    ],
)
def test_a_server_that_does_not_start_says_why(mark, code, said):
    server = McpServer(command=[sys.executable, "-c", code, mark], start_timeout_s=0.5)
    with pytest.raises(ToolServerError, match=said):
        play(server)


def test_a_program_that_is_not_there():
    with pytest.raises(ToolServerError, match="'/no/such/program' cannot be started"):
        play(McpServer(command=["/no/such/program"]))


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({}, "either a command to start or the url"),
        ({"command": ["x"], "url": "http://x"}, "either a command to start or the url"),
        ({"command": "python server.py"}, "must be a list of the program and its arguments"),
        ({"command": ["x"], "timeout_s": 0}, "must be above 0"),
    ],
)
def test_a_server_that_cannot_be_meant_is_refused(kwargs, said):
    with pytest.raises(ConfigError, match=said):
        McpServer(**kwargs)


# Over HTTP


@pytest.fixture
def http_server(mark):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(SERVER), "http", str(port), mark]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield process, f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def test_a_server_over_http_and_its_death(http_server):
    process, url = http_server
    server = McpServer(url=url, timeout_s=5.0)
    results = play(server, ("lend", {"title": "Emma"}), ("lend", {"title": "Emma", "copies": []}))
    assert [result.status for result in results] == ["ok", "bad_arguments"]

    async def run():
        async with server.open() as connection:
            tools = {tool.name: tool for tool in connection.tools}
            process.kill()
            process.wait()
            await tools["lend"].call({"title": "Emma"})

    with pytest.raises(ToolServerError, match="is gone"):
        asyncio.run(run())
    with pytest.raises(ToolServerError, match="cannot be used"):
        play(server)


# In environments


class Library(TextEnv):
    """Each episode has a server of its own, or they share one."""

    def __init__(self, *, server, shared=False, **kwargs):
        super().__init__(**kwargs)
        self.server, self.shared = server, shared

    def tasks(self):
        return [{}]

    async def start(self):
        if self.shared:
            self.connection = await self.server.shared()
        else:
            self.connection = await self.resources.enter_async_context(self.server.open())
        return "Lend a book."

    def offered_tools(self):
        return self.connection.tools

    @reward
    def done(self, answer):
        return answer == "done"


def test_an_environment_offers_the_tools_of_its_server_on_the_synchronous_face(mark):
    env = Library(server=library(mark))
    for _ in range(2):
        env.reset()
        assert len(env.tools) == 8
        observation, *_, info = env.step(CALL.format("lend", '"title": "Emma"'))
        assert observation == "1 of 'Emma', 1 in all"
        assert info["tool_calls"] == (("lend", "ok"),)
        assert running(mark) != set()
        assert env.step("done")[1] == 1.0
        assert running(mark) == set()
    env.reset()
    env.close()


def test_a_shared_server_outlives_episodes_and_is_replaced_when_it_is_gone(mark):
    server = library(mark)

    async def run():
        envs = [Library(server=server, shared=True) for _ in range(3)]
        await asyncio.gather(*(env.areset() for env in envs))
        connections = {id(env.connection) for env in envs}
        said = [await env.astep(CALL.format("lend", '"title": "Emma"')) for env in envs]
        await asyncio.gather(*(env.astep("done") for env in envs))
        before = running(mark)
        await envs[0].areset()
        with pytest.raises(ToolServerError, match="is gone"):
            await envs[0].astep(CALL.format("die", ""))
        await envs[0].areset()
        return connections, [str(outcome.observation) for outcome in said], before, running(mark)

    connections, said, before, after = asyncio.run(run())
    assert len(connections) == 1
    assert said == [f"1 of 'Emma', {count} in all" for count in (1, 2, 3)]
    assert before
    assert after
    assert not before & after


class Pool(CountingPool):
    def __init__(self, server):
        super().__init__()
        self.server = server

    def _make(self, env_id, env_kwargs):
        return Library(server=self.server)


def rollout(mark, script, **kwargs):
    sampler = ScriptedSampler(ByteRenderer(), script)
    limits = RolloutLimits(wall_clock_s=60.0)
    configured = settings(sampler, limits=limits, seats={"main": seat(sampler, max_tokens=256)})
    return play_groups(plans("Library", groups=2, size=2), configured, envs=Pool(library(mark)), **kwargs)


def test_a_rollout_fails_the_episode_whose_server_dies_and_scores_the_others(mark):
    def script(prompt, key):
        if key.ordinal:
            return "done"
        return CALL.format("die", "") if key.sample_index else CALL.format("lend", '"title": "Emma"')

    groups = asyncio.run(rollout(mark, script))
    for group in groups:
        good, bad = group.trajectories
        assert (good.reward, good.failure) == (1.0, None)
        assert bad.failure is not None
        assert bad.failure.kind == "step_error"
        assert "ToolServerError" in bad.failure.reason
        assert bad.reward is None
    assert running(mark) == set()


def test_a_cancelled_rollout_leaves_no_server(mark):
    async def run():
        playing = asyncio.create_task(rollout(mark, [CALL.format("wait", '"seconds": 50')]))
        async with asyncio.timeout(60):
            while len(running(mark)) < 8:  # noqa: ASYNC110  # four servers, each on its leash, are started
                await asyncio.sleep(0.05)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return running(mark)

    assert asyncio.run(run()) == set()


SCRIPT = """
    import asyncio, os, sys
    sys.path[:0] = sys.argv[1].split(os.pathsep)
    from test_mcp_server import CALL, Library, library
    face, mark = sys.argv[2:4]
    server = library(mark)
    if face == "sync":
        env = Library(server=server)
        env.reset()
        print("ready", flush=True)
        env.step(CALL.format("hang", ""))
    else:
        async def main():
            env = Library(server=server, shared=True)
            await env.areset()
            print("ready", flush=True)
            await env.astep(CALL.format("hang", ""))
        asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_server_outlives_a_process_that_is_interrupted_or_killed(mark, tmp_path, face, sent):
    script = tmp_path / "play.py"
    script.write_text(textwrap.dedent(SCRIPT))
    here = Path(__file__).parent
    folders = os.pathsep.join([str(here), str(here.parents[1])])
    command = [sys.executable, str(script), folders, face, mark]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout.readline() == "ready\n"
    assert len(running(mark)) >= 3
    process.send_signal(sent)
    process.wait(timeout=30)
    process.stdout.close()
    assert wait_for_none(mark) == set()
