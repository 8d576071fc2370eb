"""What the architecture tests look at: the files of the repository, as paths and as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"hyperrl": ROOT / "hyperrl", "hyperrl_tasks": ROOT / "tasks" / "hyperrl_tasks"}


def source_files() -> list[Path]:
    """Every Python file that is installed, in order."""
    return sorted(path for package in PACKAGES.values() for path in package.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name of an installed file."""
    base = PACKAGES["hyperrl_tasks"].parent if "hyperrl_tasks" in path.parts else ROOT
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Yield ``(module, name)`` for everything imported anywhere in a file; name is None for a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: write imports absolutely"
            yield from ((str(node.module), alias.name) for alias in node.names)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
