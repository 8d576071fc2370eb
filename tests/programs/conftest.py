"""Real agent programs: `make check-programs` installs and demands them; else they are used where found."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

INSTALLED = Path(__file__).resolve().parents[2] / ".cache" / "programs" / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def codex_binary() -> str:
    """Path of ``codex``: HYPERRL_CODEX, what `make check-programs` installed, or the PATH."""
    places = os.pathsep.join([str(INSTALLED), os.environ.get("PATH", "")])
    found = os.environ.get("HYPERRL_CODEX") or shutil.which("codex", path=places)
    if found is None:
        reason = "Codex is not installed; `make check-programs` does that"
        if os.environ.get("HYPERRL_REQUIRE_PROGRAMS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
