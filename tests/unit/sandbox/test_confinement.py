"""What holds the code of a ``limited`` sandbox, claim by claim of docs/sandboxes.md.

Nothing here signals a process that it did not start, but for one test, which has a PID namespace of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_tools import SMALL, marked, new_mark, run, wait_for_mark

from hyperrl.envs.sandbox import Confinement, LocalSandbox, local, seccomp
from hyperrl.envs.sandbox.confinement import list_confinements
from hyperrl.envs.sandbox.landlock import SIGNALS_ABI, WRITES_ABI, landlock_abi
from hyperrl.envs.sandbox.seccomp import can_filter

ABI = landlock_abi()
ROOT = os.getuid() == 0
SYSTEM_PYTHON = "/usr/bin/python3"
OPEN = Confinement(capabilities="kept")
KINDS = {
    "landlock": Confinement(landlock=ABI, filtered=True),
    "namespace": Confinement(pid_namespace=True, filtered=True),
    "namespace alone": Confinement(pid_namespace=True),
    "own user": Confinement(own_user=True),
}


def confined(name, monkeypatch=None):
    """A sandbox held in one way; the test is skipped where that does not work."""
    kind = KINDS[name]
    if kind.own_user and not (ROOT and Path(SYSTEM_PYTHON).exists()):
        pytest.skip("only root can give user ids away")
    if kind.own_user:  # the running interpreter may lie where others cannot read it
        monkeypatch.setattr(sys, "executable", SYSTEM_PYTHON)
    if kind.landlock < SIGNALS_ABI and not (kind.own_user or kind.pid_namespace):
        pytest.skip(f"Landlock of this kernel is of version {ABI}")
    sandbox = LocalSandbox(SMALL, confinement=kind)
    tried = run(sandbox, "print('inside')")
    if not tried.ok:
        pytest.skip(f"it does not work here: {tried.stderr}")
    return sandbox


@pytest.fixture(params=KINDS)
def contained(request, monkeypatch):
    return confined(request.param, monkeypatch)


@pytest.fixture
def landlocked():
    return confined("landlock")


@pytest.fixture
def unconfined():
    return LocalSandbox(SMALL, confinement=OPEN)


@pytest.fixture
def victim():
    """A process of this user that a test may lose, with a secret."""
    process = subprocess.Popen(["/bin/sleep", "600"], env={"HYPERRL_TEST_TOKEN": "s3cret"})
    yield process
    process.kill()
    process.wait()


def tries(*lines):
    """A program that says of each line which error it raised, or its value."""
    program = "import os, resource, signal, socket, subprocess, sys\n"
    for line in lines:
        program += f"try: print({line})\nexcept OSError as error: print(type(error).__name__)\n"
    return program


REFUSED = {"PermissionError", "ProcessLookupError"}


# Signals, and what ends a process like one


def reaching(process):
    return tries(
        f"os.kill({process.pid}, 0)",
        f"os.kill({process.pid}, signal.SIGTERM)",
        f"os.killpg({process.pid}, 0)",
        f"signal.pidfd_send_signal(os.pidfd_open({process.pid}), 0)",
        f"resource.prlimit({process.pid}, resource.RLIMIT_CPU, (9, 9))",
    )


def test_no_process_outside_is_signalled_or_limited(contained, victim):
    result = run(contained, reaching(victim))
    assert len(result.stdout.splitlines()) == 5, result.stderr
    assert set(result.stdout.splitlines()) <= REFUSED
    assert contained.contains_signals
    assert victim.poll() is None
    assert Path(f"/proc/{victim.pid}/limits").read_text().split("cpu time")[1].split()[0] == "unlimited"


def test_without_a_confinement_it_would_be(unconfined, victim):
    """The check of the check: the same calls arrive where nothing holds them."""
    victim_leads_no_group = "ProcessLookupError"
    said = run(unconfined, reaching(victim)).stdout.splitlines()
    assert said[0] == said[1] == "None"
    assert said[2] == victim_leads_no_group
    assert victim.wait(timeout=20) == -15


def test_its_supervisor_is_out_of_reach(contained):
    code = tries("os.kill(os.getppid(), 0) if os.getppid() > 1 else 'process 1 is its own'")
    said = run(contained, code).stdout.strip()
    assert said in REFUSED or contained.confinement.pid_namespace


def test_its_own_children_are_its_own(contained):
    code = (
        "import os, signal, subprocess, time\nchild = subprocess.Popen(['/bin/sleep', '600'])\n"
        "os.kill(child.pid, 0); child.terminate(); print(child.wait())\n"
        "other = subprocess.Popen(['/bin/sleep', '600'], start_new_session=True)\n"
        "os.killpg(other.pid, signal.SIGKILL); print(other.wait())"
    )
    assert run(contained, code).stdout == "-15\n-9\n"


def test_everything_ends_with_the_run(contained):
    mark = new_mark()
    code = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}],"
        " start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\nprint('left')"
    )
    assert run(contained, code).stdout == "left\n"
    assert marked(mark) == []


def test_cancelling_reaches_into_it(contained):
    mark = new_mark()
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}],"
        " start_new_session=True)\ntime.sleep(600)"
    )

    async def cancel() -> None:
        running = asyncio.create_task(contained.run_python(code))
        await asyncio.to_thread(wait_for_mark, mark)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert marked(mark) == []


def test_ends_are_told_apart(contained):
    assert run(contained, "raise SystemExit(7)").exit_code == 7
    assert run(contained, "import os; os.kill(os.getpid(), 15)").exit_code in (-15, 128 + 15)
    assert run(contained, "import os; os.abort()").exit_code in (-6, 128 + 6)


STALE = """
import subprocess, sys
from hyperrl.envs.sandbox.supervisor import _kill_descendant
_kill_descendant(int(sys.argv[1]))
_kill_descendant(2**22 + 1)
child = subprocess.Popen(["/bin/sh", "-c", "/bin/sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
_kill_descendant(int(child.stdout.readline()))
print(child.wait())
"""


def test_the_supervisor_kills_no_stranger_that_was_given_an_old_id(victim):
    command = [sys.executable, "-c", STALE, str(victim.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, victim.poll()) == ("0\n", None)


INCIDENT = """
import asyncio, os, subprocess, sys
from hyperrl.envs.sandbox import Confinement, LocalSandbox
GUARD = "assert b'bwrap' in open('/proc/1/cmdline', 'rb').read(), 'not in a namespace of its own'"
exec(GUARD)
victim = subprocess.Popen(["/bin/sleep", "600"])
guard = "" if sys.argv[2] == "apart" else GUARD
if sys.argv[2] == "own user":
    sys.executable = "/usr/bin/python3"
sandbox = LocalSandbox(confinement=eval(sys.argv[1]))
code = guard + "\\nimport os\\nprint('at it', flush=True)\\ntry: os.kill(-1, 9)\\nexcept OSError: pass"
result = asyncio.run(sandbox.run_python(code))
print(result.stdout.strip(), victim.poll() is None)
victim.kill()
"""
"""Sends SIGKILL to whatever is in reach. What runs it has a PID namespace, and so has all that it can hit."""


@pytest.mark.parametrize("name", ["landlock", "namespace", "own user"])
def test_killing_everything_kills_nothing_outside(name, monkeypatch):
    confined(name, monkeypatch)
    monkeypatch.undo()
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        pytest.skip("without a namespace around it this must not be tried")
    place = {"landlock": "inside", "namespace": "apart", "own user": "own user"}[name]
    around = [bubblewrap, "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc"]
    done = subprocess.run(
        [*around, sys.executable, "-c", INCIDENT, repr(KINDS[name]), place],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "bwrap:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "at it True\n", done.stderr


# Other processes, files, services


def looking(process):
    return tries(
        *(f"open('/proc/{process.pid}/{name}', 'rb').read(100)" for name in ("environ", "mem")),
        f"os.readlink('/proc/{process.pid}/fd/0')",
        f"os.readlink('/proc/{process.pid}/cwd')",
    )


@pytest.mark.parametrize("name", ["landlock", "namespace", "own user"])
def test_no_other_process_is_looked_into(name, monkeypatch, victim):
    said = run(confined(name, monkeypatch), looking(victim)).stdout.splitlines()
    assert len(said) == 4
    assert set(said) <= {*REFUSED, "FileNotFoundError"}


def test_without_a_confinement_they_are(unconfined, victim):
    assert "s3cret" in run(unconfined, looking(victim)).stdout


def writing(folder):
    return (
        "import os\n"
        "open('made', 'w').write('x'); os.mkdir('d'); os.rename('made', 'd/made'); os.truncate('d/made', 0)\n"
        "os.symlink('d', 'link'); os.remove('d/made'); os.rmdir('d')\n"
        "for name in ('null', 'zero', 'full', 'urandom'): open(f'/dev/{name}', 'w')\n"
    ) + tries(
        f"open('{folder}/kept').read()",
        f"open('{folder}/kept', 'r+')",
        f"open('{folder}/kept', 'w')",
        f"os.truncate('{folder}/kept', 0)",
        f"os.remove('{folder}/kept')",
        f"os.rename('{folder}/kept', 'stolen')",
        f"os.link('{folder}/kept', 'linked')",
        f"open('{folder}/new', 'w')",
        f"os.mkdir('{folder}/new')",
        f"os.symlink('x', '{folder}/new')",
        f"os.mkfifo('{folder}/new')",
        "open('/dev/shm/hyperrl-test', 'w')",
        f"open('/proc/{os.getpid()}/oom_score_adj', 'w')",
    )


@pytest.mark.skipif(ABI < WRITES_ABI, reason=f"Landlock of this kernel is of version {ABI}")
def test_only_the_working_directory_is_written(landlocked, tmp_path):
    (tmp_path / "kept").write_text("kept")
    first, *others = run(landlocked, writing(tmp_path)).stdout.splitlines()
    assert (first, len(others)) == ("kept", 12)
    assert set(others) <= {"PermissionError", "OSError"}  # EXDEV, for what would leave its folder
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"
    assert landlocked.confinement.contains_writes


@pytest.mark.skipif(ABI < WRITES_ABI, reason=f"Landlock of this kernel is of version {ABI}")
def test_rights_and_times_of_files_can_be_changed(landlocked, tmp_path):
    """Landlock does not cover them; a user of its own owns no file to do it to."""
    (tmp_path / "kept").write_text("kept")
    code = tries(f"os.chmod('{tmp_path}/kept', 0o600)", f"os.utime('{tmp_path}/kept', (1, 1))")
    assert run(landlocked, code).stdout == "None\nNone\n"
    assert (tmp_path / "kept").stat().st_mtime == 1


def test_files_of_the_user_are_not_those_of_a_user_of_its_own(monkeypatch):
    sandbox = confined("own user", monkeypatch)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "kept").touch(mode=0o600)
        calls = ["open(NAME)", "open(NAME, 'w')", "os.remove(NAME)", "os.chmod(NAME, 0)"]
        calls.append("os.utime(NAME, (1, 1))")
        said = run(sandbox, tries(*(call.replace("NAME", repr(f"{folder}/kept")) for call in calls)))
    assert said.stdout == "PermissionError\n" * 5


@pytest.mark.skipif(ABI < SIGNALS_ABI, reason=f"Landlock of this kernel is of version {ABI}")
def test_abstract_sockets_outside_are_out_of_reach():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + new_mark())
        server.listen()
        code = tries(f"socket.socket(socket.AF_UNIX).connect({server.getsockname()!r})")
        assert run(LocalSandbox(SMALL, confinement=OPEN), code).stdout == "None\n"
        held = LocalSandbox(SMALL, confinement=Confinement(landlock=ABI))
        assert run(held, code).stdout == "PermissionError\n"


@pytest.mark.skipif(not can_filter(), reason="the numbers of system calls are not known for this machine")
def test_local_services_cannot_be_asked():
    held = LocalSandbox(SMALL, confinement=Confinement(filtered=True))
    code = tries(
        "socket.socket(socket.AF_UNIX)",
        "len(socket.socketpair())",
        "socket.socket().close()",
        "len(resource.prlimit(0, resource.RLIMIT_CPU))",
    )
    assert run(held, code).stdout == "PermissionError\n2\nNone\n2\n"


# Root


CAPABILITIES = "print(open('/proc/self/status').read().split('CapEff:')[1].split()[0])"


@pytest.mark.parametrize(("kept", "mask"), [("none", 0), ("read", 1 << 2)])
def test_root_has_no_capabilities(kept, mask):
    if not ROOT and mask:
        pytest.skip("only root has any")
    sandbox = LocalSandbox(SMALL, confinement=Confinement(capabilities=kept))
    assert int(run(sandbox, CAPABILITIES).stdout, 16) == mask


def test_without_capabilities_a_hidden_process_stays_hidden():
    """What the judge of ``hyperrl.envs.grading`` rests on where there is no Landlock."""
    code = (
        "import ctypes, os, time\nready, tell = os.pipe()\nchild = os.fork()\nif child == 0:\n"
        "    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os.write(tell, b'x'); time.sleep(600)\n"
        "os.read(ready, 1)\ntry: open(f'/proc/{child}/mem', 'rb')\n"
        "except OSError as error: print(type(error).__name__)"
    )
    held = LocalSandbox(SMALL, confinement=Confinement(capabilities="none"))
    assert run(held, code).stdout == "PermissionError\n"


def test_a_user_of_its_own_has_the_kernels_limit_and_no_rights(monkeypatch):
    sandbox = confined("own user", monkeypatch)
    code = (
        "import os, time\nmade = 0\ntry:\n    for _ in range(40):\n"
        "        if os.fork() == 0: time.sleep(600)\n        made += 1\nexcept OSError: pass\n"
        "print(made < 12, os.getuid() not in (0, 65534), os.getgroups())\n"
        "open('made', 'w')\ntry: open('/etc/shadow')\nexcept OSError as error: print(type(error).__name__)"
    )
    assert run(sandbox, code).stdout == "True True []\nPermissionError\n"


def test_a_user_who_cannot_read_the_interpreters_files_is_not_taken(monkeypatch, tmp_path):
    if not ROOT:
        pytest.skip("only root can give user ids away")
    tmp_path.chmod(0o700)  # nobody else gets to a working directory in it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = local.find_confinement(sys.executable, str(tmp_path))
    assert not found.own_user
    assert run(LocalSandbox(SMALL, confinement=found), "print('inside')").stdout == "inside\n"


# What is chosen


def test_the_default_is_what_works_and_packages_are_there():
    sandbox = LocalSandbox()
    assert sandbox.confinement == local.find_confinement(sys.executable, tempfile.gettempdir())
    assert run(sandbox, "import numpy; print(numpy.arange(3).sum())").stdout == "3\n"
    if ABI >= SIGNALS_ABI and can_filter():
        assert sandbox.contains_signals
        assert sandbox.confinement.contains_writes


@given(abi=st.integers(0, 9), filters=st.booleans(), root=st.booleans())
def test_choices_are_ordered_by_strength(abi, filters, root):
    found = list(list_confinements(abi=abi, filters=filters, root=root))
    assert found[-1] == OPEN
    assert len(set(found)) == len(found)
    held = [each.contains_signals for each in found]
    assert held == sorted(held, reverse=True)
    assert found[0].contains_signals  # a namespace is always tried
    assert found[0].landlock == abi
    assert found[0].own_user == root
    if abi >= SIGNALS_ABI and filters:
        assert not found[0].pid_namespace
    assert all(root or not (each.own_user or each.capabilities == "read") for each in found)


def test_a_sandbox_that_holds_no_signals_says_so_once(caplog):
    local._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        sandboxes = [LocalSandbox(confinement=OPEN) for _ in range(2)]
    assert [sandbox.contains_signals for sandbox in sandboxes] == [False, False]
    assert len(caplog.records) == 1
    assert "install bubblewrap" in caplog.text


def test_landlock_without_the_filter_contains_no_signals():
    assert not Confinement(landlock=ABI).contains_signals
    assert not Confinement(landlock=SIGNALS_ABI - 1, filtered=True).contains_signals
    assert not Confinement(landlock=WRITES_ABI - 1).contains_writes


# The filter, by an interpreter of its few instructions


def verdict_of(program, *, architecture, number, argument):
    """Run a classic BPF program as the kernel does."""
    data = {0: number, 4: architecture, 16: argument & 0xFFFFFFFF}
    steps = [
        (
            int.from_bytes(program[at : at + 2], "little"),
            program[at + 2],
            program[at + 3],
            program[at + 4 : at + 8],
        )
        for at in range(0, len(program), 8)
    ]
    at, word = 0, 0
    while True:
        code, then, other, value = steps[at]
        constant = int.from_bytes(value, "little")
        if code == 0x06:
            return constant
        if code == 0x20:
            word = data[constant]
        else:
            holds = word == constant if code == 0x15 else word >= constant
            at += then if holds else other
        at += 1


ALLOWED, KILLED, NOT_PERMITTED = 0x7FFF0000, 0x80000000, 0x00050001
CALLS = [
    ("x86_64", 0xC000003E, {"prlimit": 302, "socket": 41, "read": 0}),
    ("aarch64", 0xC00000B7, {"prlimit": 261, "socket": 198, "read": 63}),
]


@pytest.mark.parametrize(("machine", "architecture", "numbers"), CALLS)
def test_the_filter_refuses_these_calls_only(machine, architecture, numbers):
    program = seccomp.make_filter(machine)

    def says(number, argument=0, architecture=architecture):
        return verdict_of(program, architecture=architecture, number=number, argument=argument)

    assert says(numbers["prlimit"], 0) == ALLOWED
    assert says(numbers["prlimit"], 1234) == says(numbers["prlimit"], -1) == NOT_PERMITTED
    assert says(numbers["socket"], socket.AF_INET) == says(numbers["socket"], socket.AF_INET6) == ALLOWED
    assert says(numbers["socket"], socket.AF_UNIX) == NOT_PERMITTED
    assert says(425) == says(numbers["prlimit"] | 1 << 30) == NOT_PERMITTED
    assert says(numbers["read"]) == ALLOWED
    assert says(numbers["read"], architecture=0x40000003) == KILLED


def test_an_unknown_machine_has_no_filter():
    assert can_filter("x86_64")
    assert not can_filter("m68k")
