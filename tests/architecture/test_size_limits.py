import ast
from pathlib import Path

from source_tree import ROOT, functions, parse, source_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 79


def too_long(path: Path) -> list[str]:
    """What of a file is over the limits."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    found = [f"{path}: {lines} lines"] if lines > MAX_FILE_LINES else []
    return found + [
        f"{path}:{function.lineno} {function.name}: {length_of(function)} lines"
        for function in functions(parse(path))
        if length_of(function) > MAX_FUNCTION_LINES
    ]


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_files_and_functions_stay_small():
    others = [
        path for folder in ("scripts", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [problem for path in [*source_files(), *others] for problem in too_long(path)] == []


def test_what_is_too_long_is_found(tmp_path):
    body = "    x = 1\n" * 79
    path = tmp_path / "long.py"
    path.write_text(f"class A:\n    async def run(self):\n{body.replace('    x', '        x')}")
    assert too_long(path) == [f"{path}:2 run: 80 lines"]
    path.write_text("x = 1\n" * 501)
    assert too_long(path) == [f"{path}: 501 lines"]
    path.write_text("x = 1\n" * 420 + f"def run():\n{body.removesuffix('    x = 1' + chr(10))}")
    assert too_long(path) == []
