from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from text_envs import Hanging, spin

from hyperrl.envs import Action, tool_process
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import Failure


def descendants(pid):
    """Process ids below ``pid`` that still run, zombies included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
    found, todo = set(), {pid}
    while todo:
        todo = {child for child, parent in parents.items() if parent in todo}
        found |= todo
    return found


def marked(text):
    """Process ids whose command line holds ``text``."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if text.encode() in line:
                found.add(int(entry.name))
    return found


def calls(*ways):
    return Action(
        "...",
        tool_calls=[
            ToolCall(call_id=str(i), name="spin", arguments={"way": way}, raw="{}")
            for i, way in enumerate(ways)
        ],
    )


def step(env, *ways):
    async def play():
        await env.areset()
        return await env.astep(calls(*ways))

    return asyncio.run(play())


@pytest.fixture
def sleeper(monkeypatch):
    """What marks a process that a tool of this very test run has left behind."""
    mark = f"sleeper-of-{os.getpid()}"
    monkeypatch.setenv("HYPERRL_TEST_SLEEPER", mark)
    return mark


@pytest.fixture
def no_workers(sleeper):
    """Start without idle workers, so that children can be counted."""
    tool_process._shared_workers().close()
    return descendants(os.getpid())


@pytest.mark.parametrize("way", ["spin", "sleep", "child"])
def test_a_hanging_tool_is_killed_with_its_processes_and_the_episode_goes_on(way, no_workers, sleeper):
    outcome = step(Hanging(), way)
    (record,) = outcome.tool_records
    assert record.status == "timeout"
    assert record.result == "Error: the tool did not finish within 1 s and was stopped"
    assert record.duration_s >= 1.0
    assert not outcome.terminated
    assert descendants(os.getpid()) == no_workers
    deadline = time.monotonic() + 30
    while marked(sleeper) and time.monotonic() < deadline:  # killed, and on a busy machine not gone at once
        time.sleep(0.01)
    assert marked(sleeper) == set()


def test_a_worker_serves_many_calls_and_is_replaced_when_it_dies(no_workers):
    env = Hanging()
    env.reset()
    results = []
    for way in ("raise", "exit", "quick", "die", "raise"):
        observation, _, terminated, _, info = env.step(calls(way))
        results.append((info["tool_calls"][0][1], str(observation)[:40]))
        assert not terminated
    assert results == [
        ("error", "Error: ValueError: no such way"),
        ("error", "Error: SystemExit: 3"),
        ("ok", "x" * 40),
        ("error", "Error: the tool's process ended with cod"),
        ("error", "Error: ValueError: no such way"),
    ]
    assert len(descendants(os.getpid()) - no_workers) == 1


def test_long_results_are_shortened_on_the_way(no_workers):
    result = asyncio.run(spin.call({"way": "quick"}))
    assert len(result.text) <= 16_000
    assert "of 50,000 characters left out" in result.text


def test_one_hanging_call_does_not_hold_up_the_others(no_workers):
    outcome = step(Hanging(), "sleep", "raise")
    assert [record.status for record in outcome.tool_records] == ["timeout", "error"]


def test_who_waits_for_a_worker_is_served_in_order():
    turns, order = tool_process._Turns(1), []

    def wait(name):
        with turns:
            order.append(name)

    with ThreadPoolExecutor(3) as threads:
        with turns:
            for count, name in enumerate("abc", start=1):
                threads.submit(wait, name)
                while len(turns._waiting) < count:
                    time.sleep(0.001)
        wait("late")
    assert order == ["a", "b", "c", "late"]


def test_bad_arguments_need_no_process(no_workers):
    result = asyncio.run(spin.call({"wya": "spin"}))
    assert result.status == "bad_arguments"
    assert descendants(os.getpid()) == no_workers


def test_arguments_that_cannot_be_sent_are_an_error(no_workers):
    function = tool_process.BlockingFunction(module="text_envs", name="spin", main_path=None)
    status, text = asyncio.run(
        tool_process.call_blocking(function, {"way": lambda: 0}, timeout_s=1.0, limit=100)
    )
    assert status == "error"
    assert "cannot be sent" in text


def test_a_function_that_cannot_be_found_is_an_error(no_workers):
    function = tool_process.BlockingFunction(module="no_such_module", name="f", main_path=None)
    status, text = asyncio.run(tool_process.call_blocking(function, {}, timeout_s=1.0, limit=100))
    assert (status, text) == ("error", "ModuleNotFoundError: No module named 'no_such_module'")


def _play_in_child(queue):
    env = Hanging()
    env.reset()
    queue.put((env.step(calls("raise"))[4], len(descendants(os.getpid()))))
    tool_process._shared_workers().close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_its_own_workers(no_workers):
    env = Hanging()
    env.reset()
    env.step(calls("raise"))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_play_in_child, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60) == ({"tool_calls": (("spin", "error"),)}, 1)
    child.join(30)
    assert env.step(calls("raise"))[4] == {"tool_calls": (("spin", "error"),)}


SCRIPT = '''
from hyperrl.envs import TextEnv, reward, tool

@tool(timeout=5.0)
def shout(word: str) -> str:
    """Shout.

    Args:
        word: what.
    """
    return word.upper()

class Shouting(TextEnv):
    shout = shout
    def tasks(self): return [{}]
    def start(self): return "go"

def main():
    env = Shouting()
    env.reset()
    print(env.step('<tool_call>{"name": "shout", "arguments": {"word": "hey"}}</tool_call>')[0])
'''


def run_script(path, text):
    path.write_text(text)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_a_tool_of_the_main_script_is_found(tmp_path):
    guarded = SCRIPT + '\nif __name__ == "__main__":\n    main()\n'
    assert run_script(tmp_path / "play.py", guarded) == (0, "HEY", "")


def test_a_script_without_a_guard_is_told_so(tmp_path):
    code, out, _ = run_script(tmp_path / "play.py", SCRIPT + "\nmain()\n")
    assert code == 0
    assert 'put what it does under `if __name__ == "__main__":`' in out


def test_a_worker_leaves_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "play.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            sys.path.insert(0, sys.argv[1])
            from text_envs import Hanging
            from test_tool_process import calls, descendants
            env = Hanging()
            env.reset()
            env.step(calls("raise"))
            print(*descendants(os.getpid()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    command = [sys.executable, script, str(Path(__file__).parent)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    (worker,) = map(int, done.stdout.split())
    deadline = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_failures_of_tools_are_no_failures_of_the_episode(no_workers):
    async def play():
        env = Hanging()
        await env.areset()
        await env.astep(calls("die"))
        return await env.astep("done")

    outcome = asyncio.run(play())
    assert outcome.reward == 1.0
    assert not any(isinstance(term.error, Failure) for term in outcome.reward_terms)


def test_a_worker_that_ended_keeps_its_id_until_it_is_collected():
    """So that ending what it left behind never reaches a stranger."""
    worker = tool_process._Worker("the tool")
    worker._process.terminate()
    while worker.alive:
        time.sleep(0.01)
    os.kill(worker._process.pid, 0)
    assert worker.kill() == worker.kill() == -15
    with pytest.raises(ProcessLookupError):
        os.kill(worker._process.pid, 0)


def test_a_blocking_tool_may_set_the_status_itself():
    env = Hanging()
    env.reset()
    observation, *_, info = env.step(calls("error", "own", "nothing to say"))
    assert [status for _, status in info["tool_calls"]] == ["error", "own", "error"]
    said = [message["content"] for message in observation.messages]
    assert said[:2] == ["Error: as it says itself"] * 2
    assert "the tool returned a tuple_iterator; it must return a text or plain data" in said[2]
    env.close()
