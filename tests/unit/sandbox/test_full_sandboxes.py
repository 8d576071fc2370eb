"""What every sandbox for full CPython promises, claim by claim of docs/sandboxes.md."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import threading

import pytest
from sandbox_tools import SMALL, marked, new_mark, run, wait_for_mark

from hyperrl.envs.sandbox import BubblewrapSandbox, Confinement, LocalSandbox, Sandbox, SandboxLimits
from hyperrl.envs.sandbox.bwrap import why_not_isolated
from hyperrl.errors import ConfigError

REASON = why_not_isolated()
without_bubblewrap = pytest.mark.skipif(REASON is not None, reason=f"no isolated level here: {REASON}")
BOTH = [LocalSandbox, pytest.param(BubblewrapSandbox, marks=without_bubblewrap)]


@pytest.fixture(params=BOTH)
def kind(request):
    return request.param


@pytest.fixture
def sandbox(kind):
    return kind(SMALL)


@pytest.fixture
def isolated():
    if REASON is not None:
        pytest.skip(f"no isolated level here: {REASON}")
    return BubblewrapSandbox(SMALL)


@pytest.fixture
def limited():
    return LocalSandbox(SMALL)


@pytest.fixture
def listener():
    """A server on this machine that greets whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"reached")
            except OSError:
                return

        threading.Thread(target=greet, daemon=True).start()
        yield server.getsockname()[1]


def test_it_is_a_sandbox(sandbox):
    assert isinstance(sandbox, Sandbox)
    assert sandbox.level in {"limited", "isolated"}


def test_code_reads_its_input_and_its_files(sandbox):
    code = (
        "import sys, pathlib\nimport helpers.words\n"
        "print(input(), sys.stdin.read(), pathlib.Path('data/a.bin').read_bytes(), helpers.words.WORD)"
    )
    files = {"data/a.bin": b"\xff\x00", "helpers/words.py": "WORD = 'ü'"}
    result = run(sandbox, code, stdin="first\nrest", files=files)
    assert result.stderr == ""
    assert result.stdout == "first rest b'\\xff\\x00' ü\n"
    assert result.ok
    assert (result.exit_code, result.truncated_bytes, result.value) == (0, 0, None)


def test_the_working_directory_is_writable_and_new(sandbox):
    code = "import os; print(os.path.exists('kept')); open('kept', 'w').write('x'); print(os.getcwd())"
    assert run(sandbox, code).stdout == run(sandbox, code).stdout == "False\n/tmp\n"


def test_an_error_is_a_result(sandbox):
    result = run(sandbox, "print('before')\n1/0")
    assert result.stdout == "before\n"
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert '"/tmp/program.py", line 2' in result.stderr
    assert (result.exit_code, result.ok, result.timed_out, result.out_of_memory) == (1, False, False, False)


def test_stdout_is_kept_beside_warnings(sandbox):
    result = run(sandbox, "import warnings; print('answer'); warnings.warn('careful')")
    assert result.stdout == "answer\n"
    assert "careful" in result.stderr


def test_the_exit_code_is_the_programs_own(sandbox):
    assert run(sandbox, "raise SystemExit(7)").exit_code == 7


def test_equal_runs_give_equal_output(sandbox):
    code = "print(hash('x'), {'b', 'a', 'c'}); import os; print(sorted(os.environ)); 1/0"
    first, second = run(sandbox, code), run(sandbox, code)
    assert (first.stdout, first.stderr) == (second.stdout, second.stderr)


def test_input_that_nobody_reads_does_no_harm(sandbox):
    assert run(sandbox, "print('done')", stdin="x" * 2_000_000).stdout == "done\n"


def test_output_that_is_not_text_becomes_replacement_characters(sandbox):
    result = run(sandbox, "import sys; sys.stdout.buffer.write(b'a\\xffb')")
    assert result.stdout == "a\ufffdb"


def test_a_lone_surrogate_in_the_code_is_no_fault(sandbox):
    assert run(sandbox, "print(1) # \ud800").stdout == "1\n"


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "program.py", "./program.py", "a\0b"])
def test_a_path_outside_is_refused(limited, name):
    with pytest.raises(ConfigError):
        run(limited, "print(1)", files={name: "x"})


# Time


def test_the_wall_clock_ends_a_sleeper(kind):
    result = run(kind(SandboxLimits(wall_s=3)), "print('on', flush=True); import time; time.sleep(600)")
    assert result.timed_out
    assert not result.ok
    assert result.stdout == "on\n"
    assert "more than 3 s" in result.stderr


def test_the_cpu_clock_ends_a_spinner(kind):
    result = run(kind(SandboxLimits(wall_s=100, cpu_s=1)), "while True: pass")
    assert result.timed_out
    assert "CPU" in result.stderr


def test_code_cannot_lift_the_cpu_clock(kind):
    code = (
        "import resource, signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "try: resource.setrlimit(resource.RLIMIT_CPU, (600, 600))\nexcept (ValueError, OSError): pass\n"
        "while True: pass"
    )
    assert run(kind(SandboxLimits(wall_s=8, cpu_s=1)), code).timed_out


