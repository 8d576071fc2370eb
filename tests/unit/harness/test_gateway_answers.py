"""Answers on the wire that programs have stumbled over: reasoning, cut calls, caps that are too small."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette")

from playground import SpySampler, seat
from served_sessions import Served

USER = {"role": "user", "content": "go"}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}],
    },
    "responses": {
        "input": [USER],
        "tools": [{"type": "function", "name": "add", "parameters": PARAMETERS}],
    },
    "messages": {"messages": [USER], "tools": [{"name": "add", "input_schema": PARAMETERS}]},
}
CAPS = {
    "chat/completions": "max_completion_tokens",
    "responses": "max_output_tokens",
    "messages": "max_tokens",
}


def ask(route: str, script: list[str], *, limit: int = 512, **fields: Any) -> Any:
    body = {"model": "main", "max_tokens": 4096, **BODIES[route], **fields}

    async def main() -> Any:
        served = Served([], seats={"main": seat(SpySampler(script), max_tokens=limit)})
        return await served.post(route, body)

    return asyncio.run(main())


def kinds(route: str, answer: dict[str, Any]) -> list[str]:
    """The kinds of the parts of an answer."""
    if route == "chat/completions":
        said = answer["choices"][0]["message"]
        named = {"reasoning_content": "reasoning", "content": "text", "tool_calls": "call"}
        return [kind for key, kind in named.items() if said.get(key)]
    parts = answer["output"] if route == "responses" else answer["content"]
    named = {
        "reasoning": "reasoning",
        "thinking": "reasoning",
        "message": "text",
        "text": "text",
        "function_call": "call",
        "tool_use": "call",
    }
    return [named[part["type"]] for part in parts]


@pytest.mark.parametrize("route", BODIES)
def test_reasoning_comes_in_the_field_that_programs_hand_back(route: str) -> None:
    answer = ask(route, ["<think>\nFirst this.\n</think>\n\nThen that."]).json()
    assert kinds(route, answer) == ["reasoning", "text"]
    if route == "responses":
        assert answer["output"][0]["content"] == [{"type": "reasoning_text", "text": "First this."}]
    if route == "messages":
        assert answer["content"][0]["thinking"] == "First this."
        assert answer["content"][0]["signature"]


@pytest.mark.parametrize("route", BODIES)
def test_an_answer_that_was_cut_never_holds_a_call(route: str) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": "1"}}\n</tool_call>'
    whole = ask(route, [call]).json()
    assert kinds(route, whole) == ["call"]
    cut = ask(route, [call + "\n" + call + " and so on" * 40], limit=130).json()
    assert "call" not in kinds(route, cut)
    ended = {
        "chat/completions": lambda said: said["choices"][0]["finish_reason"] == "length",
        "responses": lambda said: said["status"] == "incomplete",
        "messages": lambda said: said["stop_reason"] == "max_tokens",
    }
    assert ended[route](cut)


@pytest.mark.parametrize("route", BODIES)
def test_a_cap_that_a_program_has_worked_itself_into_is_refused(route: str) -> None:
    for cap, status in ((1, 400), (15, 400), (16, 200)):
        response = ask(route, ["fine"], **{CAPS[route]: cap})
        assert response.status_code == status, response.text
    assert "context window" in ask(route, ["fine"], **{CAPS[route]: 1}).text
