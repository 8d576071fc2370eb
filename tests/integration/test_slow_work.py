"""One slow tool or reward among a thousand episodes: the others end while it is still held."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playground import seat

from hyperrl.agents.rollout import EnvPool, EpisodePlan, RolloutLimits, RolloutSettings, play_groups
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs import TextEnv, reward, tool
from hyperrl.sampling import EpisodeKey, RequestKey
from hyperrl.trajectory import Trajectory

EPISODES = 1000
SLOW = EpisodeKey((0, EPISODES // 2), 0)
LONG_S = 60.0
"""Long after every test has ended: where the slow work stalls the others, it times out and is seen."""


@tool(timeout=LONG_S)
def read_pipe(path: str) -> str:
    """Wait until somebody writes into a pipe, blocking.

    Args:
        path: The pipe.
    """
    with open(path, "rb", buffering=0) as pipe:
        return pipe.read(100).decode()


class Holding(TextEnv):
    """Holds the tool or the reward of whoever asks for it until it is released."""

    released: asyncio.Event
    held = False

    read_pipe = read_pipe

    def tasks(self) -> Any:
        return [{"text": "go"}]

    def start(self, task: Any) -> str:
        return str(task["text"])

    @tool
    async def wait(self) -> str:
        """Wait until the test goes on, without blocking."""
        await Holding.released.wait()
        return "done"

    @reward(timeout=LONG_S)
    async def judged(self, answer: str) -> float:
        if answer == "judge me":
            await Holding.released.wait()
        return 1.0


def play_with_one_slow(script: list[str], release: Callable[[], object]) -> list[Trajectory]:
    """Play a thousand episodes, one by ``script``; release that one once all the others have ended."""
    ended: list[Trajectory] = []

    def say(_: str, key: RequestKey) -> str:
        return script[key.ordinal] if key.episode == SLOW else "done"

    def on_episode(trajectory: Trajectory) -> None:
        ended.append(trajectory)
        if len(ended) == EPISODES - 1:
            release()

    async def play() -> None:
        Holding.released = asyncio.Event()
        sampler = ScriptedSampler(seat(None).renderer, say)
        settings = RolloutSettings(
            run_id="run",
            run_seed=7,
            seats={"main": seat(sampler, max_tokens=500)},
            limits=RolloutLimits(max_turns=4),
        )
        plans = [EpisodePlan(key=EpisodeKey((0, i), 0), env_id="holding", task=0) for i in range(EPISODES)]
        with EnvPool(lambda *_: Holding()) as envs:
            await play_groups(plans, settings, envs=envs, on_episode=on_episode)

    asyncio.run(play())
    return ended


def release_holding() -> None:
    Holding.released.set()


def check_others_went_first(ended: list[Trajectory]) -> None:
    assert len(ended) == EPISODES
    assert [trajectory.reward for trajectory in ended] == [1.0] * EPISODES
    assert EpisodeKey(ended[-1].group_id, ended[-1].sample_index) == SLOW


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the tool waits on a named pipe")
def test_a_blocking_tool_holds_up_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # the tool's open does not wait for a writer, but its read does
    try:
        script = [call("read_pipe", f'{{"path": "{pipe}"}}'), "done"]
        ended = play_with_one_slow(script, lambda: os.write(end, b"released"))
    finally:
        os.close(end)
    check_others_went_first(ended)
    (record,) = ended[-1].events[0].tool_calls
    assert (record.status, record.result) == ("ok", "released")


def test_an_async_tool_holds_up_nobody() -> None:
    ended = play_with_one_slow([call("wait"), "done"], release_holding)
    check_others_went_first(ended)
    assert [record.status for record in ended[-1].events[0].tool_calls] == ["ok"]


def test_a_slow_reward_holds_up_nobody() -> None:
    ended = play_with_one_slow(["judge me"], release_holding)
    check_others_went_first(ended)
