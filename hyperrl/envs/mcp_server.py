"""Tools from servers of the Model Context Protocol, through its official SDK (the extra ``mcp``).

The SDK wants a session opened and closed by the same task, while an episode may end in any. So each session
has a task of its own, which opens it, waits to be told, and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast
from weakref import WeakKeyDictionary

from hyperrl.envs import leash
from hyperrl.envs.json_schema import schema_coercer
from hyperrl.envs.tool_schema import ToolSignature
from hyperrl.envs.tool_text import describe_error
from hyperrl.envs.tools import Tool, ToolResult
from hyperrl.errors import ConfigError, MissingExtraError, ToolDefinitionError, ToolServerError

if TYPE_CHECKING:
    import mcp

__all__ = ["McpConnection", "McpServer"]

_MOST_PAGES = 100
_STDERR_SHOWN = 1_500
_CONNECTION_CLOSED = -32000
_SESSION_TERMINATED = "Session terminated"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class McpServer:
    """Where a server is and how it is used: by ``command`` (standard input and output) or by ``url``.

    Attributes:
        command: program and arguments of a server to start.
        url: address of a running server that speaks streamable HTTP.
        env: environment variables of the command, on top of ``PATH``, ``HOME`` and a few more; nothing else
            of this process's environment reaches it.
        cwd: where the command runs.
        headers: sent with every request to ``url``.
        timeout_s: seconds that a call may take.
        start_timeout_s: seconds until the server has told its tools.
        max_output_chars: most characters of a result; head and tail of a longer one are kept.
        prefix: put before the name of each tool, where two servers share names.

    Raises:
        ConfigError: not exactly one of ``command`` and ``url``, or a limit that is not above 0.
    """

    command: Sequence[str] | None = None
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    start_timeout_s: float = 30.0
    max_output_chars: int = 16_000
    prefix: str = ""

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ConfigError("an McpServer needs either a command to start or the url of a running server")
        if self.command is not None and (isinstance(self.command, str) or not self.command):
            raise ConfigError(
                f"command must be a list of the program and its arguments, got {self.command!r}"
            )
        if not (self.timeout_s > 0 and self.start_timeout_s > 0):
            raise ConfigError(
                "timeout_s and start_timeout_s must be above 0,"
                f" got {self.timeout_s} and {self.start_timeout_s}"
            )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[McpConnection]:
        """Connect for as long as the context lasts; a server that was started for it ends with it.

        Raises:
            MissingExtraError: the SDK is not installed.
            ToolServerError: the server did not start, or did not tell its tools in time.
        """
        connection = await McpConnection.start(self)
        try:
            yield connection
        finally:
            await connection.close()

    async def shared(self) -> McpConnection:
        """Return the one connection that all episodes on this event loop share, made at the first call.

        It lasts as long as the loop, or the process. One that is gone is made anew, for the next episode.

        Raises:
            MissingExtraError, ToolServerError: as for :meth:`open`.
        """
        here = _shared.setdefault(asyncio.get_running_loop(), {})
        lock = here.setdefault(self, _Shared())
        async with lock.making:
            if lock.connection is None or not lock.connection.alive:
                lock.connection = await McpConnection.start(self)
        return lock.connection

    def __repr__(self) -> str:
        where = self.url if self.command is None else " ".join(self.command)
        return f"<MCP server {where}>"


class _Shared:
    """The shared connection of one server on one loop."""

    def __init__(self) -> None:
        self.making = asyncio.Lock()
        self.connection: McpConnection | None = None


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[McpServer, _Shared]] = WeakKeyDictionary()


class McpConnection:
    """An open session with a server. Made by :meth:`McpServer.open` or :meth:`McpServer.shared`.

    Attributes:
        tools: the server's tools, as an environment offers them.
    """

    def __init__(self, server: McpServer) -> None:
        self.tools: tuple[Tool, ...] = ()
        self._server = server
        self._client: mcp.Client | None = None
        self._told, self._stop = asyncio.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self._stderr = ""
        self._owner = asyncio.create_task(self._own(), name=f"hyperrl {server!r}")

    @classmethod
    async def start(cls, server: McpServer) -> McpConnection:
        """Open a session and read the list of tools. Raises MissingExtraError, ToolServerError."""
        connection = cls(server)
        told = asyncio.ensure_future(connection._told.wait())
        try:
            await asyncio.wait(
                [told, connection._owner],
                timeout=server.start_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if connection._told.is_set():
                return connection
        except BaseException:
            connection._told.clear()
            raise
        finally:
            told.cancel()
            if not connection._told.is_set():
                connection._owner.cancel()
                await asyncio.wait([connection._owner])
        raise connection._start_error()

    @property
    def alive(self) -> bool:
        """Whether calls can still be made."""
        return self._client is not None and not self._stop.is_set()

    async def close(self) -> None:
        """End the session, and the server if it was started for it. Closing twice is no error."""
        self._stop.set()
        if not self._owner.done():
            await asyncio.wait([self._owner])

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call one of the server's tools by the server's name for it.

        Raises:
            ToolServerError: the connection is closed, or the server is gone.
        """
        from mcp import MCPError  # noqa: PLC0415  # an extra

        client = self._client
        if client is None or self._stop.is_set():
            raise ToolServerError(f"{self._server!r} is closed, so {name!r} cannot be called{self._stderr}")
        try:
            result = await client.call_tool(name, arguments)
        except MCPError as error:
            if error.code != _CONNECTION_CLOSED and str(error) != _SESSION_TERMINATED:
                return ToolResult(status="error", text=str(error))
            await self.close()
            raise ToolServerError(
                f"{self._server!r} is gone: {name!r} was not answered ({error}){self._stderr}"
            ) from error
        return ToolResult(status="error" if result.is_error else "ok", text=_result_text(result))

    async def _own(self) -> None:
        """Open the session, keep it until told to stop, close it: all in this one task."""
        with tempfile.TemporaryFile() as stderr:
            try:
                async with _connect(self._server, stderr) as client:
                    self.tools = tuple([self._tool(told) for told in await _list_tools(client)])
                    self._client = client
                    self._told.set()
                    await self._stop.wait()
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # told by start, or by the next call
                self._failure = _first_cause(error)
            finally:
                self._client = None
                self._stderr = _tail(stderr)

    def _start_error(self) -> Exception:
        if isinstance(self._failure, (MissingExtraError, ToolDefinitionError)):
            return self._failure
        limit = f"it did not tell its tools within {self._server.start_timeout_s:g} s"
        cause = limit if self._failure is None else describe_error(self._failure)
        return ToolServerError(f"{self._server!r} cannot be used: {cause}{self._stderr}")

    def _tool(self, told: Any) -> Tool:
        server = self._server

        async def call(**arguments: Any) -> ToolResult:
            return await self.call(told.name, arguments)

        shape = {key: value for key, value in told.input_schema.items() if key not in ("title", "$schema")}
        name = server.prefix + told.name
        description = told.description or told.title or told.name
        signature = ToolSignature(
            schema={
                "type": "function",
                "function": {"name": name, "description": description, "parameters": shape},
            },
            coerce=schema_coercer(told.input_schema),
            is_method=False,
        )
        return Tool(
            call,
            name=name,
            timeout_s=server.timeout_s,
            max_output_chars=server.max_output_chars,
            signature=signature,
        )


