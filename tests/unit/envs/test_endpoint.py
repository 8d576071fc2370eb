import asyncio
import copy
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest
from scripted_server import ScriptedServer, chat_answer

from hyperrl.envs import Endpoint
from hyperrl.errors import ConfigError, EndpointError


def post(server: ScriptedServer, **settings):
    """One post to a server, retried at once."""

    async def run():
        async with Endpoint(server.url, **{"backoff_s": 0.0, **settings}) as endpoint:
            return await endpoint.post("score", {"q": "é\ud800"})

    return asyncio.run(run())


def failure_of(server: ScriptedServer, **settings) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        post(server, **settings)
    return caught.value


def wait_until(condition) -> bool:
    return any(condition() or time.sleep(0.01) for _ in range(500))


def test_a_body_goes_and_an_object_comes_back():
    with ScriptedServer() as server:
        assert post(server) == {"path": "/v1/score", "echo": {"q": "é\ud800"}}
        assert wait_until(lambda: server.open == 0), "aclose leaves no connection"


@pytest.mark.parametrize("failing", ["drop", (500, "oops"), (503, ""), (429, "slow down"), (408, "")])
def test_what_may_pass_is_tried_again(failing):
    with ScriptedServer(script=[failing, failing]) as server:
        assert post(server, retries=2)["path"] == "/v1/score"
        assert len(server.requests) == 3


def test_a_try_that_takes_too_long_is_ended_and_tried_again():
    with ScriptedServer(script=["hang"]) as server:
        assert post(server, timeout_s=0.3)["path"] == "/v1/score"
        assert wait_until(lambda: server.open == 0)


@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        (["drop"] * 3, "refused", None),
        (["hang"] * 3, "timeout", None),
        ([(503, "busy")] * 3, "status", 503),
    ],
)
def test_the_tries_are_bounded(script, kind, status):
    with ScriptedServer(script=script) as server:
        error = failure_of(server, retries=2, timeout_s=0.2)
        assert (error.kind, error.status, error.url) == (kind, status, f"{server.url}/score")
        assert len(server.requests) == 3
        assert server.url in str(error)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_what_cannot_pass_is_said_at_once_with_the_start_of_the_body(status):
    with ScriptedServer(script=[(status, "no model 'x' " + "." * 9000)]) as server:
        error = failure_of(server)
        assert (error.kind, error.status, len(server.requests)) == ("status", status, 1)
        assert f"status {status}: no model 'x'" in str(error)
        assert len(str(error)) < 500


@pytest.mark.parametrize(
    "body", ["", "<html>", '{"a": ', "[1, 2]", "null", "[" * 100_000], ids=lambda body: body[:8]
)
def test_a_body_that_is_no_object_is_malformed(body):
    with ScriptedServer(script=[(200, body)]) as server:
        error = failure_of(server)
        assert (error.kind, error.status, len(server.requests)) == ("malformed", 200, 1)


def test_nobody_listening_is_refused():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"

        async def run():
            async with Endpoint(url, retries=1, backoff_s=0.0) as endpoint:
                await endpoint.post("x", {})

        with pytest.raises(EndpointError, match="is the server running") as caught:
            asyncio.run(run())
    assert caught.value.kind == "refused"


def test_the_pause_that_a_server_asks_for_is_made():
    with ScriptedServer(script=[(429, "", {"Retry-After": "0.4"})]) as server:
        started = time.monotonic()
        post(server)
        assert time.monotonic() - started >= 0.4


@pytest.mark.parametrize("value", ["3600", "in an hour", "inf"])
def test_a_pause_that_is_too_long_is_not_made(value):
    value = formatdate(time.time() + 3600, usegmt=True) if value == "in an hour" else value
    with ScriptedServer(script=[(429, "come back later", {"Retry-After": value})]) as server:
        error = failure_of(server)
        assert error.retry_after_s > 3500
        assert len(server.requests) == 1


@pytest.mark.parametrize("value", ["soon", "-5", "nan", formatdate(0, usegmt=True)])
def test_a_pause_that_means_nothing_is_none(value):
    with ScriptedServer(script=[(503, "", {"Retry-After": value})]) as server:
        post(server)
        assert len(server.requests) == 2


