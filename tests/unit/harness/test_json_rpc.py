"""JSON-RPC over streams: answers, errors, notifications, broken messages and the end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperrl.harness import json_rpc
from hyperrl.harness.json_rpc import JsonRpc, RpcClosedError, RpcError

Heard = list[tuple[str, Mapping[str, Any]]]


async def spoken(work: Callable[[JsonRpc, socket.socket], Awaitable[Any]]) -> tuple[Any, Heard]:
    """Run ``work`` with a JSON-RPC and the program's end of it; return its result and what was heard."""
    heard: Heard = []
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours)
    rpc = JsonRpc(lambda method, params: heard.append((method, params)))
    serving = asyncio.create_task(rpc.serve(reader, writer))
    await rpc.opened.wait()
    try:
        result = await work(rpc, theirs)
    finally:
        theirs.close()
        await serving
    with pytest.raises(RpcClosedError):
        await rpc.call("late", {})
    return result, heard


async def asked(theirs: socket.socket) -> dict[str, Any]:
    """Return the next message that the program gets."""
    text = b""
    while not text.endswith(b"\n"):
        text += await asyncio.get_running_loop().sock_recv(theirs, 65_536)
    return dict(json.loads(text))


async def say(theirs: socket.socket, *messages: Any) -> None:
    lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
    await asyncio.get_running_loop().sock_sendall(theirs, b"".join([line + b"\n" for line in lines]))


def test_calls_get_their_own_answers_in_any_order() -> None:
    async def work(rpc: JsonRpc, theirs: socket.socket) -> list[Any]:
        first = asyncio.create_task(rpc.call("first", {"a": "\u2028 ä"}))
        one = await asked(theirs)
        second = asyncio.create_task(rpc.call("second", {}))
        two = await asked(theirs)
        assert (one["method"], one["params"], one["jsonrpc"]) == ("first", {"a": "\u2028 ä"}, "2.0")
        await say(theirs, {"id": two["id"], "result": 2}, {"id": one["id"], "result": {"x": 1}})
        return [await first, await second]

    result, heard = asyncio.run(spoken(work))
    assert result == [{"x": 1}, 2]
    assert heard == []


def test_an_error_and_the_end_are_told_apart() -> None:
    async def work(rpc: JsonRpc, theirs: socket.socket) -> None:
        refused = asyncio.create_task(rpc.call("refused", {}))
        number = (await asked(theirs))["id"]
        await say(theirs, {"id": number, "error": {"code": -32601, "message": "no such method"}})
        with pytest.raises(RpcError, match="no such method"):
            await refused
        left = asyncio.create_task(rpc.call("left", {}))
        await asked(theirs)
        theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(RpcClosedError):
            await left

    asyncio.run(spoken(work))


def test_what_makes_no_sense_is_passed_over() -> None:
    broken = [
        b"Starting up...",
        b"",
        b"[1, 2]",
        b"[" * 2000,
        b'{"id": 99, "result": 1}',
        b'{"id": "x"}',
        b"\xff",
    ]

    async def work(rpc: JsonRpc, theirs: socket.socket) -> Any:
        call = asyncio.create_task(rpc.call("go", {}))
        number = (await asked(theirs))["id"]
        note = {"method": "note", "params": {"n": 1}}
        odd = {"method": "odd", "params": [1]}
        await say(theirs, *broken, note, odd, {"id": number, "result": None}, {"id": number, "result": 7})
        return await call

    assert asyncio.run(spoken(work)) == (None, [("note", {"n": 1}), ("odd", {})])


def test_a_line_without_end_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rpc, "LONGEST_LINE_BYTES", 1000)

    async def work(rpc: JsonRpc, theirs: socket.socket) -> None:
        call = asyncio.create_task(rpc.call("go", {}))
        await asked(theirs)
        await asyncio.get_running_loop().sock_sendall(theirs, b"x" * 1500)
        with pytest.raises(RpcClosedError):
            await call

    asyncio.run(spoken(work))


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.text(), max_size=5), cuts=st.lists(st.integers(min_value=1, max_value=40), max_size=8)
)
def test_messages_arrive_whole_wherever_the_stream_is_cut(texts: list[str], cuts: list[int]) -> None:
    data = b"".join(
        [json.dumps({"method": "n", "params": {"text": text}}).encode() + b"\n" for text in texts]
    )

    async def main() -> Heard:
        heard: Heard = []
        reader = asyncio.StreamReader()
        rest = data
        for cut in cuts:
            reader.feed_data(rest[:cut])
            rest = rest[cut:]
        reader.feed_data(rest)
        reader.feed_eof()
        ours, theirs = socket.socketpair()
        with theirs:
            _, writer = await asyncio.open_connection(sock=ours)
            await JsonRpc(lambda method, params: heard.append((method, params))).serve(reader, writer)
        return heard

    assert asyncio.run(main()) == [("n", {"text": text}) for text in texts]
