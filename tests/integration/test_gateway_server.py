"""The gateway over real sockets: secrets, retries, lost clients, signs of life, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("uvicorn")

import anthropic
import openai
from playground import CountingPool, SpySampler, plans, recorder, seat, settings
from wire_clients import AGENTS, agent_program

from hyperrl.agents.base import EpisodeContext, FunctionProgram
from hyperrl.agents.recorder import Recorder
from hyperrl.agents.rollout import play_episode, play_groups
from hyperrl.errors import ConfigError, RolloutError, SamplerClosedError
from hyperrl.harness.gateway import Gateway, GatewaySession, GatewaySettings
from hyperrl.sampling import Completion
from hyperrl.trajectory import StopReason

CHAT = {"model": "main", "messages": [{"role": "user", "content": "go"}]}
WAYS = [(kind, stream) for kind in AGENTS for stream in (False, True)]


class Slow(SpySampler):
    """Answers only once it is allowed to."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.asked = asyncio.Event()
        self.allowed = asyncio.Event()
        self.asking = 0

    async def generate(self, *args: Any, **named: Any) -> Completion:
        self.asking += 1
        self.asked.set()
        await self.allowed.wait()
        return await super().generate(*args, **named)


@asynccontextmanager
async def served(
    sampler: Any, config: GatewaySettings | None = None
) -> AsyncIterator[tuple[GatewaySession, Recorder, httpx.AsyncClient]]:
    async with Gateway(config) as gateway:
        record = recorder(sampler, seats={"main": seat(sampler, max_tokens=512)})
        session = gateway.open(record)
        headers = {"authorization": f"Bearer {session.api_key}"}
        async with httpx.AsyncClient(base_url=session.base_url, headers=headers, timeout=20) as client:
            yield session, record, client
        await session.aclose()


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  (what is waited for is in the code under test)
            await asyncio.sleep(0.01)


async def hang_up(session: GatewaySession, body: Any, leave: asyncio.Event) -> None:
    """Ask, and leave when told to, such as once the policy has been asked."""
    address = session.base_url.split("/")[2]
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    content = httpx.Request("POST", "http://x", json=body).content  # byte for byte as its retry
    path = session.base_url.partition(address)[2]
    head = f"POST {path}/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {session.api_key}\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    await leave.wait()
    writer.close()
    await writer.wait_closed()


def test_the_retry_of_an_answer_that_never_arrived_gets_the_same_answer() -> None:
    async def main() -> None:
        sampler = Slow(["one", "two", "three"])
        async with served(sampler) as (session, record, client):
            await hang_up(session, CHAT, sampler.asked)
            again = asyncio.create_task(client.post("/chat/completions", json=CHAT))
            await wait_until(lambda: session.counts["requests"] == 2)
            sampler.allowed.set()
            assert (await again).json()["choices"][0]["message"]["content"] == "one"
            assert session.counts["coalesced"] == 1
            assert len(record.forest.turns) == 1
        assert [turn.use for turn in record.forest.turns] == ["train"]

    asyncio.run(main())


def test_a_retry_after_the_answer_was_there_gets_it_too() -> None:
    async def main() -> None:
        sampler = Slow(["one", "two"])
        async with served(sampler) as (session, record, client):
            await hang_up(session, CHAT, sampler.asked)
            await asyncio.sleep(0.05)
            sampler.allowed.set()
            await wait_until(lambda: len(record.forest.turns) == 1)
            for wanted in ("one", "two"):  # a repeated body whose answer was delivered is sampled anew
                answer = await client.post("/chat/completions", json=CHAT)
                assert answer.json()["choices"][0]["message"]["content"] == wanted
        assert [turn.parent for turn in record.forest.turns] == [None, None]
        assert record.roots == {"first": 1, "resampled": 1}

    asyncio.run(main())


def test_an_error_that_nobody_received_is_not_given_to_a_retry() -> None:
    class FailsOnce(Slow):
        async def generate(self, *args: Any, **named: Any) -> Completion:
            if self.asking == 0:
                self.asking += 1
                self.asked.set()
                await self.allowed.wait()
                raise RuntimeError("a hiccup")
            return await super().generate(*args, **named)

    async def main() -> None:
        sampler = FailsOnce(["one", "two"])
        async with served(sampler) as (session, record, client):
            await hang_up(session, CHAT, sampler.asked)
            await asyncio.sleep(0.05)
            sampler.allowed.set()
            await wait_until(lambda: session.counts["policy_errors"] == 1)
            answer = await client.post("/chat/completions", json=CHAT)
            assert answer.status_code == 200, answer.text
            assert session.error is None
            assert len(record.forest.turns) == 1

    asyncio.run(main())


