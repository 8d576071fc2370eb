from __future__ import annotations

import asyncio
import copy
import math
import pickle
import random
import re

import gymnasium
import pytest
import text_envs
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from text_envs import Desk, Guess, Sums, Unsure

from hyperrl.envs import Action, Observation, TextEnv, reward, tool
from hyperrl.envs.checker import odd_texts
from hyperrl.errors import ConfigError, EnvError, ToolDefinitionError
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import StopReason


def call(name, arguments, call_id="c1", status="ok", repairs=()):
    return ToolCall(
        call_id=call_id,
        name=name,
        arguments=arguments,
        raw=f"{name} {arguments}",
        status=status,
        repairs=repairs,
    )


def played(env, *actions, options=None, seed=0):
    async def play():
        first = await env.areset(seed=seed, options=options)
        return [first, *[await env.astep(action) for action in actions]]

    return asyncio.run(play())


def test_a_single_turn_terminates_with_the_rewards():
    env = Sums()
    observation, info = env.reset(seed=3, options={"task": 7})
    assert type(observation) is Observation
    assert observation == f"Answer with a number.\n\n{env.task['question']}"
    assert [m["role"] for m in observation.messages] == ["system", "user"]
    assert info == {"task_id": "1-7"}
    observation, score, terminated, truncated, info = env.step(f"<think>hm</think>\n\n{env.task['answer']}")
    assert (observation, observation.messages) == ("", ())
    assert (score, terminated, truncated) == (1.0, True, False)
    assert info == {"reward_terms": {"correct": 1.0}}
    env.reset(seed=3)
    assert env.step("wrong")[1] == 0.0


def test_the_end_and_the_beginning_need_a_reset():
    env = Sums()
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset(seed=1)
    env.step("x")
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset()
    env.step("x")


def test_the_same_seed_is_the_same_episode():
    for env_id in text_envs.REGISTERED:
        episodes = []
        for _ in range(2):
            env = gymnasium.make(env_id).unwrapped
            episodes.append([env.reset(seed=11), env.step("5"), env.reset(), env.reset(seed=4)])
            if env.task.task_id == env.reset(seed=4, options={"task": env.task.task_id})[1]["task_id"]:
                episodes[-1].append(env.step("3"))
        assert episodes[0] == episodes[1]


def test_a_named_task_draws_the_same_numbers_as_a_drawn_one():
    env = Guess()
    env.reset(seed=5)
    secret, task_id = env.secret, env.task.task_id
    env.reset(seed=5, options={"task": task_id})
    assert env.secret == secret


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": 50}, "from 0 to 49"),
        ({"task": "1-5x"}, "no task has the id '1-5x'.*Did you mean '1-5"),
        ({"tsak": 1}, "no reset option 'tsak', only 'task'. Did you mean 'task'"),
    ],
)
def test_unknown_options_are_refused(options, said):
    env = Sums()
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=said):
        env.reset(options=options)
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_a_split_and_a_render_mode_must_exist():
    with pytest.raises(ConfigError, match=r"no split 'trian'.*Did you mean 'train'"):
        Sums(split="trian")
    with pytest.raises(ConfigError, match="'ansi'"):
        Sums(render_mode="human")
    assert Sums(split="test").reset(options={"task": 0})[1] == {"task_id": "2-0"}


def test_several_turns_through_reply():
    env = Guess()
    env.reset(seed=0, options={"task": 1})
    actions = env.gold(env.task)
    observation, score, terminated, _, info = env.step(actions[0])
    assert observation in ("too low", "too high")
    assert observation.messages == ({"role": "user", "content": str(observation)},)
    assert (score, terminated, info) == (0.0, False, {})
    _, score, terminated, _, info = env.step(actions[1])
    assert (score, terminated) == (1.0, True)
    assert info == {"reward_terms": {"solved": 1.0, "tries_needed": 2.0}}


def test_tool_calls_become_tool_messages():
    env = Desk()
    env.reset()
    action = Action(
        "...", tool_calls=[call("stock", {"item": "pear"}, "a"), call("stock", {"item": "apple"}, "b")]
    )
    observation, score, terminated, _, info = env.step(action)
    assert observation == "5\n\n3"
    assert observation.messages == (
        {"role": "tool", "tool_call_id": "a", "name": "stock", "content": "5"},
        {"role": "tool", "tool_call_id": "b", "name": "stock", "content": "3"},
    )
    assert (score, terminated) == (0.0, False)
    assert info == {"tool_calls": (("stock", "ok"), ("stock", "ok"))}
    assert env.step("5")[1] == 1.0


def test_calls_are_read_out_of_plain_text():
    env = Desk()
    env.reset()
    text = (
        '<think><tool_call>{"name": "stock", "arguments": {"item": "fig"}}</tool_call></think>'
        'Looking. <tool_call>{"name": "stock", "arguments": {"item": "pear", "warehouse": "2"}}</tool_call>'
    )
    observation = env.step(text)[0]
    assert observation == "10"
    assert env.asked == ["pear"]
    assistant = env.messages[1]
    assert assistant["content"] == "Looking."
    assert assistant["tool_calls"][0]["function"]["name"] == "stock"
    assert assistant["tool_calls"][0]["id"] == observation.messages[0]["tool_call_id"]


