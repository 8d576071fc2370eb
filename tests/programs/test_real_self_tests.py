"""The self-test of the real programs: `hyperrl programs check` passes with what is installed."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("mcp")

from hyperrl.harness.adapters.codex import CodexAdapter, CodexSettings
from hyperrl.harness.adapters.deepseek import DeepSeekAdapter, DeepSeekSettings
from hyperrl.harness.adapters.deepseek_shared import SharedDeepSeekProgram
from hyperrl.harness.adapters.installed import Installable
from hyperrl.harness.self_test import run_self_test

pytestmark = pytest.mark.slow


def test_codex_passes_the_self_test(codex_binary: str) -> None:
    adapter = CodexAdapter(CodexSettings())
    found = asyncio.run(adapter.known.find(codex_binary))
    tested = asyncio.run(run_self_test(adapter.trial(found.path)))
    assert tested.failed == ()
    assert len(tested.checks) == 6


@pytest.mark.parametrize(
    ("program", "checks"), [(DeepSeekAdapter(DeepSeekSettings()), 6), (SharedDeepSeekProgram(), 5)]
)
def test_deepseek_passes_the_self_test(program: Installable, checks: int, dsh_binary: str) -> None:
    found = asyncio.run(program.known.find(dsh_binary))
    tested = asyncio.run(run_self_test(program.trial(found.path)))
    assert tested.failed == ()
    assert len(tested.checks) == checks