def test_of_equal_requests_the_one_that_was_lost_is_given_again() -> None:
    async def main() -> None:
        sampler = Slow(["one", "two", "three"])
        async with served(sampler) as (session, record, client):
            leaving = asyncio.create_task(hang_up(session, CHAT, asked := asyncio.Event()))
            await wait_until(lambda: session.counts["requests"] == 1)
            staying = asyncio.create_task(client.post("/chat/completions", json=CHAT))
            await wait_until(lambda: sampler.asking == 2)
            asked.set()
            await leaving
            again = asyncio.create_task(client.post("/chat/completions", json=CHAT))
            await wait_until(lambda: session.counts["coalesced"] == 1)
            sampler.allowed.set()
            said = [(await task).json()["choices"][0]["message"]["content"] for task in (again, staying)]
            assert sorted(said) == ["one", "two"]
            assert len(record.forest.turns) == 2

    asyncio.run(main())


def test_an_answer_that_nobody_received_is_not_learned_from() -> None:
    async def main() -> None:
        sampler = Slow(["one", "two"])
        async with served(sampler) as (session, record, client):
            await hang_up(session, CHAT, sampler.asked)
            sampler.allowed.set()
            await wait_until(lambda: len(record.forest.turns) == 1)
            other = {**CHAT, "messages": [{"role": "user", "content": "other"}]}
            await client.post("/chat/completions", json=other)
        assert [turn.use for turn in record.forest.turns] == ["side", "train"]
        assert session.metrics["gateway_undelivered"] == 1

    asyncio.run(main())


def test_two_clients_that_ask_the_same_at_once_get_answers_of_their_own() -> None:
    async def main() -> None:
        sampler = Slow(["one", "two"])
        async with served(sampler) as (session, record, client):
            asked = [asyncio.create_task(client.post("/chat/completions", json=CHAT)) for _ in range(2)]
            await wait_until(lambda: len(sampler.prompts) + session.counts["requests"] >= 2)
            await asyncio.sleep(0.2)
            sampler.allowed.set()
            answers = [
                task.json()["choices"][0]["message"]["content"] for task in await asyncio.gather(*asked)
            ]
        assert sorted(answers) == ["one", "two"]
        assert [turn.use for turn in record.forest.turns] == ["train", "train"]

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "stream"), WAYS)
def test_official_clients_wait_through_signs_of_life(kind: str, stream: bool) -> None:
    async def main() -> None:
        sampler = Slow(['<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'])
        async with served(sampler, GatewaySettings(keep_alive_s=0.02)) as (session, _, _):
            agent = AGENTS[kind](session.base_url, session.api_key, stream=stream)
            asked = asyncio.create_task(agent.ask(agent.user("go"), []))
            await sampler.asked.wait()
            await asyncio.sleep(0.15)
            sampler.allowed.set()
            answer = await asked
            await agent.close()
        assert [(name, json.loads(arguments)) for _, name, arguments in answer.calls] == [("add", {"a": 1})]

    asyncio.run(main())


@pytest.mark.parametrize("kind", list(AGENTS))
def test_an_error_after_signs_of_life_reaches_the_official_client(kind: str) -> None:
    async def main() -> None:
        sampler = Slow([])
        async with served(sampler, GatewaySettings(keep_alive_s=0.02)) as (session, _, client):
            wire = {"chat": "chat/completions", "responses": "responses", "anthropic": "messages"}[kind]
            body = {"chat": CHAT, "responses": {"input": "go"}, "anthropic": {**CHAT, "max_tokens": 64}}[kind]
            asked = asyncio.create_task(client.post(f"/{wire}", json={**body, "stream": True}))
            await sampler.asked.wait()
            await asyncio.sleep(0.1)
            sampler.allowed.set()
            text = (await asked).text
            assert "the policy cannot answer" in text
            sampler.allowed.clear()
            agent = AGENTS[kind](session.base_url, session.api_key, stream=True)
            asked_again = asyncio.create_task(agent.ask(agent.user("on"), []))
            await asyncio.sleep(0.1)
            sampler.allowed.set()
            with pytest.raises((openai.APIError, anthropic.APIError, RuntimeError)):
                await asked_again
            await agent.close()
            assert session.error is not None

    asyncio.run(main())


