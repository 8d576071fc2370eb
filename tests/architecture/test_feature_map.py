import ast
import importlib
import re
from pathlib import Path

import pytest
from source_tree import ROOT, parse

from hyperrl.cli.app import app
from hyperrl.train.config import option_names
from hyperrl.train.metrics import find_metric

PAGE = ROOT / "docs" / "feature-map.md"
COLUMNS = ["feature", "entry", "where", "metric", "test"]
OPTIONS = set(option_names())
SECTIONS = {name.split(".")[0] for name in OPTIONS if "." in name}
COMMANDS = {command.name for command in app.registered_commands} | {g.name for g in app.registered_groups}


def rows() -> list[list[str]]:
    """The rows of all tables of the page."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    heads = PAGE.read_text(encoding="utf-8").count("\n## ")
    assert cells.count(COLUMNS) == heads > 0, "a table below each heading"
    return [row for row in cells if row != COLUMNS and not row[0].startswith("-")]


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
        resolve(reference, home_of(reference))
    assert metric == "-" or quoted(metric)
    for name in quoted(metric):
        find_metric(name)
    assert quoted(test)
    for reference in quoted(test):
        assert reference.startswith("tests/")
        resolve(reference, ROOT)


def home_of(reference: str) -> Path:
    """Where a path of the page begins: the root, if it names a file or folder there, else the package."""
    return ROOT if (ROOT / reference.partition("/")[0]).exists() else ROOT / "hyperrl"


def resolve_entry(name: str) -> None:
    """A public name, command, option or file is looked up; methods and arguments are for people."""
    if re.fullmatch(r"hyperrl(_tasks)?(\.\w+)+", name):
        module, _, symbol = name.rpartition(".")
        assert symbol in importlib.import_module(module).__all__, f"{name} is not public"
    elif name.startswith("hyperrl "):
        assert name.split()[1] in COMMANDS, f"{name} is no command"
    elif re.fullmatch(r"[a-z]+\.\w+", name) and name.partition(".")[0] in SECTIONS:
        assert name in OPTIONS, f"{name} is no option"
    elif re.match(r"(examples|benchmarks|scripts)/", name):
        assert (ROOT / name).is_file(), f"{name} is no file"


@pytest.mark.parametrize(
    "name",
    [
        "hyperrl.trajectory.Trajektory",
        "hyperrl trane",
        "rollout.grups",
        "benchmarks/none.py",
    ],
)
def test_an_entry_that_does_not_exist_is_found(name):
    with pytest.raises(AssertionError, match=name):
        resolve_entry(name)


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
