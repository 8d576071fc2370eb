"""JSON-RPC 2.0 with a program over its standard streams, one message a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from hyperrl.errors import RolloutError

__all__ = ["JsonRpc", "RpcClosedError", "RpcError"]

LONGEST_LINE_BYTES = 256 * 2**20
_CHUNK_BYTES = 65_536


class RpcError(RolloutError):
    """The program answered a call with an error."""


class RpcClosedError(RolloutError):
    """The program's output has ended, or makes no sense, so a call can have no answer."""


class JsonRpc:
    """Calls of ours, and the program's answers and notifications.

    Args:
        on_notification: called with the method and the parameters of each notification.

    Attributes:
        opened: set once the program can be spoken to.
    """

    def __init__(self, on_notification: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._on_notification = on_notification
        self.opened = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read what the program says until it ends; then every call that waits fails."""
        self._writer = writer
        self.opened.set()
        try:
            async for line in _lines(reader):
                self._take(line)
        finally:
            self._writer = None
            writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(RpcClosedError("the program has ended"))

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call a method of the program and return its result.

        Raises:
            RpcError: it answers with an error.
            RpcClosedError: it has ended, or does so before it answers.
        """
        if self._writer is None:
            raise RpcClosedError("the program is not running")
        self._calls += 1
        number = self._calls
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}
        try:
            with contextlib.suppress(OSError):  # the end of its output tells
                self._writer.write(json.dumps(message).encode() + b"\n")
                await self._writer.drain()
            return await answer
        finally:
            del self._waiting[number]

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return  # a program may write other things too
        if not isinstance(message, dict):
            return
        params = message.get("params")
        if "method" in message:
            self._on_notification(str(message["method"]), params if isinstance(params, dict) else {})
            return
        number = message.get("id")
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if (error := message.get("error")) is not None:
            said = error.get("message") if isinstance(error, dict) else error
            answer.set_exception(RpcError(str(said)))
        else:
            answer.set_result(message.get("result"))


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream; one that is too long ends it."""
    parts: list[bytes] = []
    size = 0
    while data := await reader.read(_CHUNK_BYTES):
        *ended, rest = data.split(b"\n")
        for line in ended:
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > LONGEST_LINE_BYTES:
            return
