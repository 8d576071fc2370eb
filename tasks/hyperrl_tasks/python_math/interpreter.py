"""The Python that the tool runs: in Monty with variables that last, or in full CPython without."""

from __future__ import annotations

import contextlib
import dataclasses
import reprlib
from typing import Literal, get_args

from hyperrl.envs.sandbox import MontySandbox, Sandbox, SandboxLimits, SandboxResult, make_sandbox, reaches
from hyperrl.errors import ConfigError, MissingExtraError, nearest

__all__ = ["Interpreter", "InterpreterName", "make_interpreter_sandbox", "written_result"]

InterpreterName = Literal["auto", "monty", "cpython"]
"""``auto`` is Monty where it is installed, else CPython."""

_MONTY_BYTES = 64 << 20  # of objects alone; values come back to us, so it bounds these too
_CELL = "cell.py"
_RUN_CELL = f"""
import ast

with open("{_CELL}", encoding="utf-8") as file:
    tree = ast.parse(file.read(), "{_CELL}")
last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
scope = {{"__name__": "__main__"}}
exec(compile(tree, "{_CELL}", "exec"), scope)
if last is not None:
    value = eval(compile(ast.Expression(last.value), "{_CELL}", "eval"), scope)
    if value is not None:
        print(repr(value))
"""

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 6, 2_000, 2_000, 4_300
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxfrozenset = 200


class Interpreter:
    """One episode's Python.

    Args:
        sandbox: where it runs; in Monty, variables last from call to call.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._session = sandbox.open_session() if isinstance(sandbox, MontySandbox) else None

    async def run(self, code: str) -> SandboxResult:
        """Run a snippet; the value of a last line that is an expression is printed."""
        if self._session is None:
            return await self._sandbox.run_python(_RUN_CELL, files={_CELL: code})
        return await self._session.run(code)

    def close(self) -> None:
        """End what still runs; the variables are gone."""
        if self._session is not None:
            self._session.close()


def make_interpreter_sandbox(name: InterpreterName, minimum: str, limits: SandboxLimits) -> Sandbox:
    """Make the sandbox that an interpreter runs in.

    Raises:
        ConfigError: there is no such interpreter, or nothing here reaches ``minimum``.
        MissingExtraError: Monty was asked for and is not installed.
    """
    if name not in get_args(InterpreterName):
        known = get_args(InterpreterName)
        raise ConfigError(
            f"interpreter must be one of {', '.join(known)}, got {name!r}.{nearest(str(name), known)}"
        )
    reaches("none", minimum)  # refuses a level that there is not, whatever the interpreter
    if name != "cpython":
        with contextlib.suppress(*([MissingExtraError] if name == "auto" else [])):
            small = dataclasses.replace(limits, memory_bytes=_MONTY_BYTES)
            return make_sandbox(minimum, limits=small, interpreter="monty")
    return make_sandbox(minimum, limits=limits)


def written_result(result: SandboxResult) -> str:
    """Return what a policy reads of a run: output, value, and errors last."""
    parts = [result.stdout.rstrip("\n"), _written_value(result.value), result.stderr.strip("\n")]
    text = "\n".join(part for part in parts if part)
    return text or "(nothing was printed; print what you want to know)"


def _written_value(value: object) -> str:
    if value is None:
        return ""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a number of more digits than Python writes
        return f"(a {type(value).__name__} too long to write)"
