"""Real agent programs: `make test` installs them below .cache; a test that finds none is skipped.

With HYPERRL_REQUIRE_PROGRAMS=1 it fails instead. Tests marked `full`, and large counts in others, take
minutes: `make check-programs` alone runs them, by HYPERRL_PROGRAMS=full.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")
from real_programs import RealProgram

from hyperrl.agents.rendering import TemplateRenderer, load_renderer

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FULL = os.environ.get("HYPERRL_PROGRAMS") == "full"
STARTS_S = {"codex": 0.5, "deepseek": 6.0}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not FULL:
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def _fetched(name: str) -> str:
    """Return the native program that scripts/fetch_programs.py has installed, or nothing."""
    spec = importlib.util.spec_from_file_location("fetch_programs", SCRIPTS / "fetch_programs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while the class is made
    spec.loader.exec_module(module)
    return str(module.installed(name) or "")


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether tests may take minutes."""
    return FULL


@pytest.fixture(scope="session")
def codex_binary() -> str:
    """Path of ``codex``: HYPERRL_CODEX, what `make test` installed, or the PATH."""
    found = os.environ.get("HYPERRL_CODEX") or _fetched("codex") or shutil.which("codex")
    return found or missing("Codex")


@pytest.fixture(scope="session")
def dsh_binary() -> str:
    """Path of the native ``dsh``: HYPERRL_DSH, what `make test` installed, or the PATH."""
    found = os.environ.get("HYPERRL_DSH") or _fetched("deepseek") or shutil.which("dsh")
    return found or missing("DeepSeek Harness")


def missing(program: str) -> NoReturn:
    reason = f"{program} is not installed; scripts/fetch_programs.py does that"
    if os.environ.get("HYPERRL_REQUIRE_PROGRAMS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def renderer(qwen3_dir: Path) -> TemplateRenderer:
    return load_renderer(qwen3_dir)


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where the homes of one test are; its workspaces are in ``tmp_path``."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="program-homes-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture(params=STARTS_S)
def real(request: pytest.FixtureRequest, homes: Path) -> RealProgram:
    """Each of the programs."""
    binary = request.getfixturevalue("codex_binary" if request.param == "codex" else "dsh_binary")
    return RealProgram(name=request.param, binary=binary, homes=homes, starts_s=STARTS_S[request.param])
