"""The gateway's life: it listens from the first session on, in the loop that opened it, until closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hyperrl.agents.recorder import Recorder
from hyperrl.errors import ConfigError, MissingExtraError
from hyperrl.harness.gateway.session_table import SessionTable
from hyperrl.harness.gateway.sessions import GatewaySession, GatewaySettings
from hyperrl.harness.gateway.shared_address import SharedAddress

if TYPE_CHECKING:
    from hyperrl.harness.gateway.server import LoopServer

__all__ = ["Gateway"]


class Gateway:
    """Serves the policies of many episodes at once, each under a URL and a secret of its own.

    Used as an async context manager, or closed with :meth:`aclose`; it may be opened again after that. It
    lives in one loop and listens only once a session is opened.

    Args:
        settings: how it serves.
    """

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        self.settings = settings or GatewaySettings()
        self._table = SessionTable()
        self._server: LoopServer | None = None
        self._address = ""
        self._users = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def sessions(self) -> Mapping[str, GatewaySession]:
        """The open sessions, by name."""
        return self._table.sessions

    @property
    def address(self) -> str:
        """``http://host:port`` while it listens; empty otherwise."""
        return self._address

    def open(self, recorder: Recorder) -> GatewaySession:
        """Serve the policies of a recorder; called in the loop in which its episode is played.

        Raises:
            MissingExtraError: starlette or uvicorn is not installed.
            ConfigError: the address cannot be listened on.
        """
        self._listen()
        session = GatewaySession(
            recorder, address=self._address, settings=self.settings, on_close=self._table.remove
        )
        self._table.add(session)
        return session

    def share(self) -> SharedAddress:
        """Return an address for a program that plays many episodes in one process.

        Each of them opens its session as ever, and binds its thread to it.

        Raises:
            MissingExtraError: starlette or uvicorn is not installed.
            ConfigError: the address cannot be listened on.
        """
        self._listen()
        shared = SharedAddress(self._address, self._table.remove_shared)
        self._table.add_shared(shared)
        return shared

    def before_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have ``close`` called once when the gateway closes, before it: for what lives as long as it."""
        self._users.push_async_callback(close)

    async def aclose(self) -> None:
        """Close what uses it and every session, stop listening, and wait until nothing is left."""
        try:
            await self._users.aclose()
        finally:
            try:
                await asyncio.gather(*[session.aclose() for session in list(self.sessions.values())])
            finally:
                server, self._server, self._address = self._server, None, ""
                if server is not None:
                    await server.aclose()

    def _listen(self) -> None:
        if self._server is not None:
            self._server.check_loop(asyncio.get_running_loop())
            return
        try:
            from hyperrl.harness.gateway.server import LoopServer  # noqa: PLC0415  (an extra)
        except ImportError as error:
            raise MissingExtraError(error.name or "starlette", "harness") from error
        host, port = self.settings.host, self.settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise ConfigError(f"the gateway cannot listen on {host}:{port}: {error}") from error
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        self._address = f"http://{shown}:{listener.getsockname()[1]}"
        self._server = LoopServer(self._table, self.settings, listener)
