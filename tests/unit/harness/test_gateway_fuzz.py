"""Any body gets an answer or a well-formed error of its wire format, and nothing of another session."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import recorder

pytest.importorskip("starlette")

from served_sessions import Served

from hyperrl.harness.gateway.server import FORMATS
from hyperrl.harness.gateway.sessions import GatewaySettings

SECRET = "the-secret-of-another-session"
TOOL = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}
BODIES: dict[str, list[dict[str, Any]]] = {
    "chat/completions": [
        {
            "model": "main",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 64,
            "temperature": 2,
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{bad"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "5"}]},
            ],
            "tools": [
                {"type": "function", "function": TOOL},
                {"type": "custom", "custom": {"name": "patch"}},
                {"type": "web_search"},
            ],
        }
    ],
    "responses": [
        {
            "model": "main",
            "stream": True,
            "instructions": "be brief",
            "max_output_tokens": 64,
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
                {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": None},
                {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                {"type": "function_call", "id": "fc_1", "name": "add", "arguments": "{}", "call_id": "c1"},
                {"type": "function_call_output", "call_id": "c1", "output": "5"},
                {"type": "custom_tool_call", "name": "patch", "input": "text", "call_id": "c2"},
                {
                    "type": "custom_tool_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "ok"}],
                },
            ],
            "tools": [
                {"type": "function", **TOOL},
                {"type": "custom", "name": "patch", "format": {"type": "grammar"}},
                {"type": "namespace", "name": "agents", "tools": [{"type": "function", **TOOL}]},
                {"type": "web_search"},
            ],
        },
        {"input": "go", "previous_response_id": "resp_nothing"},
    ],
    "messages": [
        {
            "model": "main",
            "max_tokens": 64,
            "stream": True,
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "go"}, {"type": "image", "source": {}}],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "sig"},
                        {"type": "text", "text": "let me"},
                        {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": "no"}
                    ],
                },
                {"role": "system", "content": "a reminder"},
            ],
            "tools": [
                {"name": "add", "input_schema": {"type": "object"}},
                {"type": "web_search_20250305", "name": "web_search"},
            ],
        }
    ],
}
BODIES["messages/count_tokens"] = BODIES["messages"]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "id", "name", "tools", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path into a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def mutated(body: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    body = copy.deepcopy(body)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return body


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    route = draw(st.sampled_from(sorted(BODIES)))
    if draw(st.integers(0, 9)) == 0:
        return route, draw(st.binary(max_size=40))
    body: Any = draw(st.sampled_from(BODIES[route]))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(sorted(places(body), key=repr)))
        body = mutated(body, path, draw(json_values))
    return route, json.dumps(body).encode()


def check_error(route: str, response: httpx.Response) -> None:
    found = response.json()
    error = found["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    if route.startswith("messages"):
        assert found["type"] == "error"
    else:
        assert set(error) == {"message", "type", "param", "code"}


@settings(max_examples=300, deadline=None)
@given(asked=requests())
def test_any_body_gets_an_answer_or_a_well_formed_error(asked: tuple[str, bytes]) -> None:
    route, body = asked

    async def main() -> httpx.Response:
        served = Served(lambda prompt, key: SECRET if SECRET in prompt else "fine")
        other = served.open(recorder(served.sampler), GatewaySettings())
        hello = {"messages": [{"role": "user", "content": SECRET}]}
        url = f"{other.base_url}/chat/completions"
        told = await served.request("POST", url, hello, authorization=f"Bearer {other.api_key}")
        assert SECRET in told.text
        response = await served.post(route, body)
        for session in (served.session, other):
            await session.aclose()
            assert session.api_key not in response.text
        return response

    response = asyncio.run(main())
    assert response.status_code == 200 or 400 <= response.status_code < 500, response.text
    assert SECRET not in response.text
    assert "Traceback" not in response.text
    if response.status_code != 200:
        check_error(route, response)


@pytest.mark.parametrize("route", sorted(BODIES))
def test_the_bodies_that_are_mutated_are_answered(route: str) -> None:
    async def main() -> httpx.Response:
        return await Served(["fine"]).post(route, BODIES[route][0])

    response = asyncio.run(main())
    assert response.status_code == 200, response.text
    assert route in FORMATS


@settings(max_examples=60, deadline=None)
@given(
    depth=st.sampled_from([10, 1000, 100_000]), opening=st.sampled_from(["[", '{"messages":', '{"input":'])
)
def test_deep_bodies_are_refused(depth: int, opening: str) -> None:
    async def main() -> None:
        served = Served(["fine"])
        for route in BODIES:
            response = await served.post(route, opening.encode() * depth)
            assert response.status_code == 400
            check_error(route, response)

    asyncio.run(main())


@pytest.mark.parametrize("route", sorted(BODIES))
def test_deep_tools_are_refused(route: str) -> None:
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(900):
        inner["a"] = inner = {}
    body = copy.deepcopy(BODIES["messages"][0])
    body["tools"] = [{"name": "add", "input_schema": deep}]
    if route == "responses":
        body = {"input": "go", "tools": [{"type": "function", "name": "add", "parameters": deep}]}
    elif route == "chat/completions":
        body["tools"] = [{"type": "function", "function": {"name": "add", "parameters": deep}}]
        body["messages"] = [{"role": "user", "content": "go"}]

    async def main() -> Served:
        served = Served(["fine"])
        response = await served.post(route, body)
        assert response.status_code in (200, 400)
        if response.status_code == 400:
            check_error(route, response)
            assert "nested too deeply" in response.text
        return served

    assert asyncio.run(main()).session.error is None