@contextlib.asynccontextmanager
async def _connect(server: McpServer, stderr: IO[bytes]) -> AsyncIterator[mcp.Client]:
    try:
        import httpx2  # noqa: PLC0415  # comes with the SDK
        import mcp  # noqa: PLC0415  # an extra
        from mcp.client.stdio import stdio_client  # noqa: PLC0415
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("mcp", "mcp") from error
    async with contextlib.AsyncExitStack() as stack:
        if server.url is not None:
            limits = httpx2.Timeout(server.start_timeout_s, read=None)  # a call has its own limit
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=dict(server.headers), timeout=limits)
            )
            transport = streamable_http_client(server.url, http_client=http)
        else:
            command = _leashed(server.command or ())
            parameters = mcp.StdioServerParameters(
                command=command[0], args=command[1:], env=dict(server.env), cwd=server.cwd
            )
            transport = stdio_client(parameters, errlog=cast(TextIO, stderr))
        yield await stack.enter_async_context(mcp.Client(transport))


def _leashed(command: Sequence[str]) -> list[str]:
    """Put the command under a program that ends it with this process, even where this one is killed."""
    if os.name != "posix":
        return list(command)
    return [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid()), *command]


async def _list_tools(client: mcp.Client) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _result_text(result: Any) -> str:
    """Return what a policy can read of a result; of anything else, what it is."""
    parts = [_part_text(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts) or "(no result)"


def _part_text(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type == "resource":
        resource = part.resource
        return str(getattr(resource, "text", None) or f"({part.type} {resource.uri}, not text)")
    if part.type == "resource_link":
        return f"{part.name}: {part.uri}"
    return f"({part.type} {part.mime_type}, not text)"


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _tail(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    text = stderr.read()[-_STDERR_SHOWN:].decode("utf-8", "replace").strip()
    return f"; it said last: {text}" if text else ""
