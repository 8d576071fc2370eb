"""The level of Monty, claim by claim of docs/sandboxes.md."""

from __future__ import annotations

import asyncio
import builtins
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_tools import run

from hyperrl.envs.sandbox import MontySandbox, Sandbox, SandboxLimits, make_sandbox
from hyperrl.errors import ConfigError, MissingExtraError

pytest.importorskip("pydantic_monty", reason="pydantic-monty is not installed")

LIMITS = SandboxLimits(wall_s=20, cpu_s=10, memory_bytes=32 << 20, output_bytes=2000)
HASTY = SandboxLimits(wall_s=0.5, output_bytes=2000)


@pytest.fixture
def sandbox():
    return MontySandbox(LIMITS)


@pytest.fixture
def hasty():
    return MontySandbox(HASTY)


def snippets(sandbox: MontySandbox, *codes: str):
    async def play():
        async with sandbox.session() as session:
            return [await session.run(code) for code in codes]

    return asyncio.run(play())


def workers() -> list[str]:
    """The workers among the children of this process."""
    listings = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    names = [Path("/proc", child, "comm").read_text() for listing in listings for child in listing.split()]
    return [name for name in names if "monty" in name]


def test_it_is_an_isolated_sandbox(sandbox):
    assert isinstance(sandbox, Sandbox)
    assert sandbox.level == "isolated"
    assert isinstance(make_sandbox("isolated", interpreter="monty"), MontySandbox)


def test_the_last_expression_is_the_value(sandbox):
    result = run(sandbox, "print('hello')\n6 * 7")
    assert (result.stdout, result.stderr, result.value, result.exit_code) == ("hello\n", "", 42, 0)
    assert result.ok


def test_a_session_keeps_its_variables_and_two_share_none(sandbox):
    first = snippets(sandbox, "x = 3", "def double(n): return 2 * n", "double(x)", "1/0", "x")
    assert [result.value for result in first] == [None, None, 6, None, 3]
    assert "NameError" in snippets(sandbox, "x")[0].stderr


def test_values_can_be_given(sandbox):
    async def play():
        async with sandbox.session() as session:
            return await session.run("sum(numbers)", inputs={"numbers": [1, 2, 3]})

    assert asyncio.run(play()).value == 6


def test_an_error_is_a_result(sandbox):
    result = run(sandbox, "x = 1\nx / 0")
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stderr
    assert "line 2" in result.stderr
    assert "SyntaxError" in run(sandbox, "def (").stderr
    assert run(sandbox, "print(1) # \ud800").stdout == "1\n"


def test_equal_sessions_give_equal_results(sandbox):
    code = "import random, time, datetime\n[random.random(), time.time(), str(datetime.datetime.now())]"
    assert run(sandbox, code).value == run(sandbox, code).value


def test_an_endless_loop_ends_and_the_session_starts_again(hasty):
    _, stuck, after, again = snippets(hasty, "x = 1", "while True: pass", "x", "1 + 1")
    assert stuck.timed_out
    assert "restarted" in stuck.stderr
    assert "NameError" in after.stderr
    assert again.value == 2


def test_sleeping_takes_no_time(sandbox):
    assert run(sandbox, "import time\ntime.sleep(1000)\n'awake'").value == "awake"


@pytest.mark.parametrize(
    "code", ["9**9**9", "[0] * 10**9", "'a' * 10**11", "x = []\nwhile True: x.append('a' * 1000)"]
)
def test_too_much_memory_is_refused(sandbox, code):
    result = run(sandbox, code)
    assert result.out_of_memory
    assert not result.timed_out


def test_endless_recursion_is_an_error(sandbox):
    assert "RecursionError" in run(sandbox, "def f(): return f()\nf()").stderr


def test_endless_output_ends_and_is_cut(hasty):
    result = run(hasty, "print('start')\nwhile True: print('x' * 1000)")
    assert not result.ok
    assert result.truncated_bytes > 0
    assert result.stdout.startswith("start\n")
    assert len(result.stdout) < 2 * LIMITS.output_bytes


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import pathlib\npathlib.Path('/').iterdir()",
        "import os\nos.environ",
        "import os\nos.getenv('HOME')\nos.system('true')",
        "import socket",
        "import subprocess",
        "import ctypes",
        "__import__('os')",
        "().__class__.__base__.__subclasses__()",
    ],
)
def test_there_are_no_files_no_network_no_processes_no_secrets(sandbox, code, monkeypatch):
    monkeypatch.setenv("HYPERRL_TEST_TOKEN", "s3cret")
    result = run(sandbox, code)
    assert result.exit_code == 1
    assert "s3cret" not in result.stdout + result.stderr


def test_stdin_and_files_are_refused_with_the_way_out(sandbox):
    with pytest.raises(ConfigError, match="cpython"):
        run(sandbox, "1", stdin="x")
    with pytest.raises(ConfigError, match="cpython"):
        run(sandbox, "1", files={"a": "x"})


def test_no_worker_is_left(hasty):
    snippets(hasty, "1", "while True: pass", "2")
    assert workers() == []


def test_cancelling_waits_for_the_end_and_leaves_no_worker(hasty):

    async def cancel() -> None:
        running = asyncio.create_task(hasty.run_python("while True: pass"))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert workers() == []


def test_a_missing_package_names_its_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name == "pydantic_monty":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"hyperrl\[sandbox\]"):
        MontySandbox()


def test_a_program_that_used_it_exits_cleanly():
    code = (
        "import asyncio\nfrom hyperrl.envs.sandbox import MontySandbox, SandboxLimits\n"
        "box = MontySandbox(SandboxLimits(wall_s=0.3))\n"
        "print(asyncio.run(box.run_python('while True: print(1)')).timed_out)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n")
