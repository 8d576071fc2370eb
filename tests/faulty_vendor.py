"""A model vendor that fails in one way, and a host that sends programs to it instead of to a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
HALVES = {
    b"/responses": b'data: {"type":"response.created","response":{"id":"r1"}}\n\ndata: {"type":"resp',
    b"/chat/completions": b'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":"It"}}]}\n\ndata: {"id":"c1","obj',
}
"""The first half of an answer, by route."""
FAULT = {"message": "a fault", "type": "fault", "code": "fault"}
OVERFLOW = {
    "message": "This model's maximum context length is 4096 tokens. Please reduce the length.",
    "type": "invalid_request_error",
    "code": "context_length_exceeded",
}


class FaultySession:
    """A session whose address answers every request with one fault."""

    error: BaseException | None = None

    def __init__(self, base_url: str, api_key: str) -> None:
        self.base_url = base_url
        self.api_key = api_key
        self.metrics: Mapping[str, float] = {}

    def mount(self, route: str, application: Any) -> str:
        raise AssertionError("no tools are served")

    async def aclose(self) -> None:
        pass


class FaultyVendor:
    """Always has one fault.

    ``context``: the prompt is too long; ``400``, ``429``, ``500``; ``dies`` in the middle of a stream;
    ``refuses`` connections; ``SIGTERM``: sends that to the program instead of an answer.
    """

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.requests = 0
        self.key = f"sk-faulty-vendor-{uuid.uuid4().hex}"
        self._server: asyncio.Server | None = None
        self._url = "http://127.0.0.1:9/v1"

    async def __aenter__(self) -> FaultyVendor:
        if self.fault != "refuses":
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self._url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def open(self, recorder: Any) -> FaultySession:
        return FaultySession(self._url, self.key)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
            await reader.readexactly(int(lengths[0].split(b":")[1]))
            self.requests += 1
            if self.fault == "SIGTERM":
                self._terminate()
            elif self.fault == "dies":
                writer.write(STREAM + next(half for route, half in HALVES.items() if route in head))
                await writer.drain()
            else:
                overflow = self.fault == "context"
                body = json.dumps({"error": OVERFLOW if overflow else FAULT}).encode()
                lines = (
                    f"HTTP/1.1 {400 if overflow else self.fault} Fault",
                    f"content-length: {len(body)}",
                    "connection: close",
                )
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()
        writer.close()

    def _terminate(self) -> None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    if self.key.encode() in (entry / "environ").read_bytes():
                        os.kill(int(entry.name), signal.SIGTERM)
