"""What an episode opens is closed when it ends, however it ends; tools may come with the episode."""

import asyncio
import contextlib
import copy

import pytest

from hyperrl.envs import TextEnv, reward, tool
from hyperrl.envs.tools import Tool, ToolResult
from hyperrl.errors import EnvError, ToolServerError

CALL = '<tool_call>{{"name": "{}", "arguments": {{}}}}</tool_call>'


class Diary(TextEnv):
    """Notes what it opens and closes; fails where the task says so."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.log = []

    def tasks(self):
        return [{"fail": where} for where in ("", "start", "reply", "closing")]

    @contextlib.contextmanager
    def _page(self, name):
        self.log.append(f"open {name}")
        try:
            yield name
        finally:
            self.log.append(f"close {name}")

    def start(self, task):
        self.resources.enter_context(self._page("first"))
        self.page = self.resources.enter_context(self._page("second"))
        if task["fail"] == "closing":
            self.resources.callback(lambda: 1 / 0)
        if task["fail"] == "start":
            raise RuntimeError("no ink")
        return "Dear diary"

    def reply(self, task, answer):
        if task["fail"] == "reply":
            raise RuntimeError("torn")
        return None if answer == "end" else "go on"

    @reward
    def written(self):
        self.log.append("reward")
        return 1.0


CLOSED = ["close second", "close first"]
OPENED = ["open first", "open second"]


def begin(task=0):
    env = Diary()
    env.reset(options={"task": task})
    assert env.log == OPENED
    env.log.clear()
    return env


def test_resources_are_closed_after_the_rewards_last_opened_first():
    env = begin()
    env.step("more")
    assert env.log == []
    assert env.step("end")[1] == 1.0
    assert env.log == ["reward", *CLOSED]
    with pytest.raises(EnvError, match="the episode has ended"):
        _ = env.resources


def test_a_reset_and_close_close_what_the_episode_left_open():
    env = begin()
    env.reset(options={"task": 0})
    assert env.log == [*CLOSED, *OPENED]
    env.close()
    env.close()
    assert env.log == [*CLOSED, *OPENED, *CLOSED]


def test_a_failing_start_or_reply_closes_at_once():
    env = Diary()
    with pytest.raises(RuntimeError, match="no ink"):
        env.reset(options={"task": 1})
    assert env.log == [*OPENED, *CLOSED]
    env = begin(task=2)
    with pytest.raises(RuntimeError, match="torn"):
        env.step("more")
    assert env.log == CLOSED


def test_a_failing_clean_up_is_logged_and_leaves_the_reward(caplog):
    env = begin(task=3)
    assert env.step("end")[1:3] == (1.0, True)
    assert env.log == ["reward", *CLOSED]
    assert "closing what task 3 had opened failed" in caplog.text


def test_there_is_nothing_to_open_before_a_reset():
    with pytest.raises(EnvError, match="reset it first"):
        _ = Diary().resources


def test_an_episode_that_holds_something_open_cannot_be_copied():
    env = begin()
    with pytest.raises(EnvError, match="copy it before reset"):
        copy.deepcopy(env)
    env.step("end")
    copy.deepcopy(env)


class Waiting(Diary):
    """The same with an async resource, and a tool that comes with it."""

    @contextlib.asynccontextmanager
    async def _door(self):
        self.log.append("open door")
        try:
            yield
        finally:
            await asyncio.sleep(0.001)
            self.log.append("close door")

    async def start(self, task):
        await self.resources.enter_async_context(self._door())
        self.knocks = 0
        return "knock"

    def offered_tools(self):
        async def knock():
            """Knock."""
            self.knocks += 1
            return f"{self.knocks}"

        async def wait():
            """Wait for the door."""
            await asyncio.sleep(60)

        return [*super().offered_tools(), Tool(knock), Tool(wait)]


def test_async_resources_on_both_faces():
    env = Waiting()
    env.reset(options={"task": 0})
    assert env.step(CALL.format("knock"))[0] == "1"
    env.step("end")
    assert env.log == ["open door", "reward", "close door"]
    env.reset()
    env.close()
    assert env.log[-2:] == ["open door", "close door"]

    async def play():
        env = Waiting()
        await env.areset(options={"task": 0})
        with pytest.raises(EnvError, match="only async code can close"):
            env.close()
        await env.ascore()
        assert env.log == ["open door", "reward", "close door"]
        await env.areset()
        await env.aclose_episode()
        await env.aclose_episode()
        assert env.log[-1] == "close door"
        env.close()

    asyncio.run(play())


def test_a_cancelled_step_closes():
    async def play():
        env = Waiting()
        await env.areset(options={"task": 0})
        step = asyncio.create_task(env.astep(CALL.format("wait")))
        await asyncio.sleep(0.01)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        return env.log

    assert asyncio.run(play()) == ["open door", "close door"]


def test_a_step_that_a_reset_overtook_leaves_the_new_episode_alone():
    async def play():
        env = Waiting()
        await env.areset(options={"task": 0})
        step = asyncio.create_task(env.astep(CALL.format("wait")))
        await asyncio.sleep(0.01)
        await env.areset(options={"task": 0})
        step.cancel()
        await asyncio.wait([step])
        log = list(env.log)
        await env.aclose_episode()
        return log

    assert asyncio.run(play()) == ["open door", "close door", "open door"]


def test_tools_of_an_episode_need_names_of_their_own():
    class Twice(Waiting):
        @tool
        def knock(self) -> str:
            """Knock."""
            return ""

    env = Twice()
    with pytest.raises(EnvError, match="two tools named 'knock'"):
        env.reset()
    assert env.log == ["open door", "close door"]


class Vault(TextEnv):
    """One tool says its own status, another finds its server gone."""

    def tasks(self):
        return [{}]

    def start(self):
        self.cancelled = False
        return "open it"

    @tool
    async def locked(self) -> ToolResult:
        """Try."""
        return ToolResult(status="locked", text="it is locked")

    @tool
    async def gone(self) -> str:
        """Ask the bank."""
        raise ToolServerError("the bank is gone")

    @tool
    async def slow(self) -> str:
        """Wait for the bank."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return ""


def test_a_tool_may_say_its_own_status():
    env = Vault()
    env.reset()
    observation, _, _, _, info = env.step(CALL.format("locked"))
    assert (observation, info["tool_calls"]) == ("Error: it is locked", (("locked", "locked"),))


def test_a_server_that_is_gone_fails_the_step_and_cancels_the_other_calls():
    env = Vault()
    env.reset()
    with pytest.raises(ToolServerError, match="the bank is gone"):
        env.step(CALL.format("slow") + CALL.format("gone"))
    assert env.cancelled
