"""The server's side of bench_gateway.py: a process that serves the gateway, or an echo, as it is told."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hyperrl.agents import ByteRenderer, PolicySeat, Recorder
from hyperrl.agents.rendering import Renderer, load_renderer
from hyperrl.harness.gateway import Gateway
from hyperrl.sampling import Completion, EpisodeKey, SamplingParams
from hyperrl.trajectory import StopReason

ASSETS = Path(__file__).resolve().parent.parent / ".cache" / "test-assets"
CALL = (
    "<think>\nI look at the file.\n</think>\n\n"
    '<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
)
WORDS = "the quick brown fox jumps over 13 lazy dogs; def f(x): return x + 1\n"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class InstantSampler:
    """Answers every request with the same tokens."""

    policy_version = 0

    def __init__(self, action_ids: list[int]) -> None:

        count = len(action_ids)
        self._completion = Completion(
            action_ids=action_ids,
            logprobs=[-0.5] * count,
            policy_versions=[0] * count,
            stop_reason=StopReason.STOP,
        )

    async def generate(self, *asked: Any, **named: Any) -> Completion:  # noqa: ARG002
        await asyncio.sleep(0)
        return self._completion


def load_any_renderer(folder: Path | None) -> tuple[Renderer, str]:
    """Return a renderer and its name."""

    found = [folder] if folder is not None else sorted(ASSETS.glob("qwen3-*"))
    return (load_renderer(found[0]), found[0].name) if found else (ByteRenderer(), "bytes")


def echo_app() -> Starlette:
    """Return an application that sends back what it got."""

    async def echo(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    return Starlette(routes=[Route("/{path:path}", echo, methods=["POST"])])


class Bench:
    """What the server's process does when it is told to."""

    def __init__(self, renderer_dir: Path | None) -> None:

        renderer, self.tokenizer = load_any_renderer(renderer_dir)
        sampler = InstantSampler(renderer.encode_action(CALL))
        params = SamplingParams(max_tokens=256)
        self.renderer = renderer
        self.seat = PolicySeat(sampler=sampler, renderer=renderer, params=params)
        self.gateway = Gateway()
        self.recorders: list[Any] = []
        self.echo: Any = None

    def serve_echo(self) -> str:
        """Listen with the echo and return its address."""

        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        config = uvicorn.Config(
            echo_app(), lifespan="off", ws="none", log_config=None, access_log=False, timeout_keep_alive=600
        )
        self.echo = uvicorn.Server(config)
        self.task = asyncio.get_running_loop().create_task(self.echo.serve(sockets=[listener]))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def open(self, count: int) -> list[tuple[str, str]]:
        """Open sessions and return the URL and key of each."""

        opened = []
        for _ in range(count):
            recorder = Recorder(key=EpisodeKey((0, 0), 0), run_seed=0, seats={"main": self.seat})
            session = self.gateway.open(recorder)
            self.recorders.append((recorder, session))
            opened.append((session.base_url, session.api_key))
        return opened

    async def close(self) -> None:
        """Close every session."""
        for _, session in self.recorders:
            await session.aclose()
        self.recorders.clear()
        gc.collect()

    def state(self) -> dict[str, Any]:
        """Return CPU seconds, resident bytes, and what was recorded."""
        turns = [turn for recorder, _ in self.recorders for turn in recorder.forest.turns]
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
        return {
            "cpu_s": time.process_time(),
            "resident_bytes": resident,
            "turns": len(turns),
            "roots": sum(turn.parent is None for turn in turns),
            "tokens": max((turn.ids_end for turn in turns), default=0),
        }


def serve(connection: Connection, renderer_dir: Path | None) -> None:
    """Run the server's process until it is told to stop."""
    asyncio.run(_serve(connection, renderer_dir))


async def _serve(connection: Connection, renderer_dir: Path | None) -> None:
    bench = Bench(renderer_dir)
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[Any] = asyncio.Queue()
    loop.add_reader(connection.fileno(), lambda: orders.put_nowait(connection.recv()))
    text = WORDS * 200
    per_token = len(text) / len(bench.renderer.first([{"role": "user", "content": text}]))
    connection.send({"tokenizer": bench.tokenizer, "characters_per_token": per_token})
    while (order := await orders.get()) is not None:
        name, *arguments = order
        answer = getattr(bench, name)(*arguments)
        connection.send(await answer if asyncio.iscoroutine(answer) else answer)
    loop.remove_reader(connection.fileno())
    await bench.gateway.aclose()
    if bench.echo is not None:
        bench.echo.should_exit = True
        await bench.task
