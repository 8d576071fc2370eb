import ast
import importlib
import re
from pathlib import Path

import pytest
from source_tree import ROOT, parse

from hyperrl.train.metrics import find_metric

PAGE = ROOT / "docs" / "feature-map.md"
COLUMNS = ["feature", "entry", "where", "metric", "test"]


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0] == COLUMNS
    return cells[2:]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def resolve(reference: str, base: Path) -> None:
    """Check ``path`` or ``path::Symbol`` or ``path::Class.method``; raise AssertionError."""
    file, _, symbol = reference.partition("::")
    path = base / file
    assert path.exists(), f"{reference}: no {path.relative_to(ROOT)}"
    body: list[ast.stmt] = parse(path).body if symbol else []
    for name in filter(None, symbol.split(".")):
        found = [node for node in body if name in names_of(node)]
        assert found, f"{reference}: no {name} in {path.relative_to(ROOT)}"
        body = getattr(found[0], "body", [])


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_points_to_what_exists(row):
    assert len(row) == len(COLUMNS)
    _, entry, where, metric, test = row
    assert quoted(entry), "an entry is a name, a command or an option in backticks"
    for name in quoted(entry):
        resolve_entry(name)
    assert quoted(where)
    for reference in quoted(where):
        resolve(reference, ROOT if reference.startswith("tasks/") else ROOT / "hyperrl")
    assert metric == "-" or quoted(metric)
    for name in quoted(metric):
        find_metric(name)
    assert quoted(test)
    for reference in quoted(test):
        assert reference.startswith("tests/")
        resolve(reference, ROOT)


def resolve_entry(name: str) -> None:
    """A dotted public name is looked up; commands, options and methods are for people."""
    if not re.fullmatch(r"hyperrl(_tasks)?(\.\w+)+", name):
        return
    module, _, symbol = name.rpartition(".")
    assert symbol in importlib.import_module(module).__all__, f"{name} is not public"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hyperrl/nowhere.py", "no hyperrl/nowhere.py"),
        ("hyperrl/trajectory.py::Trajektory", "no Trajektory"),
        ("hyperrl/trajectory.py::Trajectory.rewards", "no rewards"),
    ],
)
def test_a_row_that_points_nowhere_is_found(reference, message):
    with pytest.raises(AssertionError, match=message):
        resolve(reference, ROOT)
