"""Supervision of one program: its output, its end, and nothing that survives it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hyperrl.errors import ConfigError
from hyperrl.harness.process import OUTPUT_TAIL, Ended, ProgramCommand, run_program


def shell(text: str, cwd: Path, **values: Any) -> ProgramCommand:
    env = {"PATH": os.environ["PATH"], "MARK": str(cwd)}
    return ProgramCommand(words=("/bin/sh", "-c", text), env=env, cwd=cwd, **values)


def run(command: ProgramCommand) -> Ended:
    return asyncio.run(run_program(command))


def alive(mark: Path) -> set[int]:
    """Processes whose environment holds ``mark``."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if f"MARK={mark}".encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(told: Any, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not told() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert told()


def test_a_program_reads_its_prompt_and_leaves_code_and_output(tmp_path: Path) -> None:
    ended = run(shell("cat; echo broken >&2; pwd; exit 3", tmp_path, stdin="a prompt\n"))
    assert (ended.exit_code, ended.stopped_by) == (3, None)
    assert ended.stdout == f"a prompt\n{tmp_path}\n"
    assert "broken" in ended.tail
    assert ended.cpu_s > 0


def test_it_leads_a_session_of_its_own(tmp_path: Path) -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())"
    ended = run(ProgramCommand(words=(sys.executable, "-c", code), env={}, cwd=tmp_path))
    assert ended.stdout.split() == ["True", "True"]


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    ended = run(shell("seq 200000; echo last >&2; exit 1", tmp_path, keep_bytes=100))
    assert len(ended.tail) == OUTPUT_TAIL
    assert len(ended.stdout) == 100
    assert ended.stdout.endswith("200000\n")


def test_more_input_than_anybody_reads_is_no_failure(tmp_path: Path) -> None:
    assert run(shell("exit 0", tmp_path, stdin="x" * 3_000_000)).exit_code == 0


def test_what_it_left_running_ends_with_it_detached_or_not(tmp_path: Path) -> None:
    text = "sleep 300 & setsid sleep 300 & (setsid sh -c 'sleep 300 & sleep 300' &) ; sleep 0.2; exit 0"
    assert run(shell(text, tmp_path)).exit_code == 0
    assert alive(tmp_path) == set()


def test_it_is_interrupted_first_and_may_tidy_up(tmp_path: Path) -> None:
    text = "trap 'echo tidied; exit 7' INT; echo up; while :; do sleep 0.05; done"
    ended = run(shell(text, tmp_path, timeout_s=0.7, interrupt_s=5))
    assert (ended.exit_code, ended.stopped_by) == (7, "timeout")
    assert ended.stdout == "up\ntidied\n"
    assert ended.duration_s < 5


def test_what_ignores_the_interrupt_is_killed(tmp_path: Path) -> None:
    text = "trap '' INT TERM; (setsid sleep 300 &); sleep 300; sleep 300"
    ended = run(shell(text, tmp_path, timeout_s=0.3, interrupt_s=0.2))
    assert (ended.exit_code, ended.stopped_by) == (-signal.SIGKILL, "timeout")
    assert alive(tmp_path) == set()


def test_a_caller_can_stop_it(tmp_path: Path) -> None:
    async def main() -> Ended:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, stop.set)
        return await run_program(shell("sleep 300", tmp_path), stop=stop)

    ended = asyncio.run(main())
    assert (ended.exit_code, ended.stopped_by) == (-signal.SIGINT, "stopped")


def test_cancelled_and_killed_programs_leave_no_process_file_or_task(tmp_path: Path) -> None:
    async def main() -> None:
        before = asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))
        text = "trap '' INT; (setsid sleep 300 &); echo up; sleep 300; sleep 300"
        works = [asyncio.create_task(run_program(shell(text, tmp_path, interrupt_s=0.1))) for _ in range(20)]
        await asyncio.sleep(0.5)
        for work in works:
            work.cancel()
        await asyncio.sleep(0.05)
        for work in works:
            work.cancel()  # somebody is impatient
        said = await asyncio.gather(*works, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in said)
        killed = [run_program(shell("sleep 300 & kill -9 $$", tmp_path)) for _ in range(10)]
        assert [ended.exit_code for ended in await asyncio.gather(*killed)] == [-9] * 10
        await asyncio.sleep(0.1)
        assert (asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))) == before

    asyncio.run(main())
    assert alive(tmp_path) == set()


def test_what_is_cancelled_while_it_starts_leaves_nothing_either(tmp_path: Path) -> None:
    async def main() -> None:
        work = asyncio.create_task(run_program(shell("sleep 300", tmp_path, interrupt_s=0.1)))
        for _ in range(2):
            await asyncio.sleep(0)
        wait_until(lambda: alive(tmp_path))  # nothing else happens in this loop before it runs
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()

    asyncio.run(main())
    assert alive(tmp_path) == set()


def test_nothing_outlives_a_caller_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from hyperrl.harness.process import ProgramCommand, run_program
env = {{"MARK": {str(tmp_path)!r}, "PATH": "/bin:/usr/bin"}}
words = ("/bin/sh", "-c", "setsid sleep 300 & sleep 300")
asyncio.run(run_program(ProgramCommand(words=words, env=env, cwd=Path({str(tmp_path)!r}))))
"""
    caller = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: len(alive(tmp_path)) >= 2)
    caller.kill()
    caller.wait()
    wait_until(lambda: alive(tmp_path) == set())


def test_a_program_does_not_go_on_without_its_keeper(tmp_path: Path) -> None:
    async def main() -> Ended:
        command = ProgramCommand(words=("/bin/sleep", "300"), env={"MARK": str(tmp_path)}, cwd=tmp_path)
        work = asyncio.create_task(run_program(command))
        while not alive(tmp_path):  # noqa: ASYNC110  # a process appears
            await asyncio.sleep(0.02)
        [program] = alive(tmp_path)
        os.kill(parent(program), signal.SIGKILL)
        return await asyncio.wait_for(work, 60)

    ended = asyncio.run(main())
    assert (ended.exit_code, ended.stopped_by) == (-9, "keeper")
    wait_until(lambda: alive(tmp_path) == set())


def test_a_program_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    ended = run(ProgramCommand(words=(str(tmp_path / "nothing"),), env={}, cwd=tmp_path))
    assert ended.exit_code == 126
    assert "cannot be started" in ended.tail


def test_no_socket_of_the_caller_reaches_the_program(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        os.set_inheritable(listener.fileno(), True)
        ended = run(shell("ls /proc/self/fd | wc -l", tmp_path))
    assert int(ended.stdout) <= 5


@pytest.mark.parametrize("values", [{"timeout_s": 0}, {"timeout_s": float("inf")}, {"interrupt_s": -1}])
def test_limits_out_of_range_are_refused(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="timeout_s must be"):
        shell("true", tmp_path, **values)


def test_a_relative_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        ProgramCommand(words=("codex",), env={}, cwd=tmp_path)
