"""An environment's sandbox: its tools use it, and trajectories say how strong it was."""

from __future__ import annotations

import asyncio
from typing import Any

import playground
import pytest
from playground import CountingPool, SpySampler, plans, seat, settings

from hyperrl.agents.rollout import play_episode
from hyperrl.envs import TextEnv, reward, tool
from hyperrl.envs.sandbox import LocalSandbox, MontySandbox

pytest.importorskip("pydantic_monty", reason="pydantic-monty is not installed")

CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(6 * 7)"}}</tool_call>'


class Runs(TextEnv):
    """Runs what it is given in the sandbox that it was told to use."""

    def __init__(self, *, kind: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind != "none":
            self.sandbox = {"limited": LocalSandbox, "isolated": MontySandbox}[kind]()

    def tasks(self) -> Any:
        return [{"question": "6 * 7?"}]

    def start(self, task: Any) -> str:
        return str(task["question"])

    @tool
    async def python(self, code: str) -> str:
        """Run code.

        Args:
            code: what to run.
        """
        return "nowhere" if self.sandbox is None else (await self.sandbox.run_python(code)).stdout

    @reward
    def right(self, answer: str) -> bool:
        return answer == "42"


@pytest.mark.parametrize(
    ("kind", "printed"), [("none", "nowhere"), ("limited", "42\n"), ("isolated", "42\n")]
)
def test_the_level_is_recorded(kind, printed, monkeypatch):
    monkeypatch.setitem(playground.ENVS, "Runs", Runs)
    sampler = SpySampler([CALL, "42"])
    shared = settings(sampler, seats={"main": seat(sampler, max_tokens=500)})
    with CountingPool() as envs:
        trajectory = asyncio.run(play_episode(plans("Runs", kind=kind)[0], shared, envs=envs))
    assert trajectory.sandbox_level == kind
    assert trajectory.events[0].tool_calls[0].result == printed
    assert trajectory.reward == 1.0
