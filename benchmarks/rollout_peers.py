"""The echo task of bench_rollout.py as other projects play it, where they are installed.

Each entry of ``PEERS`` imports its project and returns a function of (episodes, turns) that plays the task
once, all episodes at the same time where the project can, and returns CPU seconds.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["PEERS", "Peer", "PeerMissingError"]

Peer = Callable[[int, int], float]
SAID = "ok, going on"


class PeerMissingError(Exception):
    """Why a project cannot be measured here."""


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PeerMissingError(f"not installed ({error})") from error


def _timed(episodes: int, play_one: Callable[[], Coroutine[Any, Any, None]]) -> float:
    async def play_all() -> None:
        await asyncio.gather(*[play_one() for _ in range(episodes)])

    started = time.process_time()
    asyncio.run(play_all())
    return time.process_time() - started


def make_skyrl_gym() -> Peer:
    """skyrl-gym: a class per episode and its plain loop; it has no rollout of its own."""
    core = _import("skyrl_gym.envs.base_text_env")

    class Echo(core.BaseTextEnv):  # type: ignore[name-defined, misc]
        def __init__(self, turns: int) -> None:
            super().__init__()
            self.max_turns = turns

        def step(self, action: str) -> Any:
            self.turns += 1
            done = self.turns == self.max_turns
            said = [] if done else [{"role": "user", "content": f"you said {action}"}]
            return core.BaseTextEnvStepOutput(
                observations=said, reward=float(done), done=done, metadata={}, postprocessed_action=None
            )

    def play(episodes: int, turns: int) -> float:
        started = time.process_time()
        for _ in range(episodes):
            env = Echo(turns)
            messages, _ = env.init([{"role": "user", "content": "go"}])
            done = False
            while not done:
                messages = [*messages, {"role": "assistant", "content": SAID}]
                out = env.step(SAID)
                messages += out["observations"]
                done = out["done"]
        return time.process_time() - started

    return play


def make_aviary() -> Peer:
    """aviary: concurrent episodes, one async tool call a step, which is how its environments are acted on."""
    core = _import("aviary.core")

    class Echo(core.Environment):  # type: ignore[name-defined, misc]
        def __init__(self, turns: int) -> None:
            self.turns = turns
            self.state: Any = 0

        async def reset(self) -> Any:
            self.state = 0

            async def say(text: str) -> str:
                """Say something.

                Args:
                    text: What to say.
                """
                return f"you said {text}"

            self.tools = [core.Tool.from_function(say)]
            return [core.Message(content="go")], self.tools

        async def step(self, action: Any) -> Any:
            self.state += 1
            done = self.state == self.turns
            return await self.exec_tool_calls(action), float(done), done, False

    async def play_one(turns: int) -> None:
        env = Echo(turns)
        _, tools = await env.reset()
        done = False
        while not done:
            await asyncio.sleep(0)
            call = core.ToolCall.from_tool(tools[0], SAID)
            _, _, done, _ = await env.step(core.ToolRequestMessage(tool_calls=[call]))

    return lambda episodes, turns: _timed(episodes, lambda: play_one(turns))


def _instant_client() -> Any:
    clients, types = _import("verifiers.clients"), _import("verifiers.types")

    class Instant(clients.Client):  # type: ignore[name-defined, misc]
        def setup_client(self, config: Any) -> Any:
            return config

        async def to_native_tool(self, tool: Any) -> Any:
            return tool

        async def to_native_prompt(self, messages: Any) -> Any:
            return messages, {}

        async def get_native_response(self, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(0)
            message = types.ResponseMessage(content=SAID, finish_reason="stop", is_truncated=False)
            return types.Response(id="x", created=0, model="instant", message=message)

        async def raise_from_native_response(self, response: Any) -> None:
            pass

        async def from_native_response(self, response: Any) -> Any:
            return response

        async def close(self) -> None:
            pass

    return Instant(object())


def make_verifiers() -> Peer:
    """verifiers up to 0.1: its multi-turn rollout with an instant client; later ones have none in process."""
    vf = _import("verifiers")
    if not hasattr(vf, "MultiTurnEnv"):
        raise PeerMissingError("this version has no MultiTurnEnv; it starts a process for each episode")
    datasets, client = _import("datasets"), _instant_client()
    logging.getLogger("verifiers").setLevel(logging.ERROR)

    class Echo(vf.MultiTurnEnv):  # type: ignore[name-defined, misc]
        async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:  # noqa: ARG002
            return [{"role": "user", "content": f"you said {messages[-1].content}"}]

    async def spoke(**_: Any) -> float:
        return 1.0

    row = {"prompt": [{"role": "user", "content": "go"}], "answer": "", "example_id": 0}

    def play(episodes: int, turns: int) -> float:
        data = datasets.Dataset.from_list([row])
        env = Echo(dataset=data, rubric=vf.Rubric(funcs=[spoke]), max_turns=turns)

        async def play_one() -> None:
            await env.run_rollout(dict(row), client, "instant", {})

        return _timed(min(episodes, 500), play_one) * episodes / min(episodes, 500)

    return play


PEERS: dict[str, Callable[[], Peer]] = {
    "skyrl-gym, plain loop": make_skyrl_gym,
    "aviary, one tool call a turn": make_aviary,
    "verifiers, multi-turn rollout": make_verifiers,
}
