from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading

import pytest
from text_envs import Guess, Slow, Sums

from hyperrl.envs import Action, driving
from hyperrl.envs.tools import tool
from hyperrl.errors import EnvError
from hyperrl.sampling import ToolCall


def waits(*names):
    calls = [
        ToolCall(call_id=str(i), name=name, arguments={"key": str(i)} if name == "wait" else {}, raw="{}")
        for i, name in enumerate(names)
    ]
    return Action("...", tool_calls=calls)


def test_an_instance_keeps_the_face_of_its_first_reset():
    async def use_async(env):
        await env.areset()

    env = Sums()
    env.reset()
    with pytest.raises(
        EnvError, match="through its sync face and keeps it; make another instance for areset"
    ):
        asyncio.run(use_async(env))
    with pytest.raises(EnvError, match="sync face"):
        asyncio.run(env.astep("x"))
    other = Sums()
    asyncio.run(use_async(other))
    with pytest.raises(
        EnvError, match="through its async face and keeps it; make another instance for reset"
    ):
        other.reset()
    with pytest.raises(EnvError, match="async face"):
        other.step("x")


@pytest.mark.parametrize("cls", [Sums, Guess, Slow])
def test_both_faces_play_the_same_episode(cls):
    async def play():
        env = cls()
        return [await env.areset(seed=3), *[await env.astep(text) for text in ("x",)]]

    env = cls()
    observation, info = env.reset(seed=3)
    first, second = asyncio.run(play())
    assert (observation, observation.messages, info) == (
        first.observation,
        first.observation.messages,
        first.info,
    )
    assert env.step("x") == (second.observation, second.reward, second.terminated, False, second.info)


def test_plain_functions_need_no_loop_and_no_thread():
    before = threading.active_count()
    env = Sums()
    env.reset(seed=0)
    env.step("x")
    assert threading.active_count() == before


def test_the_plain_face_works_inside_a_running_loop():
    async def inside():
        env, slow = Sums(), Slow()
        env.reset()
        slow.reset()
        return env.step("x")[2], slow.step(waits("wait", "wait"))[0]

    assert asyncio.run(inside()) == (True, "waited for 0\n\nwaited for 1")


def test_async_calls_of_one_turn_overlap_and_keep_their_order():
    env = Slow()
    env.reset()
    observation = env.step(waits("wait", "forever", "unknown", "wait", "wait"))[0]
    assert [m["tool_call_id"] for m in observation.messages] == list("01234")
    assert [m["content"].split()[0] for m in observation.messages] == [
        "waited",
        "Error:",
        "Error:",
        "waited",
        "waited",
    ]
    assert env.most == 3


def test_one_instance_can_be_played_on_several_loops():
    env = Slow()
    asyncio.run(env.areset())
    assert asyncio.run(env.astep(waits("wait"))).observation == "waited for 0"


def test_two_steps_at_once_are_refused():
    async def both():
        env = Slow()
        await env.areset()
        return await asyncio.gather(env.astep(waits("wait")), env.astep("x"), return_exceptions=True)

    first, second = asyncio.run(both())
    assert first.observation == "waited for 0"
    assert "another step is running" in str(second)


def test_one_loop_serves_the_process():
    for _ in range(3):
        env = Slow()
        env.reset()
        env.step(waits("wait"))
    assert sum(thread.name == "hyperrl-envs" for thread in threading.enumerate()) == 1


class Nested(Slow):
    @tool
    async def nest(self) -> str:
        """Play another environment the wrong way."""
        Slow().reset()
        return "done"


def test_the_plain_face_inside_async_code_of_an_environment_is_refused():
    env = Nested()
    env.reset()
    assert "use areset and astep" in env.step(waits("nest"))[0]


def test_a_class_that_hides_a_wait_is_told_so():
    class Pause:
        def __await__(self):
            yield

    async def hidden():
        await Pause()

    with pytest.raises(EnvError, match="async def"):
        driving.drive_in_place(hidden())


def test_an_error_passes_through_the_loop():
    class Broken(Slow):
        async def start(self):
            raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"):
        Broken().reset()


def _play_in_child(env, queue):
    fresh = Slow()
    fresh.reset()
    queue.put([env.step(waits("wait"))[0], fresh.step(waits("wait"))[0]])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_loop():
    env = Slow()
    env.reset()
    env.step(waits("wait"))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_play_in_child, args=(env, queue))
    child.start()
    assert list(map(str, queue.get(timeout=30))) == ["waited for 0", "waited for 0"]
    child.join(30)
    assert child.exitcode == 0
    assert env.step(waits("wait"))[0] == "waited for 0"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_plain_fork_works_too():
    env = Slow()
    env.reset()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = int(env.step(waits("wait"))[0] != "waited for 0")
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert env.step(waits("wait"))[0] == "waited for 0"