# Memory, disk, output


def test_too_much_memory_is_refused(sandbox):
    result = run(sandbox, "x = bytearray(1 << 30)")
    assert result.out_of_memory
    assert result.exit_code == 1


def test_a_file_cannot_grow_past_its_limit(sandbox):
    code = "import os\nf = open('big', 'wb')\nf.write(bytes(2 << 20))\nf.close()"
    result = run(sandbox, code)
    assert not result.ok
    assert "OSError" in result.stderr


def test_many_files_fill_no_disk_where_isolated(isolated):
    code = "for i in range(20):\n  with open(f'part{i}', 'wb') as f: f.write(bytes(200 << 10))"
    assert "No space left" in run(isolated, code).stderr


def test_many_files_are_not_stopped_where_limited_but_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "for i in range(20):\n  with open(f'part{i}', 'wb') as f: f.write(bytes(200 << 10))\nprint('all')"
    assert run(LocalSandbox(SMALL), code).stdout == "all\n"
    assert list(tmp_path.iterdir()) == []


def test_folders_that_were_closed_are_removed_too(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os\nos.makedirs('a/b/c')\nopen('a/b/f', 'w')\n"
        "for path in ('a/b', 'a', '.'): os.chmod(path, 0)"
    )
    assert run(LocalSandbox(SMALL), code).ok
    assert list(tmp_path.iterdir()) == []


def test_long_output_keeps_its_start_and_its_end(sandbox):
    result = run(sandbox, "print('start'); print('x' * 100_000); print('end')")
    assert result.stdout.startswith("start\nxxx")
    assert result.stdout.endswith("xxx\nend\n")
    assert "bytes left out ...]" in result.stdout
    assert result.truncated_bytes == 100_011 - SMALL.output_bytes
    assert result.ok


def test_endless_output_ends(sandbox):
    result = run(sandbox, "while True: print('x' * 10_000)")
    assert not result.ok
    assert "too much output" in result.stderr
    assert len(result.stdout) < 2 * SMALL.output_bytes


# Processes. No test forks more than a hundred times.

FORKS = (
    "import os, time\nmade = 0\ntry:\n    for _ in range(100):\n        if os.fork() == 0:\n"
    "            time.sleep(600)\n        made += 1\nexcept OSError: pass\n"
    "print(made, flush=True)\ntime.sleep(0.5)"
)


def test_a_fork_bomb_is_ended_where_limited(limited):
    result = run(limited, FORKS)
    if limited.confinement.own_user:  # the kernel refuses the next one
        assert int(result.stdout) < 12
    else:
        assert "more than 12 processes" in result.stderr
        assert not result.ok


def test_a_fork_bomb_meets_the_kernels_limit_where_isolated(isolated):
    if os.getuid() != 0:
        pytest.skip("the kernel's limit is exact only for the user ids that root gives away")
    result = run(isolated, FORKS)
    assert int(result.stdout) < 12
    assert result.ok


def test_too_many_threads_are_no_way_out(sandbox):
    code = (
        "import threading, time\n"
        "for _ in range(40): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "time.sleep(600)"
    )
    assert not run(sandbox, code).ok


DETACHED = (
    "import subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}],"
    " start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n"
    "print('left')"
)


def test_a_detached_child_is_gone_when_the_run_ends(sandbox):
    mark = new_mark()
    assert run(sandbox, DETACHED.format(mark=mark)).stdout == "left\n"
    assert marked(mark) == []


def test_a_daemon_that_forks_twice_is_gone_too(sandbox):
    mark = new_mark()
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        f"        os.execv(sys.executable, [*sleeper, {mark!r}])\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)"
    )
    assert run(sandbox, code).ok
    assert marked(mark) == []


def test_a_child_that_holds_the_output_open_holds_nothing_up(sandbox):
    mark = new_mark()
    code = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}])\nprint('left')"
    )
    result = run(sandbox, code)
    assert result.stdout == "left\n"
    assert not result.timed_out
    assert marked(mark) == []


def test_children_die_when_the_clock_runs_out(kind):
    mark = new_mark()
    result = run(kind(SandboxLimits(wall_s=1)), DETACHED.format(mark=mark) + "\nimport time; time.sleep(600)")
    assert result.timed_out
    assert marked(mark) == []


def test_cancelling_ends_everything(sandbox):
    mark = new_mark()

    async def cancel() -> None:
        running = asyncio.create_task(
            sandbox.run_python(DETACHED.format(mark=mark) + "\nimport time; time.sleep(600)")
        )
        await asyncio.to_thread(wait_for_mark, mark)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert marked(mark) == []


def test_sandboxes_run_side_by_side(sandbox):
    async def several() -> list[str]:
        runs = [sandbox.run_python(f"print({number})") for number in range(6)]
        return [result.stdout for result in await asyncio.gather(*runs)]

    assert asyncio.run(several()) == [f"{number}\n" for number in range(6)]


