"""What a request to the gateway costs: CPU, latency and memory, next to a bare echo of the same bytes.

    python benchmarks/bench_gateway.py [--json] [--concurrent 64] [--turns 10] [--tokens 16000] [--open 500]

The gateway runs in a process of its own over a sampler that answers at once; programs are played by this one,
over plain sockets, each with a session of its own. Every program asks for a first answer, then for
``--turns`` more, sending its whole history each time, which grows evenly to ``--tokens``; all programs ask at
the same time, and wait for each other after each turn. CPU is user and system time of the server's process,
per request.

The same requests, byte for byte, then go to a starlette application that sends back what it got. What the
gateway takes beyond that is its own: reading JSON, finding the recorded turn, rendering what is new, the
prompt's ids, the record, the events of the answer. It is compared between an early turn and the last, with
the same amount of new text in both.

Then ``--open`` sessions are opened in one gateway and all of them played to the end; the memory is what the
server's process holds more than before. The tokenizer is Qwen3's, as scripts/fetch_test_assets.py has
fetched it, or ``--renderer DIR``; where there is none, bytes are tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway_server import WORDS, serve

FIRST_TOKENS = 450
TOOL = {"type": "object", "properties": {"path": {"type": "string", "description": "Where it is."}}}
CALL_ID = re.compile(rb'"(call_[0-9a-f]+x[0-9_]+)"')


@dataclass
class Wire:
    """How a program writes its requests in one format; histories are kept as written JSON."""

    route: str
    head: str
    first: Callable[[str], str]
    more: Callable[[str, str], str]


def _chat_more(call_id: str, text: str) -> str:
    call = {"id": call_id, "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    said = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I look at the file.",
        "tool_calls": [call],
    }
    result = {"role": "tool", "tool_call_id": call_id, "content": text}
    return f"{json.dumps(said)},{json.dumps(result)}"


def _responses_more(call_id: str, text: str) -> str:
    thought = {
        "type": "reasoning",
        "id": call_id.replace("call_", "rs_").rpartition("_")[0],
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "I look at the file."}],
    }
    call = {"type": "function_call", "name": "read", "arguments": '{"path": "a.py"}', "call_id": call_id}
    result = {"type": "function_call_output", "call_id": call_id, "output": text}
    return ",".join(map(json.dumps, (thought, call, result)))


def _anthropic_more(call_id: str, text: str) -> str:
    use = {"type": "tool_use", "id": call_id, "name": "read", "input": {"path": "a.py"}}
    thought = {"type": "thinking", "thinking": "I look at the file.", "signature": "s"}
    said = {"role": "assistant", "content": [thought, use]}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}
    return f"{json.dumps(said)},{json.dumps({'role': 'user', 'content': [result]})}"


def _user(text: str) -> str:
    return json.dumps({"role": "user", "content": text})


FUNCTION = {"name": "read", "description": "Read a file."}


def _head(messages: str, tool: dict[str, Any], **fields: Any) -> str:
    """Return the JSON of a request up to its messages."""
    return f'{json.dumps({"model": "m", "stream": True, "tools": [tool], **fields})[:-1]}, "{messages}": ['


WIRES = {
    "chat": Wire(
        "chat/completions",
        _head("messages", {"type": "function", "function": {**FUNCTION, "parameters": TOOL}}),
        _user,
        _chat_more,
    ),
    "responses": Wire(
        "responses",
        _head("input", {"type": "function", **FUNCTION, "parameters": TOOL}),
        _user,
        _responses_more,
    ),
    "anthropic": Wire(
        "messages",
        _head("messages", {**FUNCTION, "input_schema": TOOL}, max_tokens=4096),
        _user,
        _anthropic_more,
    ),
}


@dataclass
class Program:
    """One program with one connection."""

    url: str
    key: str
    wire: Wire
    sent: list[bytes] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    answer: bytes = b""

    async def connect(self, url: str) -> None:
        _, _, address, *self.path = url.split("/", 3)
        host, port = address.split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=2**20)

    async def turn(self, text: str) -> None:
        """Ask with the whole history and the new text."""
        if self.history:
            found = CALL_ID.search(self.answer)
            assert found is not None, self.answer[:2000]
            self.history.append(self.wire.more(found[1].decode(), text))
        else:
            self.history.append(self.wire.first(text))
        body = (self.wire.head + ",".join(self.history) + "]}").encode()
        self.sent.append(body)
        await self.ask(body)

    async def ask(self, body: bytes) -> None:
        """Send a body and read the whole answer."""
        path = "/".join(self.path)
        head = (
            f"POST /{path}/{self.wire.route} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        started = time.perf_counter()
        self.writer.write(head.encode() + body)
        header = await self.reader.readuntil(b"\r\n\r\n")
        assert header.startswith(b"HTTP/1.1 200"), header
        self.answer = await self._body(header.lower())
        self.latencies.append(time.perf_counter() - started)

    async def _body(self, header: bytes) -> bytes:
        if (length := re.search(rb"content-length: (\d+)", header)) is not None:
            return await self.reader.readexactly(int(length[1]))
        chunks = []
        while size := int(await self.reader.readline(), 16):
            chunks.append(await self.reader.readexactly(size))
            await self.reader.readline()
        await self.reader.readline()
        return b"".join(chunks)

    async def disconnect(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class Server:
    """The server's process, as this one sees it."""

    def __init__(self, renderer_dir: Path | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, renderer_dir), daemon=True)
        self.process.start()
        self.about = self._receive()

    def tell(self, name: str, *arguments: Any) -> Any:
        """Have the server do something and return what it answers."""
        self._connection.send((name, *arguments))
        return self._receive()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.send(None)
        self.process.join(20)
        if self.process.is_alive():
            self.process.kill()

    def _receive(self) -> Any:
        if not self._connection.poll(120):
            raise RuntimeError("the server's process does not answer")
        return self._connection.recv()


