"""What authors easily get wrong: it is said clearly, or it works after all, and it never scores 0."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
from typing import ClassVar

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

from hyperrl.envs import (
    Action,
    JsonlTaskset,
    ProceduralTaskset,
    Task,
    TextEnv,
    Unscored,
    make_env,
    reward,
    tool,
)
from hyperrl.errors import ConfigError, DataError, EnvError

LOOK, WAIT = (f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in ("look", "wait"))


class Plain(TextEnv):
    def tasks(self):
        return ProceduralTaskset(lambda rng: {"n": int(rng.integers(9))}, count=5, seed=0)

    def start(self, task):
        return f"Say {task['n']}"

    @tool
    def look(self) -> str:
        """Look at the number."""
        return str(self.task["n"])

    @reward
    def right(self, task, answer):
        return answer == str(task["n"])


class BrokenText(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def last(env, *actions):
    env.reset(seed=0)
    return [env.step(action) for action in actions][-1]


class Cancelled(Plain):
    @tool
    async def wait(self) -> str:
        """Wait for something that is cancelled."""
        raise asyncio.CancelledError

    @reward
    async def right(self):
        raise asyncio.CancelledError


def test_a_cancelled_error_of_a_tool_is_its_own():
    observation, *_, info = last(Cancelled(), WAIT + LOOK)
    assert observation.startswith("Error: what the tool waited for was cancelled\n\n")
    assert info["tool_calls"] == (("wait", "error"), ("look", "ok"))
    assert last(Cancelled(), WAIT)[4]["tool_calls"] == (("wait", "error"),)


def test_a_cancelled_error_of_a_reward_leaves_it_unscored():
    _, score, terminated, _, info = last(Cancelled(), "5")
    assert math.isnan(score)
    assert terminated
    assert info["unscored"]["right"].startswith("reward_error: CancelledError (test_author_slips.py, line ")


@pytest.mark.parametrize("step", [WAIT, WAIT + LOOK, "answer"])
def test_a_cancelled_step_stays_cancelled(step):
    class Slow(Plain):
        @tool
        async def wait(self) -> str:
            """Wait long."""
            await asyncio.sleep(60)
            return "never"

        @reward
        async def right(self):
            await asyncio.sleep(60)
            return 1

    async def play():
        env = Slow()
        await env.areset(seed=0)
        running = asyncio.create_task(env.astep(step))
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(play())


def test_a_step_that_outlives_its_episode_does_not_revive_the_next():
    class Slow(Plain):
        @tool
        async def wait(self) -> str:
            """Wait a little."""
            await asyncio.sleep(0.05)
            return "waited"

    async def play():
        env = Slow()
        await env.areset(seed=0)
        running = asyncio.create_task(env.astep(WAIT))
        await asyncio.sleep(0.01)
        await env.areset(seed=1)
        assert (await env.astep("5")).terminated
        assert (await running).observation == "waited"
        with pytest.raises(ResetNeeded):
            await env.astep("again")

    asyncio.run(play())


def test_an_exception_without_a_text_is_still_only_an_error():
    class Odd(Plain):
        @tool
        def look(self) -> str:
            """Look."""
            raise BrokenText

        @reward
        def right(self):
            raise BrokenText

    assert last(Odd(), LOOK)[0] == "Error: BrokenText"
    why = last(Odd(), "5")[4]["unscored"]["right"]
    assert why.startswith("reward_error: BrokenText (test_author_slips.py, line ")


def test_unscored_takes_an_exception_as_its_reason():
    class Judged(Plain):
        @reward
        def right(self):
            return Unscored(ValueError("no verdict"))

    env = Judged()
    env.reset(seed=0)
    assert env.step("5")[4]["unscored"] == {"right": "unscored: ValueError: no verdict"}


@pytest.mark.parametrize("score", [1e308, -1e31, 10**400])
def test_a_score_that_no_sum_can_hold_is_unscored(score):
    class Vast(Plain):
        @reward
        def right(self):
            return score

        @reward
        def also(self):
            return 1e308

    _, total, _, _, info = last(Vast(), "5")
    assert math.isnan(total)
    assert set(info["unscored"]) == {"right", "also"}
    assert info["unscored"]["also"].startswith("reward_too_large: it returned 1e+308; ")


def test_static_tools_and_rewards_are_offered_too():
    class Static(Plain):
        @staticmethod
        @tool
        def look() -> str:
            """Look."""
            return "above"

        @tool
        @staticmethod
        async def wait() -> str:
            """Wait."""
            return "below"

        @staticmethod
        @reward
        def right(answer):
            return answer == "5"

    assert [schema["function"]["name"] for schema in Static().tools] == ["look", "wait"]
    assert last(Static(), LOOK + WAIT)[0] == "above\n\nbelow"
    assert last(Static(), "5")[1] == 1


def test_a_hidden_coroutine_is_an_error_rather_than_a_result():
    class Wrapped(Plain):
        @tool
        def wait(self) -> object:
            """Wait, but declared with def."""
            return asyncio.sleep(0)

    observation = last(Wrapped(), WAIT)[0]
    assert (
        observation == "Error: TypeError: the tool returned a coroutine; it must be declared with async def"
    )


def test_an_init_that_forgets_its_parent_is_told_so():
    class Forgets(Plain):
        def __init__(self, size=3):
            self.size = size

    gymnasium.register("test/Forgets-v0", entry_point=Forgets)
    for use in (
        lambda: Forgets().reset(),
        lambda: Forgets().observation_space,
        lambda: Forgets().split,
        lambda: gymnasium.make("test/Forgets-v0"),
    ):
        with pytest.raises(EnvError, match=r"must take \*\*kwargs and first call super\(\).__init__"):
            use()
    assert not hasattr(Plain(), "anything_else")


@pytest.mark.parametrize("name", ["step", "close", "task", "split"])
def test_a_tool_cannot_hide_what_an_environment_needs(name):
    def other() -> str:
        """Do something."""
        return "done"

    with pytest.raises(EnvError, match=rf"Hides.{name} hides a part of TextEnv .* with name='{name}'"):
        type("Hides", (Plain,), {name: tool(other)})
    env = type("Keeps", (Plain,), {"other": tool(name=name)(other)})()
    assert [schema["function"]["name"] for schema in env.tools] == ["look", name]


def test_a_weight_of_no_reward_is_refused_with_the_nearest_name():
    class Weighted(Plain):
        reward_weights: ClassVar = {"rihgt": 0.5}

    with pytest.raises(
        ConfigError, match=r"names 'rihgt', but the rewards are \['right'\]. Did you mean 'ri"
    ):
        Weighted().reset(seed=0)


def test_no_messages_are_no_answer():
    class Mute(Plain):
        def reply(self):
            return []

    with pytest.raises(
        EnvError, match=r"Mute\.reply must return a str or a list of messages with a role, at least one; got"
    ):
        last(Mute(), "5")


def test_task_ids_are_text():
    assert Task(5, {}).task_id == "5"


def test_two_tasks_of_one_name_are_refused(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a"}\n{"id": 7}\n{"id": "a"}\n')
    with pytest.raises(DataError, match=r"rows 0 and 2 of .*tasks\.jsonl' have the same 'id', 'a'"):
        JsonlTaskset(path, id_column="id").index_of("7")


def test_an_action_that_is_no_text_does_not_end_the_episode():
    env = Plain()
    env.reset(seed=0)
    with pytest.raises(TypeError, match="an action is a str, got int"):
        env.step(5)
    assert env.step(str(env.task["n"]))[1] == 1


def test_what_an_environment_hands_out_is_not_its_own():
    env = Plain()
    observation, _ = env.reset(seed=0)
    observation.messages[0]["content"] = "changed"
    env.tools[0]["function"]["description"] = "changed"
    env.messages[0]["content"] = "changed"
    assert env.messages[0]["content"] == observation
    assert env.tools == Plain().tools
    assert env.tools[0]["function"]["description"] == "Look at the number."


def test_both_faces_cut_the_same_out_of_an_answer():
    class Untooled(Plain):
        look = None

    text = f"<think>hm</think>{LOOK}5"
    action = Action(text, content="5", tool_calls=())
    for said in (text, action):
        env = Untooled()
        env.reset(seed=0, options={"task": {"n": 5}})
        assert env.step(said)[1] == 1


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_an_environment_is_copied_in_mid_episode(again):
    env = Plain()
    env.reset(seed=0)
    twin = again(env)
    assert twin.step(LOOK)[0] == str(env.task["n"])
    assert twin.reset(seed=3)[0] == env.reset(seed=3)[0]


@pytest.mark.parametrize("arguments", [{}, {"mode": "calculator"}])
def test_an_environment_is_pickled_in_mid_episode(arguments):
    env = make_env("hyperrl/GSM8K-v0", **arguments)
    env.reset(seed=0, options={"task": 3})
    twin = pickle.loads(pickle.dumps(env))
    assert twin.tools == env.tools
    for action in [env.gold(env.task)] if not arguments else env.gold(env.task):
        results = [each.step(action)[:4] for each in (env, twin)]
        assert results[0] == results[1]
    assert results[0][1] == 1


def test_generated_tasks_do_not_keep_an_environment_from_being_pickled():
    env = make_env("hyperrl/SortDigits-v0")
    env.reset(seed=0)
    env._taskset = ProceduralTaskset(lambda rng: {}, count=1, seed=0)
    assert (
        pickle.loads(pickle.dumps(env)).reset(seed=1)[0] == make_env("hyperrl/SortDigits-v0").reset(seed=1)[0]
    )