def test_a_bad_call_is_answered_and_later_calls_still_run():
    env = Desk()
    calls = [
        call("stock", None, "a", status="invalid_json"),
        call("stcok", {}, "b"),
        call("", None, "c", status="missing_name"),
        call("stock", {"items": 1}, "d"),
        call("stock", {"item": "fig"}, "e"),
        call("stock", {"item": "x" * 200_000}, "f"),
        call("stock", {"item": "pear"}, "g", repairs=("trailing_comma",)),
    ]
    _, outcome = played(env, Action("...", tool_calls=calls))
    records = outcome.tool_records
    assert [r.status for r in records] == [
        "invalid_json",
        "unknown_tool",
        "missing_name",
        "bad_arguments",
        "error",
        "too_long",
        "ok",
    ]
    assert [r.call_id for r in records] == list("abcdefg")
    assert "Did you mean 'stock'? Tools: stock, submit." in records[1].result
    assert "KeyError" in records[4].result
    assert records[6].result == "5"
    assert records[6].repairs == ("trailing_comma",)
    assert records[6].arguments == calls[6].raw
    assert [m["tool_call_id"] for m in outcome.observation.messages] == list("abcdefg")
    assert env.asked == ["fig", "pear"]
    assert outcome.kind == "tools"
    assert not outcome.terminated


@pytest.mark.parametrize("stop_reason", [StopReason.LENGTH, StopReason.ABORT])
@pytest.mark.parametrize("parsed", [True, False])
def test_calls_of_an_action_that_was_cut_are_never_run(stop_reason, parsed):
    env = Desk()
    text = '<tool_call>{"name": "stock", "arguments": {"item": "pear"}}</tool_call>5'
    action = Action(
        text, tool_calls=[call("stock", {"item": "pear"})] if parsed else None, stop_reason=stop_reason
    )
    _, outcome = played(env, action)
    assert outcome.kind == "final"
    assert outcome.terminated
    assert [r.status for r in outcome.tool_records] == ["not_run"]
    assert env.asked == []
    assert outcome.reward == 1.0


def test_an_action_that_was_cut_is_the_answer_where_there_is_a_reply_too():
    env = Guess()
    _, outcome = played(env, Action("77", stop_reason=StopReason.LENGTH), options={"task": {"high": 5}})
    assert outcome.terminated
    assert outcome.reward_terms[0].score == 0.0


def test_a_tool_may_end_the_episode():
    env = Desk()
    env.reset()
    action = Action("...", tool_calls=[call("submit", {"answer": 5})])
    observation, score, terminated, _, info = env.step(action)
    assert (observation, score, terminated) == ("Thank you.", 1.0, True)
    assert info["tool_calls"] == (("submit", "ok"),)


def test_a_reply_may_end_the_episode_with_a_last_word():
    class Farewell(Sums):
        def reply(self):
            self.end_episode()
            return "bye"

    env = Farewell()
    env.reset()
    assert env.step("x")[0] == "bye"
    assert env.messages[-1] == {"role": "user", "content": "bye"}
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_tools_are_offered_by_choice():
    class Shy(Desk):
        def offered_tools(self):
            return ["stock"] if self.split == "train" else []

    env = Shy()
    assert [t["function"]["name"] for t in env.tools] == ["stock"]
    env.reset()
    text = '<tool_call>{"name": "submit", "arguments": {"answer": "5"}}</tool_call>'
    assert env.step(text)[4] == {"tool_calls": (("submit", "unknown_tool"),)}
    quiet = Shy(split="test")
    assert quiet.tools == ()
    quiet.reset()
    assert quiet.step(text)[2] is True

    class Wrong(Desk):
        def offered_tools(self):
            return ["stcok"]

    with pytest.raises(EnvError, match=r"names 'stcok'.*Did you mean 'stock'"):
        Wrong().reset()


def test_two_tools_need_two_names():
    with pytest.raises(ToolDefinitionError, match="defines 'stock' twice"):

        class Twice(Desk):
            @tool(name="stock")
            def other(self) -> str:
                """Look."""
                return ""


def test_unscored_is_not_a_number_and_says_why():
    env = Unsure()
    env.reset()
    _, score, terminated, truncated, info = env.step("x")
    assert math.isnan(score)
    assert (terminated, truncated) == (True, False)
    assert info["reward_terms"] == {"fine/format": 1.0, "fine/length": 0.5}
    assert info["unscored"].pop("nothing").startswith("reward_error: it returned None")
    place = re.compile(r"text_envs\.py, line \d+")
    assert {name: place.sub("place", why) for name, why in info["unscored"].items()} == {
        "raises": "reward_error: ZeroDivisionError: broken grader (place, in raises)",
        "unknown": "judge_failure: nobody knows",
        "not_finite": "reward_not_finite: it returned inf",
        "leaves": "reward_error: SystemExit: 1 (place, in leaves)",
        "late": "reward_timeout: TimeoutError (its timeout is 0.01 s)",
    }


