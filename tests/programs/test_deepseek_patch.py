"""Every id of the patch is one that the real DeepSeek Harness knows: others it leaves out unseen."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from hyperrl.harness.adapters.deepseek import DeepSeekSettings, patch_text

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("profile", ["headless", "sdk"])
def test_the_patch_names_what_the_profile_has(profile: str, dsh_binary: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [dsh_binary, "--profile", profile, "--dump-default-config"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DSH_HOME": str(tmp_path / ".dsh")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    there = set(re.findall(r"^- id: (\S+)$", done.stdout, re.MULTILINE))
    text = patch_text(DeepSeekSettings(), "http://127.0.0.1:1/v1", api="openai-responses", model="main")
    ours = {json.loads(line[2:])["id"] for line in text.splitlines() if line.startswith("- {")}
    assert ours - there == set()