@pytest.fixture
def unconfined():
    """The level ``limited`` where the machine has nothing to hold code with."""
    return LocalSandbox(SMALL, confinement=Confinement(capabilities="kept"))


def test_killing_its_supervisor_frees_no_child_of_the_group_where_unconfined(unconfined):
    mark = new_mark()
    code = (
        "import os, signal, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}])\n"
        "os.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(600)"
    )
    assert run(unconfined, code).exit_code == -9
    assert marked(mark) == []


# Secrets, files, network


def test_secrets_in_the_environment_are_not_passed_on(sandbox, monkeypatch):
    monkeypatch.setenv("HYPERRL_TEST_TOKEN", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "/s3cret")
    assert "s3cret" not in run(sandbox, "import os; print(os.environ)").stdout


@pytest.fixture
def secretive():
    """Another process of this user, with a secret in its environment."""
    process = subprocess.Popen(["/bin/sleep", "600"], env={"HYPERRL_TEST_TOKEN": "s3cret"})
    yield process.pid
    process.kill()
    process.wait()


SEARCH = (
    "import glob\n"
    "for name in glob.glob('/proc/[0-9]*/environ'):\n"
    "    try: print(open(name).read())\n    except OSError: pass"
)


def test_secrets_of_other_processes_cannot_be_read_where_isolated(isolated, secretive):
    result = run(isolated, SEARCH)
    assert result.ok
    assert "PATH=" in result.stdout
    assert "s3cret" not in result.stdout


def test_secrets_of_other_processes_can_be_read_where_unconfined(unconfined, secretive):
    assert "s3cret" in run(unconfined, f"print(open('/proc/{secretive}/environ').read())").stdout


def test_the_supervisor_holds_no_secrets(unconfined, monkeypatch):
    monkeypatch.setenv("HYPERRL_TEST_TOKEN", "s3cret")
    code = "import os; print(repr(open(f'/proc/{os.getppid()}/environ').read()))"
    assert run(unconfined, code).stdout == "''\n"


def test_files_of_the_machine_are_hidden_where_isolated(isolated, tmp_path):
    (tmp_path / "secret").write_text("s3cret")
    code = (
        "import os\nprint(sorted(os.listdir('/')))\n"
        f"for path in ('/etc/passwd', '/root', '/home', '/sys', {str(tmp_path / 'secret')!r}):\n"
        "    print(os.path.exists(path))"
    )
    listing, *seen = run(isolated, code).stdout.splitlines()
    assert set(seen) == {"False"}
    assert set(eval(listing)) <= {"bin", "dev", "lib", "lib64", "proc", "run", "tmp", "usr"}


def test_files_of_the_machine_are_not_hidden_where_limited(limited):
    assert "root:" in run(limited, "print(open('/etc/passwd').read())").stdout


def test_files_of_the_user_can_be_changed_where_unconfined(unconfined, tmp_path):
    (tmp_path / "secret").write_text("readable")
    code = f"print(open({str(tmp_path / 'secret')!r}).read()); open({str(tmp_path / 'new')!r}, 'w')"
    assert run(unconfined, code).stdout == "readable\n"
    assert (tmp_path / "new").exists()


def test_nothing_but_the_working_directory_is_writable_where_isolated(isolated):
    code = (
        "for path in ('/x', '/dev/x', '/run/x', '/run/files/x', '/usr/x', '/usr/lib/x', '/proc/x'):\n"
        "    try: open(path, 'w')\n    except OSError as error: continue\n    print('wrote', path)"
    )
    assert run(isolated, code).stdout == ""


CONNECT = (
    "import socket\ntry: print(socket.create_connection(('127.0.0.1', {port}), 5).recv(10))\n"
    "except OSError as error: print('no:', error.errno)"
)


def test_there_is_no_network_where_isolated(isolated, listener):
    assert run(isolated, CONNECT.format(port=listener)).stdout.startswith("no:")
    code = CONNECT.replace("127.0.0.1", "192.0.2.1").format(port=80)
    assert run(isolated, code).stdout == "no: 101\n"


def test_the_network_is_not_hidden_where_limited(limited, listener):
    assert run(limited, CONNECT.format(port=listener)).stdout == "b'reached'\n"


def test_processes_of_the_machine_cannot_be_seen_where_isolated(isolated):
    code = "import os; print(len([name for name in os.listdir('/proc') if name.isdigit()]), os.getpid() < 10)"
    assert run(isolated, code).stdout == "2 True\n"


def test_namespaces_and_rights_cannot_be_regained_where_isolated(isolated):
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "print(libc.unshare(0x10000000), libc.mount(b'none', b'/tmp', b'tmpfs', 0, None), os.getuid() == 0)\n"
        "print(open('/proc/self/status').read())"
    )
    result = run(isolated, code)
    assert result.stdout.startswith("-1 -1 False\n")
    assert "NoNewPrivs:\t1" in result.stdout
    assert "CapEff:\t0000000000000000" in result.stdout


def test_programs_that_change_the_user_gain_nothing(limited):
    assert "NoNewPrivs:\t1" in run(limited, "print(open('/proc/self/status').read())").stdout
