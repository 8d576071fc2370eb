"""Real agent programs: `make check-programs` installs and demands them; else they are used where found."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

INSTALLED = Path(__file__).resolve().parents[2] / ".cache" / "programs"


@pytest.fixture(scope="session")
def codex_binary() -> str:
    """Path of ``codex``: HYPERRL_CODEX, what `make check-programs` installed, or the PATH."""
    places = os.pathsep.join([str(INSTALLED / "node_modules" / ".bin"), os.environ.get("PATH", "")])
    found = os.environ.get("HYPERRL_CODEX") or shutil.which("codex", path=places)
    return found or missing("Codex")


@pytest.fixture(scope="session")
def dsh_binary() -> str:
    """Path of the native ``dsh``: HYPERRL_DSH, what `make check-programs` installed, or the package's."""
    named = os.environ.get("HYPERRL_DSH")
    packages = [INSTALLED / "python", *map(Path, sys.path)]
    native = "deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-*-x64"
    found = [named] if named else [str(path) for folder in packages for path in folder.glob(native)]
    return found[0] if found else missing("DeepSeek Harness")


def missing(program: str) -> NoReturn:
    reason = f"{program} is not installed; `make check-programs` does that"
    if os.environ.get("HYPERRL_REQUIRE_PROGRAMS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