def test_only_the_secret_opens_a_session() -> None:
    async def main() -> None:
        async with Gateway() as gateway:
            sampler = SpySampler(lambda prompt, key: "fine")
            one, two = (gateway.open(recorder(sampler)) for _ in range(2))
            root = gateway.address

            async def status(url: str, **headers: str) -> int:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                async with httpx.AsyncClient() as client:
                    answer = await client.post(f"{url}/chat/completions", json=CHAT, headers=named)
                    assert answer.status_code == 200 or answer.json()["error"]["code"]
                return answer.status_code

            bearer = f"Bearer {one.api_key}"
            assert await status(one.base_url) == 401
            assert await status(one.base_url, authorization="Bearer wrong") == 401
            assert await status(two.base_url, authorization=bearer) == 401
            assert await status(f"{root}/v1") == 401
            for url in (one.base_url, f"{one.base_url}/v1", one.base_url.removesuffix("/v1"), f"{root}/v1"):
                assert await status(url, authorization=bearer) == 200
                assert await status(url, x_api_key=one.api_key) == 200
            assert await status(f"{root}/s/{one.api_key}/v1") == 200
            await one.aclose()
            for url in (one.base_url, f"{root}/v1"):
                assert await status(url, authorization=bearer) == 400
            assert await status(f"{root}/s/{one.api_key}/v1") == 400
            assert await status(one.base_url) == 401
            assert await status(two.base_url, authorization=f"Bearer {two.api_key}") == 200

    asyncio.run(main())


def test_one_process_plays_many_episodes_at_one_address() -> None:
    body = {**CHAT, "max_tokens": 64}
    lines = [f'Your parent agent id is "roll-{n}". Go.' for n in (0, 1)]  # a policy wrote the first
    content = [{"type": "text", "text": line} for line in lines]
    child = {**body, "messages": [{"role": "user", "content": content}]}

    async def main() -> None:
        async with Gateway() as gateway:
            sampler = SpySampler(lambda prompt, key: "fine")
            records = [recorder(sampler) for _ in range(3)]
            sessions = [gateway.open(record) for record in records]
            shared = gateway.share()
            for number in (0, 1):
                shared.bind(f"roll-{number}", sessions[number])
            with pytest.raises(ConfigError, match="another episode"):
                shared.bind("roll-1", sessions[2])

            async def ask(thread: str, asked: Any = body, key: str = shared.api_key) -> int:
                headers = {"x-api-key": key, "x-deepseek-harness-session-id": thread}
                async with httpx.AsyncClient() as client:
                    url = f"{shared.base_url}/messages"
                    return (await client.post(url, json=asked, headers=headers)).status_code

            answers = await asyncio.gather(*[ask(thread) for thread in ("roll-0", "roll-1", "roll-0")])
            assert answers == [200, 200, 200]
            assert await ask("child-uuid", child) == 200
            assert await ask("child-uuid") == 200
            assert [await ask(thread) for thread in ("stranger", "")] == [400, 400]
            assert await ask("roll-0", key=sessions[0].api_key) == 401
            uses = [[turn.use for turn in record.forest.turns] for record in records]
            assert uses == [["train", "train"], ["train", "side", "side"], []]
            await sessions[0].aclose()
            assert await ask("roll-0") == 400
            shared.close()
            assert await ask("roll-1") == 401
            assert len(records[1].forest.turns) == 3

    asyncio.run(main())


