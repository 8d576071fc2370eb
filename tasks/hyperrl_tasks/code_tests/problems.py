"""Programming problems from rows of three layouts: ours, HumanEval's and MBPP's."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperrl.envs.grading import CallTest, CodeTest, read_asserts, read_check
from hyperrl.errors import ConfigError, DataError

__all__ = ["LAYOUTS", "Problem", "UnusableRowError", "layout_of", "read_problem"]

LAYOUTS: dict[str, tuple[str, ...]] = {
    "hyperrl": ("task_id", "signature", "statement", "examples", "tests", "solution"),
    "HumanEval": ("task_id", "prompt", "entry_point", "canonical_solution", "test"),
    "MBPP": ("task_id", "code", "test_list"),
}
"""The fields that a row of each layout has; one of MBPP has ``text`` or ``prompt`` too."""

_WIDTH = 88


class UnusableRowError(Exception):
    """A row is as its layout says, but cannot be judged: its tests use more than the function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem.

    Attributes:
        question: what the policy reads.
        entry_point: name of the function.
        tests: what it is judged by; the policy does not see them.
        solution: a whole program that passes them.
        preamble: what runs before a submission, such as imports that the question shows.
    """

    question: str
    entry_point: str
    tests: tuple[CallTest | CodeTest, ...]
    solution: str
    preamble: str = ""


def layout_of(row: Mapping[str, Any], where: str) -> str:
    """Return the name of the layout of a row. Raises DataError."""
    for name, fields in LAYOUTS.items():
        if all(field in row for field in fields):
            return name
    wanted = "; ".join(f"{name}: {', '.join(fields)}" for name, fields in LAYOUTS.items())
    raise DataError(f"{where} is no programming problem: found were {sorted(row)}, needed are {wanted}")


def read_problem(row: Mapping[str, Any], where: str) -> Problem:
    """Read a row of any layout.

    Args:
        row: its fields.
        where: what to call it in an error.

    Raises:
        DataError: it is of no known layout, or a field of it cannot be used.
        UnusableRowError: its tests use something of the solution beside the function.
    """
    read = {"hyperrl": _read_ours, "HumanEval": _read_humaneval, "MBPP": _read_mbpp}[layout_of(row, where)]
    try:
        return read(row)
    except (ConfigError, KeyError, IndexError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise DataError(f"{where} cannot be used: {type(error).__name__}: {error}") from error


def _read_ours(row: Mapping[str, Any]) -> Problem:
    tolerance = float(row.get("tolerance", 0.0))
    tests = [
        CallTest(
            args=test["args"],
            expected=test.get("expected"),
            raises=test.get("raises"),
            tolerance=tolerance,
        )
        for test in row["tests"]
    ]
    name = row["signature"].partition("(")[0]
    shown = int(row["examples"])
    statement = textwrap.fill(row["statement"], _WIDTH)
    examples = [f">>> {name}({', '.join(map(repr, t.args))})\n{t.expected!r}" for t in tests[:shown]]
    docstring = textwrap.indent("\n".join([f'"""{statement}', "", *examples, '"""']), "    ")
    return Problem(
        question=_ask(f"def {row['signature']}:\n{docstring}"),
        entry_point=name,
        tests=tuple(tests[shown:]),
        solution=row["solution"],
    )


def _read_humaneval(row: Mapping[str, Any]) -> Problem:
    prompt, name = row["prompt"], row["entry_point"]
    tree = ast.parse(prompt)
    starts = [node.lineno for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not starts:
        raise ValueError(f"the prompt defines no function {name!r}")
    return Problem(
        question=_ask(prompt.strip("\n")),
        entry_point=name,
        tests=read_check(row["test"], name, setup=prompt),
        solution=prompt + row["canonical_solution"],
        preamble="".join(prompt.splitlines(keepends=True)[: starts[0] - 1]),
    )


def _read_mbpp(row: Mapping[str, Any]) -> Problem:
    code, lines = row["code"].replace("\r\n", "\n"), list(row["test_list"])
    defined = _defined(ast.parse(code))
    used = [_used(line) for line in lines]
    candidates = [name for name in used[0] if name in defined]
    if not candidates:
        raise ValueError(f"the first test calls nothing that the code defines: {lines[0]!r:.80}")
    others = {name for names in used for name in names if name in defined} - {candidates[0]}
    if others:
        raise UnusableRowError(f"its tests use {sorted(others)[0]!r}, which only its solution defines")
    setup = "\n".join([*row.get("test_imports", ()), row.get("test_setup_code") or ""])
    text = str(row["text"] if "text" in row else row["prompt"]).strip()
    return Problem(
        question=f"{text}\n\nThe function passes this test:\n\n```python\n{lines[0].strip()}\n```",
        entry_point=candidates[0],
        tests=read_asserts(lines, candidates[0], setup=setup),
        solution=code,
    )


def _ask(code: str) -> str:
    return f"Complete this function:\n\n```python\n{code}\n```"


def _defined(tree: ast.Module) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


def _used(source: str) -> Sequence[str]:
    """The names in a test, the outermost call first."""
    return [node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
