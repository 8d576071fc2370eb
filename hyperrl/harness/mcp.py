"""The tools of an environment as an MCP server, for programs that run their own loop.

Needs the extra ``mcp``. A call goes through ``ctx.step`` like an action that consists of that call, so the
environment runs, scores and records it as it does for any other program.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hyperrl.agents.base import EpisodeContext
from hyperrl.envs.messages import Action
from hyperrl.errors import MissingExtraError
from hyperrl.sampling import ToolCall, ToolSchema
from hyperrl.trajectory import StopReason

if TYPE_CHECKING:
    import mcp.types
    from mcp.server.lowlevel import Server

__all__ = ["EnvTools", "serve_env_tools"]

SERVER_NAME = "env"


class EnvTools:
    """The tools of one episode's environment, as a program calls them.

    Attributes:
        error: what a call raised; the episode cannot go on.
        over: set once a call has ended the episode, or raised.
    """

    def __init__(self, ctx: EpisodeContext) -> None:
        self.error: BaseException | None = None
        self.over = asyncio.Event()
        self._ctx = ctx
        self._claimed: set[str] = set()
        self._unknown = 0
        self._turn = asyncio.Lock()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Run a tool; return what it says, and whether that is a result and no error.

        Calls that come at the same time are run one after the other.
        """
        async with self._turn:
            if self.over.is_set() or self._ctx.terminated:
                return "Error: the episode is over.", False
            call, text = self._claim(name, arguments)
            action = Action(text, tool_calls=(call,), stop_reason=StopReason.STOP, content="")
            try:
                outcome = await self._ctx.step(action)
            except BaseException as error:
                self.error = error
                self.over.set()
                raise
            if outcome.terminated:
                self.over.set()
        records = outcome.tool_records
        said = "\n\n".join([record.result for record in records]) or str(outcome.observation)
        return said, all(record.status == "ok" for record in records)

    def _claim(self, name: str, arguments: Mapping[str, Any]) -> tuple[ToolCall, str]:
        """Return the call as the policy wrote it, and the action that it stands in."""
        forest = self._ctx.recorder.forest
        last = forest.last_train_turn()
        if last is not None:
            turn = forest.turns[last]
            for call in turn.tool_calls:
                if call.call_id not in self._claimed and _is_call(call, name, arguments):
                    self._claimed.add(call.call_id)
                    return dataclasses.replace(call, name=name), turn.text
        self._unknown += 1
        raw = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
        return ToolCall(call_id=f"mcp_{self._unknown}", name=name, arguments=arguments, raw=raw), raw


def _is_call(call: ToolCall, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a program has made this out of ``call``; it may put a prefix of its own before names."""
    return (call.name == name or call.name.endswith(f"__{name}")) and dict(call.arguments or {}) == arguments


@asynccontextmanager
async def serve_env_tools(ctx: EpisodeContext) -> AsyncIterator[tuple[EnvTools, str]]:
    """Serve the environment's tools at the episode's session while entered; yield them and their URL.

    The server answers whoever shows the session's secret.

    Raises:
        ConfigError: the rollout has no gateway.
        MissingExtraError: the official SDK is not installed.
    """
    try:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415  # an extra
        from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("mcp", "mcp") from error
    tools = EnvTools(ctx)
    manager = StreamableHTTPSessionManager(
        _server(tools, ctx.tools),
        json_response=True,
        stateless=True,
        # The session's secret is asked for already, which no page in a browser has.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with manager.run():
        url = ctx.served().mount("mcp", manager.handle_request)
        yield tools, url


def _server(tools: EnvTools, schemas: tuple[ToolSchema, ...]) -> Server[Any]:
    import mcp.types as told  # noqa: PLC0415  # an extra
    from mcp.server.lowlevel import Server  # noqa: PLC0415

    listed = [_listed(schema) for schema in schemas]

    async def list_tools(_context: Any, _params: Any) -> mcp.types.ListToolsResult:
        return told.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: mcp.types.CallToolRequestParams) -> mcp.types.CallToolResult:
        with contextlib.suppress(Exception):  # it is the episode's failure, and kept there
            text, fine = await tools.call(params.name, params.arguments or {})
            content = [told.TextContent(type="text", text=text)]
            return told.CallToolResult(content=list(content), is_error=not fine)
        content = [told.TextContent(type="text", text="Error: the environment failed.")]
        return told.CallToolResult(content=list(content), is_error=True)

    return Server(SERVER_NAME, on_list_tools=list_tools, on_call_tool=call_tool)


def _listed(schema: ToolSchema) -> mcp.types.Tool:
    import mcp.types as told  # noqa: PLC0415  # an extra

    function = schema["function"]
    return told.Tool(
        name=function["name"],
        description=function.get("description"),
        input_schema=function["parameters"],
        # What asks a person before a tool may change something must not: there is no person.
        annotations=told.ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
    )
