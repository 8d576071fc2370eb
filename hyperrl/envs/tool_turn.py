"""Running the tool calls of one action."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from hyperrl.envs.tools import Tool, ToolResult
from hyperrl.errors import EnvError, nearest
from hyperrl.sampling import Message, ToolCall
from hyperrl.trajectory import ToolRecord

__all__ = ["choose_tools", "run_calls", "tool_messages", "unrun_records"]

_PARSE_ADVICE = {
    "invalid_json": "its arguments are not valid JSON",
    "unclosed": "it is not closed",
    "missing_name": "it names no tool",
    "malformed": "it is not an object with a name and an object of arguments",
}


def choose_tools(known: Mapping[str, Tool], wanted: Iterable[str | Tool], *, where: str) -> dict[str, Tool]:
    """Return the tools of an episode by name.

    Args:
        known: the tools of the environment's class.
        wanted: names among them, and tools from elsewhere.
        where: what to call the source of ``wanted`` in an error.

    Raises:
        EnvError: it is no list, a name that is not known, or two tools with one name.
    """
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise EnvError(f"{where} must return a list of names and tools, got {wanted!r:.80}")
    chosen: dict[str, Tool] = {}
    for entry in wanted:
        found = entry if isinstance(entry, Tool) else known.get(entry)
        if found is None:
            raise EnvError(
                f"{where} names {entry!r}, but there are only {list(known)}.{nearest(str(entry), known)}"
            )
        if chosen.setdefault(found.name, found) is not found:
            raise EnvError(f"{where} gives two tools named {found.name!r}; name one of them otherwise")
    return chosen


async def run_calls(
    calls: Sequence[ToolCall], tools: Mapping[str, Tool], env: object
) -> tuple[ToolRecord, ...]:
    """Run every call that can be run; a bad one never keeps a later one from running.

    Calls run in order. Where one of several waits (an async or a blocking tool), they overlap.

    Raises:
        ToolServerError: a tool's server is gone; the other calls are cancelled.
    """
    overlap = len(calls) > 1 and any(call.name in tools and tools[call.name].suspends for call in calls)
    if overlap:
        return tuple(await _run_together([_run_call(call, tools, env) for call in calls]))
    return tuple([await _run_call(call, tools, env) for call in calls])


async def _run_together(coroutines: Sequence[Coroutine[Any, Any, ToolRecord]]) -> list[ToolRecord]:
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def unrun_records(calls: Sequence[ToolCall]) -> tuple[ToolRecord, ...]:
    """Record calls that must not be run, because their action was cut off."""
    return tuple(_record(call, ToolResult(status="not_run", text="")) for call in calls)


def tool_messages(records: Sequence[ToolRecord]) -> list[Message]:
    """Return one tool message for each call, in order."""
    return [
        {"role": "tool", "tool_call_id": record.call_id, "name": record.name, "content": record.result}
        for record in records
    ]


async def _run_call(call: ToolCall, tools: Mapping[str, Tool], env: object) -> ToolRecord:
    refused = _refusal(call, tools)
    if refused is not None or call.arguments is None:
        return _record(call, refused or _malformed(call))
    start = time.perf_counter()
    result = await tools[call.name].call(call.arguments, env=env)
    return _record(call, result, duration_s=time.perf_counter() - start)


def _refusal(call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult | None:
    if call.status != "ok":
        return _malformed(call)
    if call.name not in tools:
        known = ", ".join(tools)
        text = f"Error: there is no tool {call.name[:80]!r}.{nearest(call.name[:80], tools)} Tools: {known}."
        return ToolResult(status="unknown_tool", text=text)
    limit = tools[call.name].max_input_chars
    if len(call.raw) > limit:
        text = f"Error: the call has {len(call.raw):,} characters; {call.name} takes at most {limit:,}."
        return ToolResult(status="too_long", text=text)
    return None


def _malformed(call: ToolCall) -> ToolResult:
    status = "malformed" if call.status == "ok" else call.status
    reason = _PARSE_ADVICE.get(status, status)
    text = (
        f"Error: this tool call could not be read: {reason}. Write"
        ' {"name": "<tool>", "arguments": {...}} as one valid JSON object.'
    )
    return ToolResult(status=status, text=text)


def _record(call: ToolCall, result: ToolResult, *, duration_s: float = 0.0) -> ToolRecord:
    return ToolRecord(
        call_id=call.call_id,
        name=call.name,
        arguments=call.raw,
        status=result.status,
        result=result.text,
        duration_s=duration_s,
        repairs=call.repairs + result.repairs,
    )
