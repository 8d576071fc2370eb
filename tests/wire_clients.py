"""Small agents over the official OpenAI and Anthropic clients, one for each wire format and way to answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anthropic
import openai

from hyperrl.agents.base import EpisodeContext


@dataclass
class Said:
    """What a model said, as a client understood it."""

    text: str
    reasoning: str
    calls: list[tuple[str, str, Any]]
    end: str
    usage: tuple[int, int]
    echo: list[Any] = field(default_factory=list)


class ChatAgent:
    """Speaks chat.completions."""

    ends: ClassVar = {"tool_calls": "tools", "stop": "stop", "length": "length"}

    def __init__(self, url: str, key: str, *, stream: bool, **options: Any) -> None:
        plain = openai.DefaultAsyncHttpxClient(verify=False)  # spares reading certificates
        self.client = openai.AsyncOpenAI(
            base_url=url, api_key=key, max_retries=0, http_client=plain, **options
        )
        self.stream = stream

    def user(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def system(self, text: str) -> list[Any]:
        return [{"role": "developer", "content": text}]

    def results(self, results: Mapping[str, str]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": i, "content": text} for i, text in results.items()]

    async def ask(self, history: Sequence[Any], tools: Sequence[Any], **fields: Any) -> Said:
        create = self.client.chat.completions.create
        asked = {
            "model": "any",
            "messages": list(history),
            "tools": list(tools) or openai.NOT_GIVEN,
            **fields,
        }
        if not self.stream:
            answer = await create(**asked)
            message = answer.choices[0].message.model_dump(exclude_none=True)
            end, usage = answer.choices[0].finish_reason, answer.usage
        else:
            message, end, usage = {"role": "assistant", "content": "", "tool_calls": []}, "", None
            async for chunk in await create(**asked, stream=True, stream_options={"include_usage": True}):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    end = choice.finish_reason or end
                    delta = choice.delta.model_dump(exclude_none=True)
                    message["content"] += delta.get("content", "")
                    if "reasoning_content" in delta:
                        message["reasoning_content"] = delta["reasoning_content"]
                    message["tool_calls"] += delta.get("tool_calls", [])
            if not message["tool_calls"]:
                del message["tool_calls"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        ]
        return Said(
            message.get("content") or "",
            message.get("reasoning_content", ""),
            calls,
            self.ends[end],
            (usage.prompt_tokens, usage.completion_tokens),
            [message],
        )

    async def close(self) -> None:
        await self.client.close()


class ResponsesAgent(ChatAgent):
    """Speaks Responses, as Codex does: the whole history every time."""

    def results(self, results: Mapping[str, str]) -> list[Any]:
        kind = "function_call_output"
        return [{"type": kind, "call_id": i, "output": text} for i, text in results.items()]

    async def ask(self, history: Sequence[Any], tools: Sequence[Any], **fields: Any) -> Said:
        shown = [{"type": "function", "strict": False, **tool["function"]} for tool in tools]
        asked = {"model": "any", "input": list(history), "tools": shown, **fields}
        if self.stream:
            async with self.client.responses.stream(**asked) as events:
                async for event in events:
                    if event.type in ("response.completed", "response.incomplete"):
                        answer = event.response
                    elif event.type == "response.failed":
                        raise RuntimeError(event.response.error)
        else:
            answer = await self.client.responses.create(**asked)
        items = [item.model_dump(exclude_none=True, by_alias=True) for item in answer.output]
        for item in items:
            item.pop("parsed_arguments", None)
            for part in item.get("content", ()):
                part.pop("parsed", None)
        calls = [
            (item["call_id"], item["name"], item["arguments"])
            for item in items
            if item["type"] == "function_call"
        ]
        reasoning = "".join(
            part["text"] for item in items if item["type"] == "reasoning" for part in item["content"]
        )
        end = "length" if answer.status == "incomplete" else "tools" if calls else "stop"
        usage = (answer.usage.input_tokens, answer.usage.output_tokens)
        text = "".join(
            part["text"] for item in items if item["type"] == "message" for part in item["content"]
        )
        return Said(text, reasoning, calls, end, usage, items)


class AnthropicAgent:
    """Speaks Anthropic Messages."""

    ends: ClassVar = {"tool_use": "tools", "end_turn": "stop", "max_tokens": "length"}

    def __init__(self, url: str, key: str, *, stream: bool, **options: Any) -> None:
        plain = anthropic.DefaultAsyncHttpxClient(verify=False)
        self.client = anthropic.AsyncAnthropic(
            base_url=url, api_key=key, max_retries=0, http_client=plain, **options
        )
        self.stream = stream

    def user(self, text: str) -> list[Any]:
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    def system(self, text: str) -> list[Any]:
        return [{"role": "system", "content": text}]

    def results(self, results: Mapping[str, str]) -> list[Any]:
        blocks = [
            {"type": "tool_result", "tool_use_id": i, "content": [{"type": "text", "text": text}]}
            for i, text in results.items()
        ]
        return [{"role": "user", "content": blocks}]

    async def ask(self, history: Sequence[Any], tools: Sequence[Any], **fields: Any) -> Said:
        shown = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "input_schema": tool["function"]["parameters"],
            }
            for tool in tools
        ]
        system = [message["content"] for message in history if message["role"] == "system"]
        messages = [message for message in history if message["role"] != "system"]
        asked = {"model": "any", "messages": messages, "tools": shown, "max_tokens": 4096, **fields}
        if system:
            asked["system"] = "\n\n".join(system)
        if self.stream:
            async with self.client.messages.stream(**asked) as events:
                answer = await events.get_final_message()
        else:
            answer = await self.client.messages.create(**asked)
        blocks = [block.model_dump(exclude_none=True) for block in answer.content]
        return Said(
            "".join(block["text"] for block in blocks if block["type"] == "text"),
            "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            [
                (block["id"], block["name"], json.dumps(block["input"]))
                for block in blocks
                if block["type"] == "tool_use"
            ],
            self.ends[answer.stop_reason],
            (answer.usage.input_tokens, answer.usage.output_tokens),
            [{"role": "assistant", "content": blocks}],
        )

    async def close(self) -> None:
        await self.client.close()


Agent = ChatAgent | AnthropicAgent
AGENTS: dict[str, Callable[..., Agent]] = {
    "chat": ChatAgent,
    "responses": ResponsesAgent,
    "anthropic": AnthropicAgent,
}


def agent_program(kind: str, *, stream: bool, said: list[Said] | None = None) -> Any:
    """Return a program that plays an environment's tools by itself and hands in the last text."""

    async def run(ctx: EpisodeContext) -> None:
        agent = AGENTS[kind](ctx.base_url, ctx.api_key, stream=stream)
        try:
            history = [
                item
                for message in ctx.observation.messages
                for item in getattr(agent, message["role"])(message["content"])
            ]
            while True:
                answer = await agent.ask(history, ctx.tools)
                if said is not None:
                    said.append(answer)
                if answer.end != "tools":
                    break
                history += [*answer.echo, *agent.results({i: run_tool(c, a) for i, c, a in answer.calls})]
        finally:
            await agent.close()
        await ctx.step(answer.text)

    return run


def run_tool(name: str, arguments: str) -> str:
    """Add two numbers."""
    try:
        given = json.loads(arguments)
        return str(given["a"] + given["b"]) if name == "add" else f"unknown tool {name}"
    except (ValueError, KeyError, TypeError) as error:
        return f"bad arguments: {error}"
