"""Stands in for ``dsh --profile sdk``: its protocol, its header, its requests; made to fail on demand.

What the policy says decides: ``call`` asks again, ``die`` kills the process, ``hang`` never ends the turn,
``refuse`` ends it with an error, anything else is the answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from typing import Any

LOCK = threading.Lock()
WORK: dict[str, threading.Thread] = {}
PLACES: dict[str, str] = {}


def say(**message: Any) -> None:
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def event(thread: str, kind: str, **data: Any) -> None:
    say(method="session.event", params={"sessionId": thread, "event": {"type": kind, "data": data}})


def served() -> str:
    with open(sys.argv[sys.argv.index("--patch") + 1], encoding="utf-8") as patch:
        entries = [json.loads(line[2:]) for line in patch if line.startswith("- {")]
    [providers] = [e["config"]["providers"] for e in entries if e["id"] == "llm-pi-ai"]
    return str(providers["hyperrl"]["baseURL"])


def ask(thread: str, messages: list[dict[str, Any]]) -> str:
    body = {"model": "main", "input": messages, "stream": False}
    headers = {
        "authorization": f"Bearer {os.environ['HYPERRL_KEY']}",
        "session_id": thread,
        "content-type": "application/json",
    }
    request = urllib.request.Request(f"{served()}/responses", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        item = json.load(response)["output"][-1]
    messages.append(item)
    return str(item["content"][0]["text"])


def play(thread: str, text: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    try:
        while (said := ask(thread, messages)) == "call":
            messages.append({"role": "user", "content": f"{os.getpid()} in {PLACES[thread]}"})
    except OSError as error:
        said, reason = "", {"kind": "error", "error": {"message": str(error)}}
    else:
        reason = {"kind": "completed"}
    if said == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while said == "hang":
        time.sleep(60)
    if said == "refuse":
        reason = {"kind": "error", "error": {"message": "the model refused"}}
    content = [{"type": "text", "text": said}]
    event(thread, "assistant/message", message={"role": "assistant", "content": content})
    event(thread, "turn/end", reason=reason)


def answer(number: int, method: str, params: dict[str, Any]) -> None:
    thread = str(params.get("sessionId", ""))
    if method == "session/wait":
        WORK[thread].join()
    elif method == "session/prompt":
        WORK[thread] = threading.Thread(
            target=play, args=(thread, params["contentBlocks"][0]["text"]), daemon=True
        )
        WORK[thread].start()
    elif method == "session/working-directory/set":
        PLACES[thread] = params["path"]
    elif params.get("provider") != "hyperrl":
        say(id=number, error={"code": -1, "message": f"cannot {method}"})
        return
    say(id=number, result={})


def main() -> None:
    if "--version" in sys.argv:
        print("0.2.1")
        return
    for line in sys.stdin:
        asked = json.loads(line)
        threading.Thread(
            target=answer, args=(asked["id"], asked["method"], asked["params"]), daemon=True
        ).start()


main()
