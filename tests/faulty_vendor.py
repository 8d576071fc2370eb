"""A model vendor that fails in one way, and a host that sends programs to it instead of to a gateway."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY = "sk-faulty-vendor"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
HALF = b'data: {"type":"response.created","response":{"id":"r1"}}\n\ndata: {"type":"response.outp'


class FaultySession:
    """A session whose address answers every request with one fault."""

    api_key = KEY
    error: BaseException | None = None

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.metrics: Mapping[str, float] = {}

    def mount(self, route: str, application: Any) -> str:
        raise AssertionError("no tools are served")

    async def aclose(self) -> None:
        pass


class FaultyVendor:
    """``400``, ``429``, ``500``, ``dies`` in the middle of a stream, ``refuses`` connections, ``SIGTERM``."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.requests = 0
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
        return FaultySession(self._url)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
            await reader.readexactly(int(lengths[0].split(b":")[1]))
            self.requests += 1
            if self.fault == "SIGTERM":
                self._terminate()
            elif self.fault == "dies":
                writer.write(STREAM + HALF)
                await writer.drain()
            else:
                body = b'{"error":{"message":"a fault","type":"fault","code":"fault"}}'
                lines = (f"HTTP/1.1 {self.fault} Fault", f"content-length: {len(body)}", "connection: close")
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()
        writer.close()

    def _terminate(self) -> None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    if KEY.encode() in (entry / "environ").read_bytes():
                        os.kill(int(entry.name), signal.SIGTERM)
