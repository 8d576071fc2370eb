"""The process that runs blocking tools, so that one that hangs can be killed.

A job is a pickled tuple: module, name of the function, path of the main script (or ``None``),
pickled keyword arguments, most characters of the result. Each job is answered by ``["ready", ""]``
once its function is loaded, then by ``[status, text]``, both JSON: nothing that a tool returns is
ever unpickled by the parent.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import runpy
import sys
import threading
import time
import types
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, cast

from hyperrl.envs.tool_text import describe_error, result_text, shorten

__all__ = ["is_loading", "serve"]

_WATCH_S = 1.0
_MAIN = "__mp_main__"
_state = types.SimpleNamespace(loading=False, main=None)


def is_loading() -> bool:
    """Whether a worker is importing a tool's module right now, so that it must start no episode."""
    return bool(_state.loading)


def serve(handle: int) -> None:
    """Answer jobs that arrive on the connection until the other side closes it."""
    os.set_inheritable(handle, False)
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(handle)
    while True:
        try:
            job = connection.recv_bytes()
        except (EOFError, OSError):
            return
        _answer(connection, pickle.loads(job))  # from our own parent


def _answer(connection: Connection, job: tuple[str, str, str | None, bytes, int]) -> None:
    module, name, main_path, packed, limit = job
    try:
        function = _load(module, name, main_path)
        arguments = pickle.loads(packed)
        _send(connection, "ready", "")
        status, text = _outcome(function(**arguments))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a tool raises is for the policy to read
        status, text = "error", describe_error(error)
    _send(connection, status, shorten(text, limit))


def _outcome(value: object) -> tuple[str, str]:
    tools = sys.modules.get("hyperrl.envs.tools")  # loaded where the tool is one that can return it
    if tools is not None and isinstance(value, tools.ToolResult):
        return cast("tuple[str, str]", value.told())
    return "ok", result_text(value)


def _send(connection: Connection, status: str, text: str) -> None:
    connection.send_bytes(json.dumps([status, text]).encode("ascii"))


def _load(module: str, name: str, main_path: str | None) -> Callable[..., Any]:
    _state.loading = True
    try:
        owner = importlib.import_module(module) if main_path is None else _main_module(main_path)
    finally:
        _state.loading = False
    found = getattr(owner, name)
    return cast("Callable[..., Any]", getattr(found, "function", found))


def _main_module(path: str) -> types.ModuleType:
    """Run the main script under another name, as multiprocessing does, so that its guard holds."""
    if _state.main is None:
        _state.main = types.ModuleType(_MAIN)
        _state.main.__dict__.update(runpy.run_path(path, run_name=_MAIN))
        sys.modules["__main__"] = sys.modules[_MAIN] = _state.main
    return cast("types.ModuleType", _state.main)


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)
