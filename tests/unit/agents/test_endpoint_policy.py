"""A policy behind an endpoint, against a server on this machine that answers as foreign ones do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from playground import CountingPool, plans
from scripted_server import ScriptedServer, chat_answer

from hyperrl.agents.endpoint import EndpointPolicy
from hyperrl.agents.recorder import RemoteSeat
from hyperrl.agents.rollout import RolloutLimits, RolloutSettings, play_episode
from hyperrl.envs.endpoint import Endpoint
from hyperrl.errors import ConfigError
from hyperrl.sampling import EpisodeKey, Reply, RequestKey, SamplingParams, request_seed
from hyperrl.trajectory import StopReason, Trajectory, TruncationReason

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
USER = [{"role": "user", "content": "2 + 3?"}]


def make_policy(server: ScriptedServer, *, max_tokens: int = 64, **values: Any) -> EndpointPolicy:
    endpoint = Endpoint(server.url, backoff_s=0.0, retries=2, timeout_s=5.0)
    params = SamplingParams(max_tokens=max_tokens, temperature=0.5)
    return EndpointPolicy(endpoint, "served", params, **values)


def ask(server: ScriptedServer, messages: Any = USER, tools: Any = TOOLS, **values: Any) -> Reply:
    async def run() -> Reply:
        policy = make_policy(server, **values)
        async with policy.endpoint:
            return await policy.respond(messages, tools)

    return asyncio.run(run())


def play(server: ScriptedServer, *, env: str = "Adder", turns: int = 5, seeded: bool = False) -> Trajectory:
    async def run() -> Trajectory:
        policy = make_policy(server)
        seat = RemoteSeat(policy=(lambda key: policy.for_episode(key, 7)) if seeded else policy)
        shared = RolloutSettings(
            run_id="run", run_seed=7, seats={"main": seat}, limits=RolloutLimits(max_turns=turns)
        )
        async with policy.endpoint:
            return await play_episode(plans(env)[0], shared, envs=CountingPool())

    return asyncio.run(run())


def says(content: str | None, *calls: Any, finish: str = "stop", **more: Any) -> tuple[int, dict[str, Any]]:
    message = {"role": "assistant", "content": content, **more}
    if calls:
        message["tool_calls"] = list(calls)
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    return 200, {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}


def call(arguments: Any, name: Any = "add", call_id: str = "call_x") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_request_says_what_was_asked_for() -> None:
    with ScriptedServer(script=[says("hi")]) as server:
        reply = ask(server, extra={"reasoning_effort": "low"})
    [(path, body, _)] = server.requests
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "served",
        "messages": USER,
        "tools": TOOLS,
        "temperature": 0.5,
        "max_tokens": 64,
        "reasoning_effort": "low",
    }
    assert (reply.text, reply.usage, reply.stop_reason) == ("hi", (10, 4), StopReason.STOP)


def test_an_episode_with_tools_is_played_and_recorded_without_tokens() -> None:
    script = [says(None, call('{"a": 2, "b": 3}'), finish="tool_calls"), says("5")]
    with ScriptedServer(script=script) as server:
        trajectory = play(server)
    assert trajectory.reward == 1
    assert [turn.behavior_logprobs for turn in trajectory.turns] == [None, None]
    assert trajectory.events[0].tool_calls[0].result == "5"
    assert trajectory.metrics["endpoint_prompt_tokens"] == 20
    assert trajectory.metrics["endpoint_completion_tokens"] == 8
    second = server.requests[1][1]["messages"]
    assert [message["role"] for message in second] == ["system", "user", "assistant", "tool"]
    assert second[2]["tool_calls"][0]["id"] == second[3]["tool_call_id"] == "call_x"


@pytest.mark.parametrize(
    ("arguments", "status", "repairs"),
    [
        ('{"a": 2, "b": 3,}', "ok", ("trailing_comma",)),
        ("{'a': 2, 'b': None}", "ok", ("python_literal",)),
        ('"{\\"a\\": 2}"', "ok", ("double_encoded",)),
        ({"a": 2}, "ok", ()),
        ("", "ok", ("missing_arguments",)),
        (None, "ok", ("missing_arguments",)),
        ('{"a": 2', "invalid_json", ()),
        ("[1, 2]", "malformed", ()),
        ("7", "malformed", ()),
    ],
)
def test_arguments_keep_their_status(arguments: Any, status: str, repairs: tuple[str, ...]) -> None:
    with ScriptedServer(script=[says(None, call(arguments))]) as server:
        [read] = ask(server).tool_calls
    assert (read.status, read.repairs, read.name, read.call_id) == (status, repairs, "add", "call_x")
    assert (read.arguments is None) == (status != "ok")


@pytest.mark.parametrize("strange", [{}, {"function": None}, {"function": {"name": 7}}, "text", None])
def test_a_call_without_a_name_is_an_attempt(strange: Any) -> None:
    with ScriptedServer(script=[says(None, strange)]) as server:
        [read] = ask(server).tool_calls
    assert (read.status, read.call_id) == ("missing_name", "call_0_0")


def test_broken_arguments_are_answered_not_run_and_sent_back_as_an_object() -> None:
    script = [says(None, call('{"a": 2, "b"')), says(None, call('{"a": 2, "b": 3}')), says("5")]
    with ScriptedServer(script=script) as server:
        trajectory = play(server)
    first, second = (event.tool_calls[0] for event in trajectory.events[:2])
    assert (first.status, first.arguments) == ("invalid_json", '{"a": 2, "b"')
    assert second.status == "ok"
    assert second.call_id != first.call_id, "the server used one id twice"
    sent = server.requests[2][1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"invalid_arguments": '{"a": 2, "b"'}
    assert trajectory.reward == 1


def test_calls_are_read_out_of_the_text_of_a_server_without_a_parser() -> None:
    written = 'so <tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    with ScriptedServer(script=[says(written), says("5"), says(written)]) as server:
        assert play(server).metrics["tool_calls_ok"] == 1
        assert ask(server, tools=[]).tool_calls == ()


@pytest.mark.parametrize(
    "answer",
    [
        says("5", reasoning_content="two and three"),
        says("5", reasoning="two and three"),
        says("<think>two and three</think>\n\n5"),
    ],
)
def test_reasoning_is_recorded_but_not_sent_back(answer: Any) -> None:
    with ScriptedServer(script=[answer]) as server:
        reply = ask(server)
    assert reply.message["content"].strip() == "5"
    assert reply.message["reasoning_content"] == "two and three"
    assert "two and three" in reply.text
    with ScriptedServer(script=[says("x"), says("x")]) as server:
        ask(server, [*USER, reply.message, *USER])
        ask(server, [*USER, reply.message, *USER], send_reasoning=True)
    assert "reasoning_content" not in server.requests[0][1]["messages"][1]
    assert server.requests[1][1]["messages"][1]["reasoning_content"] == "two and three"


def test_an_answer_cut_by_its_limit_is_scored_and_runs_nothing() -> None:
    cut = says("almost", call('{"a": 2, "b": 3}'), finish="length")
    with ScriptedServer(script=[cut]) as server:
        trajectory = play(server)
    assert trajectory.turns[0].stop_reason is StopReason.LENGTH
    assert trajectory.truncation_reason is TruncationReason.MAX_TOKENS
    assert [record.status for record in trajectory.events[0].tool_calls] == ["not_run"]
    assert trajectory.reward == 0


OVERFLOWS = {
    "OpenAI": "This model's maximum context length is 4096 tokens.",
    "vLLM": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "SGLang": "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "Anthropic": "prompt is too long: 5000 tokens > 4096 maximum",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096",
}


@pytest.mark.parametrize("server_name", OVERFLOWS)
def test_a_conversation_that_no_longer_fits_is_cut_and_scored(server_name: str) -> None:
    refused = {"error": {"message": OVERFLOWS[server_name]}}
    with ScriptedServer(script=[says("first"), (400, refused)]) as server:
        trajectory = play(server, env="Echo")
    assert trajectory.truncation_reason is TruncationReason.CONTEXT
    assert trajectory.failure is None
    assert trajectory.reward == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 100 tokens. However, you requested 112 tokens"
        " (48 in the messages, 64 in the completion). Please reduce the length.",
        "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context length is"
        " 100 tokens and your request has 48 input tokens (64 > 100 - 48).",
    ],
)
def test_an_answer_limit_that_does_not_fit_is_lowered(text: str) -> None:
    with ScriptedServer(script=[(400, {"message": text}), says("ok")]) as server:
        assert ask(server).text == "ok"
    assert [body["max_tokens"] for _, body, _ in server.requests] == [64, 52]


def test_the_other_name_of_the_limit_is_learned_once() -> None:
    refused = {
        "error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}
    }
    with ScriptedServer(script=[(400, refused), says("first"), says("stop")]) as server:
        assert play(server, env="Echo").failure is None
    names = [sorted(body.keys() & {"max_tokens", "max_completion_tokens"}) for _, body, _ in server.requests]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


@pytest.mark.parametrize("passing", ["drop", (429, "slow down"), (500, "oops"), (503, "")])
def test_what_passes_is_no_failure(passing: Any) -> None:
    with ScriptedServer(script=[passing, passing, says("stop")]) as server:
        assert play(server, env="Echo").reward == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("drop", "endpoint_refused"),
        ((429, "slow down"), "endpoint_rate_limited"),
        ((502, "bad gateway"), "endpoint_server_error"),
        ((400, {"error": "temperature"}), "endpoint_bad_request"),
        ((200, "no json"), "endpoint_malformed"),
        ((200, {"choices": []}), "endpoint_malformed"),
        (says("", finish="content_filter"), "content_filter"),
    ],
)
def test_what_does_not_pass_is_a_failure_with_its_kind_and_no_reward(answer: Any, kind: str) -> None:
    with ScriptedServer(script=[answer] * 3) as server:
        trajectory = play(server, env="Echo")
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.failure.stage) == (kind, "policy")
    assert trajectory.reward is None
    assert not trajectory.usable


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_key_or_model_that_is_refused_ends_everything(status: int) -> None:
    with ScriptedServer(script=[(status, {"error": "no"})]) as server:
        with pytest.raises(ConfigError, match="does not let us use this model"):
            play(server)
        assert len(server.requests) == 1


def test_requests_of_an_episode_have_seeds_of_their_own() -> None:
    with ScriptedServer(script=[says("a"), says("stop")]) as server:
        play(server, env="Echo", seeded=True)
    seeds = [body["seed"] for _, body, _ in server.requests]
    key = EpisodeKey((0, 0), 0)
    assert seeds == [request_seed(7, RequestKey(*key, "main", i)) % 2**31 for i in range(2)]


def test_the_official_client_sends_the_same_request() -> None:
    pytest.importorskip("jiter")  # of the official client, which loads it late
    openai = pytest.importorskip("openai")
    with ScriptedServer(lambda path, body: says("5")) as server:
        ours = ask(server)
        with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=10) as client:
            theirs = client.chat.completions.create(
                model="served", messages=USER, tools=TOOLS, temperature=0.5, max_tokens=64
            )
    (first_path, first, _), (second_path, second, _) = server.requests
    assert (first_path, first) == (second_path, second)
    assert ours.text == theirs.choices[0].message.content
    assert ours.usage == (theirs.usage.prompt_tokens, theirs.usage.completion_tokens)


def test_what_we_send_and_read_fits_the_official_client() -> None:
    types = pytest.importorskip("openai.types.chat")
    pydantic = pytest.importorskip("pydantic")
    script = [says(None, call('{"a": 2, "b": 3}')), says(None, call("{")), says("5")]
    with ScriptedServer(script=script) as server:
        play(server)
    sent = pydantic.TypeAdapter(list[types.ChatCompletionMessageParam])
    for _, body, _ in server.requests:
        sent.validate_python(body["messages"])
        for tool in body["tools"]:
            pydantic.TypeAdapter(types.ChatCompletionFunctionToolParam).validate_python(tool)
    full = {"id": "1", "object": "chat.completion", "created": 0, "model": "served", **chat_answer("5")}
    full["choices"][0]["logprobs"] = None
    completion = types.ChatCompletion.model_validate(full)
    with ScriptedServer(script=[(200, completion.model_dump())]) as server:
        assert ask(server).text == "5"
