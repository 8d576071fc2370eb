"""Delivering an answer: signs of life while it is awaited, all of it at once, and whether it arrived."""

from __future__ import annotations

import asyncio
import json

from starlette.types import Receive, Send

from hyperrl.harness.gateway.exchange import ModelRequest, RefusedError, WireFormat
from hyperrl.harness.gateway.sessions import Exchange

__all__ = ["Delivery"]

JSON_HEADERS = [(b"content-type", b"application/json")]
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


class Delivery:
    """The answer to one request on its way to the client.

    Args:
        wire: the format that the client speaks.
        request: what it asked.
        receive, send: the connection, after the request's body was read.
        keep_alive_s: seconds between signs of life; only a stream has them.
    """

    def __init__(
        self, wire: WireFormat, request: ModelRequest, receive: Receive, send: Send, *, keep_alive_s: float
    ) -> None:
        self._wire = wire
        self._request = request
        self._receive = receive
        self._send = send
        self._keep_alive_s = keep_alive_s
        self._begun = False
        self._signs = 0

    async def deliver(self, exchange: Exchange) -> bool:
        """Wait for the answer and send it; return whether the client was there to the last byte.

        A client that leaves does not stop the answer: its retry gets it.

        Raises:
            RefusedError: there is no answer, and nothing was sent yet.
        """
        gone = asyncio.create_task(self._wait_for_disconnect())
        try:
            if not await self._wait(exchange, gone):
                return False
            return await self._send_outcome(exchange, gone)
        finally:
            gone.cancel()

    async def _wait(self, exchange: Exchange, gone: asyncio.Task[None]) -> bool:
        """Wait until the answer is there; ``False`` if the client left before."""
        patience = self._keep_alive_s if self._request.stream else None
        while not exchange.answer.done():
            await asyncio.wait({exchange.answer, gone}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                return False
            if not exchange.answer.done():
                await self._begin(200, STREAM_HEADERS)
                await self._write(self._wire.sign_of_life(exchange.head, self._signs))
                self._signs += 1
        return True

    async def _send_outcome(self, exchange: Exchange, gone: asyncio.Task[None]) -> bool:
        if exchange.answer.cancelled():
            refused = RefusedError(400, "episode_over", "the episode ended before the answer")
        else:
            error = exchange.answer.exception()
            if error is None:
                return await self._send_answer(exchange, gone)
            refused = error if isinstance(error, RefusedError) else _internal()
        if not self._begun:
            raise refused
        await self._write(self._wire.stream_error(refused, self._signs))
        await self._send({"type": "http.response.body", "body": b""})
        return False

    async def _send_answer(self, exchange: Exchange, gone: asyncio.Task[None]) -> bool:
        answer = exchange.answer.result()
        if self._request.stream:
            await self._begin(200, STREAM_HEADERS)
            await self._write(self._wire.stream(answer, self._request, self._signs))
        else:
            body = json.dumps(self._wire.write(answer)).encode()
            await self._begin(200, [*JSON_HEADERS, (b"content-length", b"%d" % len(body))])
            await self._write(body)
        await asyncio.sleep(0)  # a connection that was lost meanwhile is noticed now
        if gone.done():
            return False
        await self._send({"type": "http.response.body", "body": b""})
        return True

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _internal() -> RefusedError:
    return RefusedError(500, "internal_error", "the gateway failed; see its log")