def test_the_key_is_sent_and_never_said(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    with ScriptedServer(script=[(401, "bad key sk-very-secret")]) as server:
        error = failure_of(server, api_key="SOME_KEY")
        assert server.requests[0][2]["authorization"] == "Bearer sk-very-secret"
    assert "bad key ***" in str(error)
    assert "sk-very" not in str(error) + repr(error) + repr(Endpoint("http://x", api_key="SOME_KEY"))


@pytest.mark.parametrize(
    ("api_key", "said"), [("KEY_NOT_SET", "variable KEY_NOT_SET is not set"), ("sk-live-12", "never the key")]
)
def test_a_key_that_is_not_there_is_a_config_error_without_it(api_key, said):
    with ScriptedServer() as server:
        with pytest.raises(ConfigError, match=said) as caught:
            post(server, api_key=api_key)
        assert "sk-live" not in str(caught.value)
        assert server.requests == []


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("127.0.0.1:8000", {}),
        ("ftp://host/", {}),
        ("http://", {}),
        ("http://me:s3cr3t@host/v1", {}),
        ("http://host/v1?key=s3cr3t", {}),
        ("http://host", {"timeout_s": 0}),
        ("http://host", {"timeout_s": float("nan")}),
        ("http://host", {"retries": -1}),
        ("http://host", {"max_concurrent": 0}),
        ("http://host", {"backoff_s": -1}),
    ],
)
def test_settings_that_cannot_work_are_refused(url, settings):
    with pytest.raises(ConfigError) as caught:
        Endpoint(url, **settings)
    assert "s3cr3t" not in str(caught.value)


def test_a_chat_gives_message_reason_and_usage():
    answer = chat_answer("4", usage={"total_tokens": 7})
    tool = {"type": "function", "function": {"name": "f"}}

    async def run(url):
        async with Endpoint(url) as endpoint:
            said = [{"role": "user", "content": "2+2?"}]
            return await endpoint.chat(said, model="m", tools=[tool], temperature=0.5)

    with ScriptedServer(lambda path, body: (200, answer)) as server:
        found = asyncio.run(run(server.url))
        path, body, _ = server.requests[0]
    assert (found.text, found.finish_reason, found.usage) == ("4", "stop", {"total_tokens": 7})
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "2+2?"}],
        "temperature": 0.5,
        "tools": [tool],
    }


@pytest.mark.parametrize(
    "body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": None}]}, {"choices": 3}]
)
def test_a_chat_without_a_message_is_malformed(body):
    async def run(url):
        async with Endpoint(url) as endpoint:
            await endpoint.chat([], model="m")

    malformed = pytest.raises(EndpointError, match="no choices")
    with ScriptedServer(lambda *_: (200, body)) as server, malformed as caught:
        asyncio.run(run(server.url))
    assert caught.value.kind == "malformed"


def test_it_serves_several_loops_at_once_and_one_after_another():
    with ScriptedServer() as server:
        endpoint = Endpoint(server.url)

        async def run():
            for _ in range(3):
                await endpoint.post("x", {})
            await endpoint.aclose()
            await endpoint.post("x", {})  # opens new connections
            await endpoint.aclose()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: asyncio.run(run()), range(8)))
        assert len(server.requests) == 32
        assert wait_until(lambda: server.open == 0)


def test_no_more_requests_than_allowed_are_in_flight():
    def slow(path, body):
        time.sleep(0.02)
        return 200, {"n": body["n"]}

    async def run(url):
        async with Endpoint(url, max_concurrent=3) as endpoint:
            return await asyncio.gather(*(endpoint.post("x", {"n": n}) for n in range(20)))

    with ScriptedServer(slow) as server:
        answers = asyncio.run(run(server.url))
        assert [answer["n"] for answer in answers] == list(range(20)), "each caller gets its own answer"
        assert server.most_at_once == 3


def test_a_cancelled_caller_leaves_nothing_open():
    async def run(server):
        async with Endpoint(server.url, max_concurrent=2) as endpoint:
            tasks = [asyncio.create_task(endpoint.post("x", {})) for _ in range(5)]
            while len(server.requests) < 2:  # noqa: ASYNC110 - the server lives in threads
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert wait_until(lambda: server.open == 0)
            assert (await endpoint.post("x", {}))["path"] == "/v1/x", "its places are free again"

    with ScriptedServer(script=["hang", "hang"]) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_carry_the_settings_only(copied):
    with ScriptedServer() as server:

        async def run():
            first = Endpoint(server.url, retries=2, timeout_s=9.0, api_key=None, max_concurrent=5)
            await first.post("x", {})
            second = copied(first)
            await first.aclose()
            await second.post("x", {})
            await second.aclose()
            return second

        second = asyncio.run(run())
        assert (second.base_url, second.retries, second.timeout_s, second.max_concurrent) == (
            server.url,
            2,
            9.0,
            5,
        )
