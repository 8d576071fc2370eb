"""``hyperrl new`` as an author uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hyperrl
from hyperrl.envs.scaffold import KINDS, plan_scaffold
from hyperrl.errors import ConfigError


def run(
    *arguments: str, cwd: Path, paths: tuple[Path, ...] = (), module: str = "hyperrl.cli"
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"},
        encoding="utf-8",
    )


def install(project: Path, target: Path) -> None:
    """Leave behind what an editable install of the project leaves, without an installer."""
    about = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = target / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    lines = [
        line
        for group, names in about["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "tools" else pytest.mark.slow) for k in KINDS]
)
def test_what_is_made_passes_check_and_its_own_tests(tmp_path: Path, kind: str) -> None:
    made = run("new", "word-game", "--kind", kind, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    project = tmp_path / "word-game"
    assert [line.strip() for line in made.stdout.splitlines()[-3:]] == [
        "pip install --editable word-game",
        "hyperrl check word_game/WordGame-v0",
        "hyperrl play word_game/WordGame-v0",
    ]
    install(project, tmp_path / "site")
    paths = (tmp_path / "site", project)
    checked = run("check", "word_game/WordGame-v0", "--json", cwd=tmp_path, paths=paths)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert {one["status"] for one in json.loads(checked.stdout)["checks"]} <= {"pass", "warn"}
    tested = run("-q", "-p", "no:cacheprovider", cwd=project, paths=paths, module="pytest")
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    refused = run("new", "mine", "--dir", str(tmp_path), cwd=tmp_path)
    assert refused.returncode == 2
    assert "exists already; choose another name" in refused.stderr
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My-Env", "cannot name a package"),
        ("2games", "cannot name a package"),
        ("a--b", "cannot name a package"),
        ("../up", "cannot name a package"),
        ("", "cannot name a package"),
        ("spiel\u00e4", "cannot name a package"),
        ("class", "is a word of Python itself"),
        ("json", "is a word of Python itself"),
        ("numpy", "is there already and would be hidden"),
        ("hyperrl", "is there already and would be hidden"),
    ],
)
def test_bad_names_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_scaffold(name, parent=tmp_path)


def test_an_unknown_kind_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'tools'"):
        plan_scaffold("word-game", parent=tmp_path, kind="tool")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused = run("new", "word-game", "--dir", "file", cwd=tmp_path)
    assert refused.returncode == 2
    assert "cannot be made: Not a directory; choose another folder with --dir" in refused.stderr


def test_an_environment_of_a_package_that_is_not_installed_says_so(tmp_path: Path) -> None:
    unknown = run("check", "word_game/WordGame-v0", cwd=tmp_path)
    assert unknown.returncode == 2
    assert unknown.stderr.endswith(
        "Nothing is registered under 'word_game': install the package that does it; one that is not installed"
        " is named with its module, as in 'word_game:word_game/WordGame-v0'.\n"
    )
    slip = run("check", "hyprrl/Countdown-v0", cwd=tmp_path)
    assert slip.stderr.endswith("Did you mean 'hyperrl/Countdown-v0'?\n")


def test_the_version_and_short_help() -> None:
    assert run("--version", cwd=Path()).stdout == f"hyperrl {hyperrl.__version__}\n"
    assert run("check", "-h", cwd=Path()).stdout == run("check", "--help", cwd=Path()).stdout
