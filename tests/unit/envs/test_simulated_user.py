"""Simulated users: scripted, and played by a model over an endpoint."""

import asyncio

import pytest
from scripted_server import ScriptedServer, chat_answer

from hyperrl.envs import Endpoint, ModelUser, ScriptedUser, TextEnv, reward, tool
from hyperrl.envs.simulated_user import STOP_MARK, swap_roles
from hyperrl.errors import ConfigError, SimulatedUserError

CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


def test_the_user_sees_the_talk_with_the_roles_swapped_and_nothing_else():
    talk = [
        {"role": "system", "content": "secret rules"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look"}}]},
        {"role": "tool", "content": "secret result"},
        {"role": "assistant", "content": f"<think>secret thought</think>Let me see. {CALL}"},
        {"role": "tool", "content": "another"},
        {"role": "assistant", "content": "Here it is."},
        {"role": "user", "content": "Thanks"},
    ]
    assert swap_roles(talk) == [
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Let me see.\n\nHere it is."},
        {"role": "assistant", "content": "Thanks"},
    ]


def test_lines_are_said_in_order_until_they_are_over():
    user = ScriptedUser(["a", "b"])
    assert [user.reply([]) for _ in range(4)] == ["a", "b", None, None]
    assert (user.said, user.ended_by) == (2, "stop")


def test_a_function_hears_the_agent_and_ends_the_talk_by_the_mark():
    def echo(talk):
        return f"you said {talk[-1]['content']}" if len(talk) < 2 else f"bye {STOP_MARK}"

    user = ScriptedUser(echo)
    assert user.reply([{"role": "assistant", "content": "hi"}]) == "you said hi"
    two = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert (user.reply(two), user.ended_by) == (None, "stop")


def test_a_talk_is_bounded():
    user = ScriptedUser(lambda talk: "more", max_turns=2)
    assert [user.reply([]) for _ in range(3)] == ["more", "more", None]
    assert user.ended_by == "turns"


@pytest.mark.parametrize("kwargs", [{"stop": " "}, {"max_turns": 0}])
def test_users_that_could_not_end_are_refused(kwargs):
    with pytest.raises(ConfigError, match="must be"):
        ScriptedUser([], **kwargs)


class Chat(TextEnv):
    """A talk with a model as the user; the agent has a tool that the user must not see."""

    system_prompt = "The password is swordfish."

    def __init__(self, *, endpoint, max_turns=30, **kwargs):
        super().__init__(**kwargs)
        self.endpoint, self.max_turns = endpoint, max_turns

    def tasks(self):
        return [{"persona": "You want to know the time."}]

    async def start(self, task):
        self.user = ModelUser(
            self.endpoint,
            model="tiny",
            instructions=task["persona"],
            max_turns=self.max_turns,
            temperature=0.5,
        )
        return await self.user.reply([])

    async def reply(self, messages):
        return await self.user.reply(messages)

    @tool
    def look(self) -> str:
        """Look at the clock."""
        return "a quarter past nine"

    @reward
    def helped(self):
        return self.user.ended_by == "stop"


def talk(answers, *actions, **kwargs):
    """Play; return the last outcome and what the user's model was sent."""
    said = iter(answers)

    async def run(url):
        async with Endpoint(url, retries=0) as endpoint:
            env = Chat(endpoint=endpoint, **kwargs)
            outcome = await env.areset()
            for action in actions:
                outcome = await env.astep(action)
            return outcome

    with ScriptedServer(lambda path, body: (200, chat_answer(next(said)))) as server:
        return asyncio.run(run(server.url)), [body for _, body, _ in server.requests]


def test_a_model_plays_the_user():
    outcome, requests = talk(
        ["What time is it?", "<think>nice</think>Thank you!", STOP_MARK],
        f"<think>let me look</think>{CALL}",
        "<think>hm</think>It is 9:15.",
        "You are welcome.",
    )
    assert (outcome.terminated, outcome.reward) == (True, 1.0)
    first, second, third = requests
    assert first["model"] == "tiny"
    assert first["temperature"] == 0.5
    assert "tools" not in first
    system, greeting = first["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("You want to know the time.")
    assert STOP_MARK in system["content"]
    assert greeting == {"role": "user", "content": "Hello, how can I help you?"}
    assert second["messages"][2:] == [
        {"role": "assistant", "content": "What time is it?"},
        {"role": "user", "content": "It is 9:15."},
    ]
    assert third["messages"][-2:] == [
        {"role": "assistant", "content": "Thank you!"},
        {"role": "user", "content": "You are welcome."},
    ]
    assert not any(word in str(requests) for word in ("swordfish", "quarter", "let me look", "tool_call"))


def test_a_model_that_never_ends_is_ended():
    outcome, requests = talk(["one", "two", "three"], "a", "b", max_turns=2)
    assert (outcome.terminated, outcome.reward) == (True, 0.0)
    assert len(requests) == 2


def test_a_user_that_says_nothing_or_cannot_be_reached_fails_the_step():
    with pytest.raises(SimulatedUserError, match="'tiny' said nothing"):
        talk(["hello", "<think>hm"], "a")

    async def unreachable():
        async with Endpoint("http://127.0.0.1:9/v1", retries=0) as endpoint:
            await Chat(endpoint=endpoint).areset()

    with pytest.raises(SimulatedUserError, match="did not answer"):
        asyncio.run(unreachable())
