import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs.sandbox import LEVELS, LocalSandbox, SandboxLimits, bwrap, choice, make_sandbox, reaches
from hyperrl.envs.sandbox.capture import OutputCapture
from hyperrl.errors import ConfigError


@pytest.fixture
def open_folder():
    """A folder that any user may enter: root gives up its rights before it starts bubblewrap."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_levels_are_ordered():
    assert LEVELS == ("none", "limited", "isolated")
    assert [[reaches(level, minimum) for minimum in LEVELS] for level in LEVELS] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_an_unknown_level_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'isolated'"):
        make_sandbox("isolate")
    with pytest.raises(ConfigError, match="Did you mean 'monty'"):
        make_sandbox(interpreter="monti")


def test_the_best_that_is_there_is_taken():
    best = "limited" if bwrap.why_not_isolated() else "isolated"
    assert make_sandbox("none").level == make_sandbox().level == best


def test_without_bubblewrap_limited_is_what_there_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    bwrap.why_not_isolated.cache_clear()
    try:
        assert isinstance(make_sandbox("limited"), LocalSandbox)
        with pytest.raises(ConfigError, match="apt-get install bubblewrap") as refused:
            make_sandbox("isolated")
        assert "hyperrl[sandbox]" in str(refused.value)
        with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
            bwrap.BubblewrapSandbox()
    finally:
        bwrap.why_not_isolated.cache_clear()


def test_a_bubblewrap_that_does_not_work_is_not_taken(monkeypatch, open_folder):
    fake = open_folder / "bwrap"
    fake.write_text("#!/bin/sh\necho 'no permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{open_folder}:/usr/bin:/bin")
    bwrap.why_not_isolated.cache_clear()
    try:
        with pytest.raises(ConfigError, match="user namespaces"):
            make_sandbox("isolated")
    finally:
        bwrap.why_not_isolated.cache_clear()


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_above_zero(value):
    with pytest.raises(ConfigError, match="wall_s"):
        SandboxLimits(wall_s=value)


def test_choosing_loads_nothing_optional():
    code = "import sys, hyperrl.envs.sandbox; print('pydantic_monty' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert choice.__all__ == ["make_sandbox"]


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 40))
def test_an_output_keeps_its_ends(parts, limit):
    capture = OutputCapture(limit)
    for part in parts:
        capture.feed(part)
    whole = b"".join(parts)
    assert capture.total == len(whole)
    assert capture.dropped == max(0, len(whole) - limit)
    if capture.dropped:
        assert capture.text().startswith(whole[: (limit + 1) // 2].decode("utf-8", errors="replace"))
        assert f"[... {capture.dropped} bytes left out ...]" in capture.text()
    else:
        assert capture.text() == whole.decode("utf-8", errors="replace")


def test_an_endless_output_needs_bounded_memory():
    capture = OutputCapture(1000)
    for _ in range(2000):
        capture.feed(b"x" * 65536)
    assert len(capture._head) + len(capture._tail) <= 200_000
    assert capture.dropped == 2000 * 65536 - 1000
