"""A server of tools written with the official SDK: over its standard streams, or over HTTP on a port."""

import asyncio
import os
import subprocess
import sys
import time
from typing import Literal

from mcp.server import MCPServer
from pydantic import BaseModel

server = MCPServer("library")
lent: list[str] = []


class Shelf(BaseModel):
    room: int
    side: Literal["left", "right"] = "left"


@server.tool()
def lend(title: str, copies: int = 1) -> str:
    """Lend a book."""
    lent.extend([title] * copies)
    return f"{copies} of {title!r}, {len(lent)} in all"


@server.tool()
def find(shelf: Shelf) -> dict[str, object]:
    """Look at a shelf."""
    return {"room": shelf.room, "side": shelf.side}


@server.tool()
def refuse(reason: str) -> str:
    """Refuse."""
    raise ValueError(reason)


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g} s"


@server.tool()
def hang() -> str:
    """Hang, and ignore whatever is asked."""
    time.sleep(600)
    return ""


@server.tool()
def recite(length: int) -> str:
    """Recite."""
    return "x" * length


@server.tool()
def spawn() -> str:
    """Leave a process running."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", os.environ["LIBRARY_MARK"]])
    return "left one"


@server.tool()
def die(last_words: str = "I die") -> str:
    """Die at once."""
    print(last_words, file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