def test_small_routes() -> None:
    async def main() -> None:
        sampler = SpySampler(["fine"])
        async with served(sampler) as (session, record, client):
            async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as official:
                assert [model.id async for model in official.models.list()] == ["main"]
                assert (await official.models.retrieve("gpt-x")).id == "gpt-x"
            async with anthropic.AsyncAnthropic(
                base_url=session.base_url, api_key=session.api_key
            ) as official:
                assert [model.id async for model in official.models.list()] == ["main"]
                assert (await official.models.retrieve("claude-x")).id == "claude-x"
                counted = await official.messages.count_tokens(model="m", messages=CHAT["messages"])  # type: ignore[arg-type]
            answer = await client.post("/messages?beta=true", json={**CHAT, "max_tokens": 64})
            assert answer.json()["usage"]["input_tokens"] == counted.input_tokens
            assert (await client.head("/")).status_code == 200
            upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
            upgrade |= {"sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
            assert (await client.get("/responses", headers=upgrade)).status_code == 404
            assert (await client.get("/nothing")).status_code == 404
            assert (await client.get("/models/x", headers={"authorization": "no"})).status_code == 401
            assert (await client.delete("/responses")).status_code == 405
            assert len(record.forest.turns) == 1

    asyncio.run(main())


def test_bodies_may_be_compressed_within_the_limit() -> None:
    import gzip
    import zlib

    async def main() -> None:
        config = GatewaySettings(max_body_bytes=10_000)
        sampler = SpySampler(lambda prompt, key: "fine")
        async with served(sampler, config) as (_, _, client):

            async def status(content: bytes, encoding: str) -> int:
                headers = {"content-encoding": encoding}
                return (await client.post("/chat/completions", content=content, headers=headers)).status_code

            plain = json.dumps(CHAT).encode()
            assert await status(plain, "identity") == 200
            assert await status(gzip.compress(plain), "gzip") == 200
            assert await status(zlib.compress(plain), "deflate") == 200
            assert await status(gzip.compress(b" " * 20_000 + plain), "gzip") == 413
            assert await status(b" " * 20_000 + plain, "identity") == 413
            assert await status(plain, "gzip") == 400
            assert await status(plain, "zstd") == 415

    asyncio.run(main())


def test_a_policy_that_fails_is_the_failure_not_the_clients_complaint() -> None:
    async def main() -> None:
        async with Gateway() as gateway:
            program = FunctionProgram("agent", agent_program("chat", stream=False))
            values = settings(SpySampler([]), program=program, gateway=gateway)
            trajectory = await play_episode(plans("Adder")[0], values, envs=CountingPool())
        assert trajectory.failure is not None
        assert (trajectory.failure.kind, trajectory.failure.stage) == ("policy_error", "policy")
        assert "the script has 0 replies" in trajectory.failure.reason

    asyncio.run(main())


def test_a_closed_sampler_ends_the_rollout() -> None:
    class Closed(SpySampler):
        async def generate(self, *args: Any, **named: Any) -> Completion:
            raise SamplerClosedError("closed")

    async def main() -> None:
        async with Gateway() as gateway:
            program = FunctionProgram("agent", agent_program("responses", stream=True))
            values = settings(Closed([]), program=program, gateway=gateway)
            with pytest.raises(SamplerClosedError):
                await play_groups(plans("Adder", 1, 2), values, envs=CountingPool())

    asyncio.run(main())


def test_a_program_that_never_asks_has_failed() -> None:
    async def idle(ctx: EpisodeContext) -> None:
        assert ctx.base_url
        await ctx.step("5")

    async def main() -> None:
        async with Gateway() as gateway:
            values = settings(SpySampler([]), program=FunctionProgram("idle", idle), gateway=gateway)
            trajectory = await play_episode(plans("Adder")[0], values, envs=CountingPool())
        assert trajectory.failure is not None
        assert trajectory.failure.kind == "no_requests"

    asyncio.run(main())


def test_an_aborted_answer_is_not_learned_from() -> None:
    class Aborting(SpySampler):
        async def generate(self, *args: Any, **named: Any) -> Completion:
            drawn = await super().generate(*args, **named)
            aborted = named["request_id"].ordinal == 0
            return Completion(
                action_ids=drawn.action_ids,
                logprobs=drawn.logprobs,
                policy_versions=drawn.policy_versions,
                stop_reason=StopReason.ABORT if aborted else drawn.stop_reason,
            )

    async def main() -> None:
        async with served(Aborting(["one", "two"])) as (_, record, client):
            statuses = [(await client.post("/chat/completions", json=CHAT)).status_code for _ in range(2)]
        assert statuses == [503, 200]
        assert [turn.use for turn in record.forest.turns] == ["side", "train"]

    asyncio.run(main())


def test_late_requests_change_nothing() -> None:
    async def main() -> None:
        sampler = Slow(["one", "two"])
        async with Gateway() as gateway:
            record = recorder(sampler)
            session = gateway.open(record)
            headers = {"authorization": f"Bearer {session.api_key}"}
            async with httpx.AsyncClient(base_url=session.base_url, headers=headers) as client:
                waiting = asyncio.create_task(client.post("/chat/completions", json=CHAT))
                await sampler.asked.wait()
                await session.aclose()
                sampler.allowed.set()
                assert (await waiting).status_code == 400
                assert (await client.post("/chat/completions", json=CHAT)).status_code == 400
        assert record.forest.turns == []

    asyncio.run(main())


def test_a_taken_port_and_a_missing_gateway_are_config_errors() -> None:
    async def asks(ctx: EpisodeContext) -> None:
        assert ctx.base_url

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            gateway = Gateway(GatewaySettings(port=taken.getsockname()[1]))
            with pytest.raises(ConfigError, match="cannot listen"):
                gateway.open(recorder(SpySampler([])))
            await gateway.aclose()
        values = settings(SpySampler([]), program=FunctionProgram("asks", asks))
        with pytest.raises(ConfigError, match="no gateway"):
            await play_episode(plans("Adder")[0], values, envs=CountingPool())

    asyncio.run(main())


def test_without_the_extra_the_error_names_it() -> None:
    code = """
        import asyncio, sys
        sys.modules["uvicorn"] = None
        from playground import SpySampler, recorder
        from hyperrl.harness.gateway import Gateway
        assert "starlette" not in sys.modules

        async def main():
            Gateway().open(recorder(SpySampler([])))

        asyncio.run(main())
        """
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "MissingExtraError: uvicorn is needed" in done.stderr
    assert "pip install 'hyperrl[harness]'" in done.stderr


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_cancelled_and_failing_episodes_leave_no_port_task_or_file() -> None:
    async def hangs(ctx: EpisodeContext) -> None:
        with suppress(openai.APIError):
            await agent_program("chat", stream=ctx.env.task["question"] == "")(ctx)
        await asyncio.sleep(60)

    async def fails(ctx: EpisodeContext) -> None:
        async with httpx.AsyncClient() as client:
            headers = {"authorization": f"Bearer {ctx.api_key}"}
            await client.post(f"{ctx.base_url}/chat/completions", json=CHAT, headers=headers)
        raise RuntimeError("broken")

    async def play(program: Any, *, cancel: bool) -> str:
        sampler = Slow(lambda prompt, key: "fine")
        if not cancel:
            sampler.allowed.set()
        async with Gateway() as gateway:
            values = settings(sampler, program=FunctionProgram("p", program), gateway=gateway)
            work = asyncio.create_task(play_groups(plans("Adder", 2, 10), values, envs=CountingPool()))
            if cancel:
                await asyncio.wait_for(sampler.asked.wait(), 20)
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work
            else:
                with pytest.raises(RolloutError, match="broken"):
                    await work
            assert not gateway.sessions
            return gateway.address

    async def main() -> None:
        await play(fails, cancel=False)  # what is opened once and kept: resolver, caches
        before = open_files()
        for program, cancel in ((hangs, True), (fails, False)):
            address = await play(program, cancel=cancel)
            host, port = address.removeprefix("http://").split(":")
            with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), 2):
                pass
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        assert open_files() <= before

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        asyncio.run(main())


