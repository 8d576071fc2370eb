"""The HTTP side: routes, secrets, bodies, and the delivery of answers, over starlette and uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import socket
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hyperrl.agents.session import Application
from hyperrl.errors import RolloutError
from hyperrl.harness.gateway.anthropic_messages import AnthropicMessages
from hyperrl.harness.gateway.chat_completions import ChatCompletions
from hyperrl.harness.gateway.delivery import Delivery
from hyperrl.harness.gateway.exchange import RefusedError, WireFormat
from hyperrl.harness.gateway.reading import invalid
from hyperrl.harness.gateway.responses import Responses
from hyperrl.harness.gateway.session_table import SessionTable
from hyperrl.harness.gateway.sessions import GatewaySession, GatewaySettings
from hyperrl.harness.gateway.shared_address import SharedAddress

__all__ = ["GatewayApp", "LoopServer"]

FORMATS: Mapping[str, WireFormat] = {
    "chat/completions": ChatCompletions(),
    "responses": Responses(),
    "messages": AnthropicMessages(),
    "messages/count_tokens": AnthropicMessages(),
}
PATH = re.compile(r"(?:/s/(?P<session>[^/]+))?/(?:v1/)*(?P<route>.*)")
"""Clients differ in whether they add ``/v1`` to the base URL themselves; one too many is one as well."""

DRAIN_S = 1.0
"""How long answers that are being sent may take when the server closes; then their connections are cut."""

SHUTDOWN_S = 5
logger = logging.getLogger(__name__)


class GatewayApp:
    """The ASGI application: every request gets an answer or an error in the words of its wire format.

    Args:
        table: the sessions that are served.
        settings: how they are.
    """

    def __init__(self, table: SessionTable, settings: GatewaySettings) -> None:
        self._table = table
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        found = PATH.fullmatch(scope["path"])
        name, route = (found["session"] or "", found["route"].rstrip("/")) if found else ("", "?")
        wire = FORMATS.get(route, FORMATS["chat/completions"])
        request = Request(scope, receive)
        try:
            if application := self._mounted(request, name, route):
                await application(scope, receive, send)
                return
            response = await self._respond(request, name, route, send)
        except RefusedError as refused:
            response = _error(wire, refused)
        except ClientDisconnect:
            return
        except RecursionError:
            response = _error(wire, invalid("the body is nested too deeply"))
        except Exception:  # a fault of our own must not show its insides to a program
            logger.exception("the gateway failed to answer %s %s", scope["method"], route)
            response = _error(wire, RefusedError(500, "internal_error", "the gateway failed; see its log"))
        if response is not None:
            await response(scope, receive, send)

    def _mounted(self, request: Request, name: str, route: str) -> Application | None:
        """Return what a session serves at a route beside its policies."""
        session = self._table.sessions.get(name)
        if session is None or route not in session.mounted:
            return None
        return _session(self._table.find(name, _secret(request.headers)), request).mounted[route]

    async def _respond(self, request: Request, name: str, route: str, send: Send) -> Response | None:
        """Answer a request: return a response, or deliver it and return ``None``."""
        method = request.method
        if method == "HEAD":
            return Response()
        if route in FORMATS and method == "POST":
            found = self._table.find(name, _secret(request.headers))
            body = await _read_body(request, self._settings.max_body_bytes)
            session = _session(found, request, body)
            return await self._answer(request, session, route, body, send)
        if (route == "models" or route.startswith("models/")) and method == "GET":
            session = _session(self._table.find(name, _secret(request.headers)), request)
            return JSONResponse(_models(session, route.partition("/")[2]))
        if route in FORMATS and method != "GET":
            raise RefusedError(405, "method_not_allowed", f"{route} takes POST")
        raise RefusedError(404, "not_found", "there is nothing here; the routes are " + ", ".join(FORMATS))

    async def _answer(
        self, request: Request, session: GatewaySession, route: str, body: bytes, send: Send
    ) -> Response | None:
        wire = FORMATS[route]
        asked = wire.read(_load(body))
        if route.endswith("count_tokens"):
            return JSONResponse({"input_tokens": session.count_tokens(asked)})
        fingerprint = hashlib.blake2b(body, digest_size=16, key=route.encode()[:64]).digest()
        exchange = await session.exchange(asked, request.headers, fingerprint)
        delivery = Delivery(wire, asked, request.receive, send, keep_alive_s=self._settings.keep_alive_s)
        with exchange.awaited():
            try:
                if await delivery.deliver(exchange):
                    session.delivered(exchange, fingerprint)
            except RefusedError:
                session.failed(exchange, fingerprint)
                raise
        return None


class LoopServer:
    """uvicorn in the running loop, on a socket that is bound already.

    Args:
        table: the sessions that are served.
        settings: how they are.
        listener: a bound socket; it is closed with the server.
    """

    def __init__(self, table: SessionTable, settings: GatewaySettings, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        listener.listen(2048)
        listener.setblocking(False)
        config = uvicorn.Config(
            GatewayApp(table, settings),
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=600,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        self._server = _Server(config)
        self._task = self._loop.create_task(self._server.serve(sockets=[listener]), name="hyperrl-gateway")

    def check_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check that ``loop`` is the one that the server runs in.

        Raises:
            RolloutError: it is another.
        """
        if loop is not self._loop:
            raise RolloutError("the gateway listens in another event loop; close it there first")

    async def aclose(self) -> None:
        """Stop listening, close every connection, and wait until the server has ended."""
        self._server.should_exit = True
        connections = self._server.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        try:
            await asyncio.wait({self._task}, timeout=DRAIN_S)
            for connection in list(connections):
                connection.transport.abort()
            await self._task
        finally:
            self._listener.close()


class _Server(uvicorn.Server):
    """A server that leaves signals to the program that it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _session(found: GatewaySession | SharedAddress, request: Request, body: bytes = b"") -> GatewaySession:
    return found.session_for(request.headers, body) if isinstance(found, SharedAddress) else found


def _secret(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return bearer or headers.get("x-api-key", "") or headers.get("x-goog-api-key", "")


async def _read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request, decompressed.

    Raises:
        RefusedError: it is too large, or compressed in a way that is not understood.
    """
    too_large = RefusedError(413, "request_too_large", f"the body exceeds {limit} bytes")
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        chunks.append(chunk)
    body = b"".join(chunks)
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        text = f"content-encoding {encoding!r:.40} is not understood; send the body as it is, or gzip"
        raise RefusedError(415, "unsupported_encoding", text)
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        whole = unpack.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid(f"the body is no {encoding}: {error}") from error
    if len(whole) > limit:
        raise too_large
    return whole


def _load(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid(f"the body must be an object, got {type(found).__name__}")
    return found


def _models(session: GatewaySession, wanted: str = "") -> dict[str, Any]:
    """Return the models, or the one that is wanted, with the fields of both vendors.

    Any name asks some seat, so any model is there.
    """
    models = [
        {
            "id": seat,
            "object": "model",
            "type": "model",
            "created": 0,
            "created_at": "1970-01-01T00:00:00Z",
            "owned_by": "hyperrl",
            "display_name": seat,
        }
        for seat in ([wanted] if wanted else session.seats)
    ]
    if wanted:
        return models[0]
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"], "has_more": False}
    return {"object": "list", "data": models, **ends}


def _error(wire: WireFormat, refused: RefusedError) -> Response:
    return JSONResponse(wire.error(refused), status_code=refused.status)
