"""The self-test of the real programs: `hyperrl programs check` passes with what is installed."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")

from hyperrl.harness.adapters.codex import CodexProgram
from hyperrl.harness.adapters.deepseek import DeepSeekProgram
from hyperrl.harness.adapters.deepseek_shared import SharedDeepSeekProgram
from hyperrl.harness.self_test import run_self_test

pytestmark = pytest.mark.slow


def test_codex_passes_the_self_test(codex_binary: str) -> None:
    found = asyncio.run(CodexProgram.known.find(codex_binary))
    tested = asyncio.run(run_self_test(CodexProgram.trial(found.path)))
    assert tested.failed == ()
    assert len(tested.checks) == 6


@pytest.mark.parametrize(("program", "checks"), [(DeepSeekProgram, 6), (SharedDeepSeekProgram, 5)])
def test_deepseek_passes_the_self_test(
    program: type[DeepSeekProgram] | type[SharedDeepSeekProgram], checks: int, dsh_binary: str
) -> None:
    found = asyncio.run(program.known.find(dsh_binary))
    tested = asyncio.run(run_self_test(program.trial(found.path)))
    assert tested.failed == ()
    assert len(tested.checks) == checks