def test_requests_in_every_state_end_with_the_gateway(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> list[bytes]:
        sampler, ends = Slow(["never"]), []
        async with Gateway() as gateway:
            session = gateway.open(recorder(sampler))
            host, port = gateway.address.removeprefix("http://").split(":")
            path = session.base_url.partition(port)[2]
            head = f"POST {path}/chat/completions HTTP/1.1\r\nHost: x\r\n"
            head += f"Authorization: Bearer {session.api_key}\r\nContent-Length: "
            body = json.dumps(CHAT)
            whole = f"{head}{len(body)}\r\n\r\n{body}"
            for sent in ("", whole[:30], whole[:-5], whole):
                ends.append(await asyncio.open_connection(host, int(port)))
                ends[-1][1].write(sent.encode())
            await asyncio.wait_for(sampler.asked.wait(), 20)
        read = []
        for reader, writer in ends:
            try:
                read.append(await asyncio.wait_for(reader.read(), 5))
            except ConnectionResetError:
                read.append(b"")
            writer.close()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        return read

    nothing, begun, half, asked = asyncio.run(main())
    assert nothing == begun == half == b""
    assert b"episode_over" in asked
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_ctrl_c_closes_the_port(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio
            from playground import CountingPool, SpySampler, plans, settings
            from hyperrl.agents.base import FunctionProgram
            from hyperrl.agents.rollout import play_groups
            from hyperrl.harness.gateway import Gateway

            async def waits(ctx):
                print(ctx.base_url, flush=True)
                await asyncio.sleep(60)

            async def main():
                async with Gateway() as gateway:
                    values = settings(SpySampler([]), program=FunctionProgram("w", waits), gateway=gateway)
                    try:
                        await play_groups(plans("Adder"), values, envs=CountingPool())
                    finally:
                        print(len(gateway.sessions), flush=True)

            asyncio.run(main())
            """
        )
    )
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert out.strip() == "0"
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    host, port = url.split("/")[2].split(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), 2):
        pass