def test_a_term_without_weight_is_asked_for_nothing():
    class Watch(Sums):
        @reward(weight=0)
        def broken(self):
            raise RuntimeError

    env = Watch()
    env.reset()
    _, score, _, _, info = env.step("x")
    assert score == 0.0
    assert "unscored" not in info


def test_an_environment_without_rewards_is_unscored():
    class Mute(Sums):
        correct = None

    env = Mute()
    env.reset()
    _, score, _, _, info = env.step("x")
    assert math.isnan(score)
    assert info == {"unscored": {"": "the environment has no reward of a single episode"}}


def test_an_episode_that_is_cut_can_be_scored():
    async def play():
        env = Guess()
        await env.areset(seed=0)
        with pytest.raises(EnvError, match="keeps it"):
            env.step("x")
        await env.astep("no number")
        terms = await env.ascore()
        with pytest.raises(ResetNeeded):
            await env.astep("x")
        with pytest.raises(ResetNeeded):
            await env.ascore()
        return terms

    assert [(t.name, t.score) for t in asyncio.run(play())] == [("solved", 0.0), ("tries_needed", 1.0)]


def test_an_error_of_the_author_reaches_the_driver_and_ends_the_episode():
    class Broken(Sums):
        def reply(self):
            raise RuntimeError("author's mistake")

    env = Broken()
    env.reset()
    with pytest.raises(RuntimeError, match="author's mistake"):
        env.step("x")
    with pytest.raises(ResetNeeded):
        env.step("x")


@pytest.mark.parametrize("said", [5, None, [{"content": "no role"}], ["text"], b"bytes"])
def test_start_must_return_text_or_messages(said):
    class Odd(Sums):
        def start(self):
            return said

    with pytest.raises(EnvError, match=r"Odd\.start must return a str or a list of messages"):
        Odd().reset()


def test_start_may_return_messages_and_nothing_is_shared():
    shared = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    class Chat(Sums):
        system_prompt = None

        def start(self):
            return shared

    env = Chat()
    first, second = env.reset()[0], env.reset()[0]
    assert first.messages == second.messages == tuple(shared)
    assert first.messages[0] is not second.messages[0]
    assert first.messages[0] is not shared[0]


def test_an_abstract_class_of_ones_own_may_have_no_start():
    class Half(TextEnv):
        def tasks(self):
            return [{}]

    class Whole(Half):
        def start(self):
            return "go"

    with pytest.raises(TypeError, match="abstract"):
        Half()
    assert Whole().reset()[0] == "go"


def test_start_may_not_ask_for_an_answer():
    with pytest.raises(EnvError, match=r"Early\.start asks for 'answer', which cannot be given"):

        class Early(Sums):
            def start(self, answer):
                return answer


def test_tasks_must_be_tasks():
    class None_(Sums):
        def tasks(self):
            return None

    class Empty(Sums):
        def tasks(self):
            return []

    with pytest.raises(EnvError, match="must return a Taskset"):
        None_().reset()
    with pytest.raises(EnvError, match="has no task"):
        Empty().reset()
    with pytest.raises(EnvError, match="reset it first"):
        _ = Sums().task


def test_the_transcript_is_rendered():
    env = Desk(render_mode="ansi")
    assert env.render() == ""
    env.reset()
    env.step('<tool_call>{"name": "stock", "arguments": {"item": "pear"}}</tool_call>')
    env.step("5")
    assert env.render() == (
        '[user] How many pears?\n\n[assistant]\n  -> stock {"item": "pear"}\n\n[tool] 5\n\n[assistant] 5'
    )
    assert Desk().render() is None


@pytest.mark.parametrize("env_id", sorted(text_envs.REGISTERED))
def test_a_thousand_odd_texts_never_make_step_raise(env_id):
    env = gymnasium.make(env_id).unwrapped
    texts = [
        *odd_texts(995),
        "\ud800" * 1000,
        "é" * 1_000_000,
        "<tool_call>" * 1000,
        "\x00" * 10_000,
        "🎈" * 1_000_000,
    ]
    assert len(texts) == 1000
    random.Random(0).shuffle(texts)
    terminated = True
    for text in texts:
        if terminated:
            env.reset(seed=1)
        observation, _, terminated, truncated, info = env.step(text)
        assert observation in env.observation_space
        assert isinstance(info, dict)
        assert truncated is False


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=3))
def test_no_text_makes_a_tool_environment_raise(texts):
    env = Desk()
    env.reset(seed=0)
    for text in texts:
        if env.step(text)[2]:
            env.reset()
        pickle.loads(pickle.dumps(env.messages))


def test_an_action_must_be_a_text():
    env = Sums()
    env.reset()
    with pytest.raises(TypeError, match="an action is a str, got int"):
        env.step(5)


def test_an_environment_can_be_copied_in_the_middle_of_an_episode():
    env = Guess()
    env.reset(seed=0, options={"task": 1})
    env.step("0")
    twin = copy.deepcopy(env)
    assert twin.step("0") == env.step("0")
    assert twin.step(str(env.secret))[1] == 1.0