def texts(options: argparse.Namespace, per_token: float) -> list[str]:
    """Return what is new in each turn."""
    growth = (options.tokens - FIRST_TOKENS) / options.turns
    sizes = [FIRST_TOKENS - 150, *[growth - 50] * options.turns]
    whole = WORDS * (int(max(sizes) * per_token) // len(WORDS) + 2)
    return [whole[: max(8, int(size * per_token))] for size in sizes]


async def play(server: Server, programs: list[Program], news: list[str]) -> list[float]:
    """Play all programs turn by turn and return the server's CPU seconds per request of each turn."""
    spent = []
    for text in news:
        before = server.tell("state")["cpu_s"]
        await asyncio.gather(*[program.turn(text) for program in programs])
        spent.append((server.tell("state")["cpu_s"] - before) / len(programs))
    return spent


async def replay(server: Server, programs: list[Program], address: str) -> tuple[list[float], list[float]]:
    """Send the same bytes to the echo; return CPU seconds per request of each turn, and latencies."""
    echoes = [Program(address, "", program.wire) for program in programs]
    for echo in echoes:
        await echo.connect(f"{address}/s/x/v1")
    spent = []
    for turn in range(len(programs[0].sent)):
        before = server.tell("state")["cpu_s"]
        bodies = [program.sent[turn] for program in programs]
        await asyncio.gather(*[echo.ask(body) for echo, body in zip(echoes, bodies, strict=True)])
        spent.append((server.tell("state")["cpu_s"] - before) / len(programs))
    for echo in echoes:
        await echo.disconnect()
    return spent, [latency for echo in echoes for latency in echo.latencies]


async def open_programs(server: Server, wire: Wire, count: int) -> list[Program]:
    programs = [Program(url, key, wire) for url, key in server.tell("open", count)]
    for program in programs:
        await program.connect(program.url)
    return programs


async def measure_format(server: Server, wire: Wire, news: list[str], options: Any) -> dict[str, Any]:
    """Measure one format next to the echo, in turn."""
    address = server.tell("serve_echo")
    gateway: list[list[float]] = []
    echo: list[list[float]] = []
    latencies: dict[str, list[float]] = {"gateway": [], "echo": []}
    for _ in range(options.rounds):
        programs = await open_programs(server, wire, options.concurrent)
        gateway.append(await play(server, programs, news))
        state = server.tell("state")
        assert state["roots"] == len(programs), "some history was rendered again"
        assert state["turns"] == len(programs) * len(news)
        spent, echoed = await replay(server, programs, address)
        echo.append(spent)
        latencies["echo"] += echoed
        latencies["gateway"] += [latency for program in programs for latency in program.latencies]
        for program in programs:
            await program.disconnect()
        server.tell("close")
    by_turn = [[statistics.median(turn) for turn in zip(*rounds, strict=True)] for rounds in (gateway, echo)]
    beyond = [ours - bare for ours, bare in zip(*by_turn, strict=True)]
    return {
        "ms_per_request": statistics.mean(by_turn[0][1:]) * 1e3,
        "echo_ms_per_request": statistics.mean(by_turn[1][1:]) * 1e3,
        "ms_beyond_echo_early": beyond[1] * 1e3,
        "ms_beyond_echo_last": beyond[-1] * 1e3,
        "growth": beyond[-1] / beyond[1],
        "tokens": state["tokens"],
        **{
            f"{name}_{key}": value for name, values in latencies.items() for key, value in percentiles(values)
        },
    }


def percentiles(values: list[float]) -> Iterator[tuple[str, float]]:
    cuts = statistics.quantiles(values, n=100)
    yield from (("p50_ms", cuts[49] * 1e3), ("p99_ms", cuts[98] * 1e3))


async def measure_open(server: Server, news: list[str], options: Any) -> dict[str, float]:
    """Open many sessions in one gateway, play all of them, and return its memory."""
    before = server.tell("state")["resident_bytes"]
    programs = await open_programs(server, WIRES["responses"], options.open)
    for start in range(0, len(programs), options.concurrent):
        await play(server, programs[start : start + options.concurrent], news)
    state = server.tell("state")
    assert state["turns"] == options.open * len(news)
    for program in programs:
        await program.disconnect()
    server.tell("close")
    held = state["resident_bytes"] - before
    return {
        "sessions": options.open,
        "mb": held / 2**20,
        "kb_per_session_at_the_end": held / options.open / 2**10,
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {"formats": {}, "open": {}}
    with Server(options.renderer) as server:
        figures["tokenizer"] = server.about["tokenizer"]
        news = texts(options, server.about["characters_per_token"])
        for name in options.formats:
            figures["formats"][name] = await measure_format(server, WIRES[name], news, options)
    if options.open:
        with Server(options.renderer) as fresh:
            figures["open"] = await measure_open(fresh, news, options)
    return figures


def print_table(figures: dict[str, Any], options: argparse.Namespace) -> None:
    print(f"{options.concurrent} concurrent sessions, tokenizer {figures['tokenizer']}, times in ms")
    columns = f"{'CPU':>8}{'echo':>8}{'beyond: early':>15}{'last':>8}{'growth':>8}{'p50':>8}{'p99':>8}"
    print(f"{'format':<10}{columns}")
    for name, row in figures["formats"].items():
        print(
            f"{name:<10}{row['ms_per_request']:>8.2f}{row['echo_ms_per_request']:>8.2f}"
            f"{row['ms_beyond_echo_early']:>15.2f}{row['ms_beyond_echo_last']:>8.2f}{row['growth']:>8.2f}"
            f"{row['gateway_p50_ms']:>8.1f}{row['gateway_p99_ms']:>8.1f}"
        )
        print(f"{'  echo':<57}{row['echo_p50_ms']:>8.1f}{row['echo_p99_ms']:>8.1f}")
    if memory := figures["open"]:
        print(
            f"{memory['sessions']} open sessions: {memory['mb']:.0f} MB at the end,"
            f" {memory['kb_per_session_at_the_end']:.0f} kB each"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--concurrent", type=int, default=64, help="sessions that ask at the same time")
    parser.add_argument("--turns", type=int, default=10, help="of a program, after its first")
    parser.add_argument("--tokens", type=int, default=16_000, help="of the history at the end")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are taken")
    parser.add_argument(
        "--open", type=int, default=500, help="sessions open in one gateway; 0 leaves this out"
    )
    parser.add_argument(
        "--formats", nargs="+", choices=WIRES, default=list(WIRES), help="what programs speak"
    )
    parser.add_argument("--renderer", type=Path, help="a model's folder with tokenizer.json and a template")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    figures = asyncio.run(measure(options))
    print_table(figures, options)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
