"""Unit tests as data: a call with what it should give, or a piece of code with assertions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperrl.envs.grading.code_text import parse_code
from hyperrl.envs.grading.plain_values import encode
from hyperrl.errors import ConfigError

__all__ = ["CallTest", "CodeTest", "read_asserts", "read_check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """The function is called, and what it gives is compared where the grader runs.

    Attributes:
        args: arguments by position; plain data, as is everything below (see ``plain_values``).
        kwargs: arguments by name.
        expected: what it should return.
        raises: name of the exception that it should raise instead, or of a base class of it.
        tolerance: how far floats may be from what is expected, relatively (absolutely near 0).

    Raises:
        ConfigError: a value is not plain data, or the tolerance is negative.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None
    raises: str | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.args, (list, tuple)):
            raise ConfigError(f"the args of a CallTest must be a list, such as [1, 2]; got {self.args!r:.80}")
        object.__setattr__(self, "args", tuple(self.args))
        try:
            encode([self.args, dict(self.kwargs), self.expected])
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"a CallTest holds plain data only: {error}. Write it as a CodeTest, or return plain data"
            ) from error
        if not self.tolerance >= 0:
            raise ConfigError(f"the tolerance of a CallTest must be at least 0, got {self.tolerance}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTest:
    """Code with assertions, which runs in the sandbox, in another process than the submission.

    It calls the function by its name or as ``candidate``. Arguments and values pass between the two
    processes as plain data; an argument is never changed in place, and a function cannot be passed.

    Attributes:
        source: the code; it passes if it ends without an exception.
        setup: code that runs before it, such as imports. What it defines is the test's own.

    Raises:
        ConfigError: one of them is not Python.
    """

    source: str
    setup: str = ""

    def __post_init__(self) -> None:
        for name, code in (("source", self.source), ("setup", self.setup)):
            if isinstance(problem := parse_code(code), str):
                raise ConfigError(f"the {name} of a CodeTest cannot be used: {problem}")


def read_asserts(
    lines: Sequence[str], entry_point: str, *, setup: str = ""
) -> tuple[CallTest | CodeTest, ...]:
    """Make tests of assertions such as ``assert add(1, 2) == 3``, the layout of MBPP.

    One that compares a single call on plain data with plain data becomes a :class:`CallTest`.

    Raises:
        ConfigError: a line is not Python.
    """
    tests: list[CallTest | CodeTest] = []
    for line in lines:
        test = CodeTest(source=line, setup=setup)
        body = ast.parse(line).body
        call = _read_call(body[0], {entry_point}) if len(body) == 1 else None
        tests.append(call or test)
    return tuple(tests)


def read_check(source: str, entry_point: str, *, setup: str = "") -> tuple[CallTest | CodeTest, ...]:
    """Make tests of a ``def check(candidate)``, the layout of HumanEval.

    Where its body holds nothing but assertions, each becomes a test of its own, and those without a call
    of the function (``assert True``) are left out. Else all of it is one test.

    Raises:
        ConfigError: ``source`` is not Python or defines no ``check`` of one argument.
    """
    whole = CodeTest(source=f"{source}\n\ncheck({entry_point})\n", setup=setup)
    tree = ast.parse(source)
    check = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
    if check is None or len(check.args.args) != 1:
        raise ConfigError(f"expected a function check(candidate), got {source!r:.200}")
    name = check.args.args[0].arg
    body = [statement for statement in check.body if not _is_text(statement)]
    if name != "candidate" or not all(isinstance(statement, ast.Assert) for statement in body):
        return (whole,)
    rest = [node for node in tree.body if node is not check]
    before = f"{setup}\n{ast.unparse(ast.Module(body=rest, type_ignores=[]))}"
    calling = [statement for statement in body if _names(statement) & {name, entry_point}]
    return tuple(
        _read_call(statement, {name, entry_point}) or CodeTest(source=ast.unparse(statement), setup=before)
        for statement in calling
    )


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _names(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _read_call(statement: ast.stmt, names: set[str]) -> CallTest | None:
    """Read ``assert f(data) == data``; None for anything else."""
    test = statement.test if isinstance(statement, ast.Assert) else None
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return None
    call, expected = test.left, test.comparators[0]
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names):
        return None
    if any(word.arg is None for word in call.keywords):  # **words
        return None
    try:
        return CallTest(
            args=[ast.literal_eval(node) for node in call.args],
            kwargs={str(word.arg): ast.literal_eval(word.value) for word in call.keywords},
            expected=ast.literal_eval(expected),
        )
    except (ValueError, TypeError, ConfigError):
        return None
