"""CPU time that the framework itself spends per turn: an echo environment and a sampler that costs nothing.

    python benchmarks/rollout_overhead.py [episodes]

Every episode of ten turns runs concurrently in one loop, with full token bookkeeping and a sealed
trajectory at its end. The second number leaves the garbage collector out: it walks over whatever the
process keeps alive, so it depends on what is done with the trajectories.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

from hyperrl.agents import (
    ByteRenderer,
    EnvPool,
    EpisodePlan,
    PolicySeat,
    RolloutSettings,
    play_groups,
)
from hyperrl.envs import TextEnv, reward
from hyperrl.sampling import Completion, EpisodeKey, SamplingParams
from hyperrl.trajectory import Group, StopReason

TURNS = 10
GROUP_SIZE = 8


class Echo(TextEnv):
    """Answers with what was said until the last turn."""

    def tasks(self) -> Any:
        return [{"text": "go"}]

    def start(self, task: Any) -> str:
        return str(task["text"])

    def reply(self, action: str, turn: int) -> str | None:
        return None if turn + 1 == TURNS else f"you said {action}"

    @reward
    def spoke(self) -> float:
        return 1.0


class InstantSampler:
    """Always answers the same, but lets the loop go on, as a sampler does."""

    policy_version = 0

    def __init__(self) -> None:
        ids = ByteRenderer().encode_action("ok, going on")
        self._completion = Completion(
            action_ids=ids,
            logprobs=[0.0] * len(ids),
            policy_versions=[0] * len(ids),
            stop_reason=StopReason.STOP,
        )

    async def generate(self, *_: Any, **__: Any) -> Completion:
        await asyncio.sleep(0)
        return self._completion


def measure(episodes: int, *, collect: bool) -> float:
    """Return CPU microseconds per turn."""
    seat = PolicySeat(sampler=InstantSampler(), renderer=ByteRenderer(), params=SamplingParams(max_tokens=64))
    settings = RolloutSettings(run_id="benchmark", run_seed=0, seats={"main": seat})
    keys = [EpisodeKey((0, i // GROUP_SIZE), i % GROUP_SIZE) for i in range(episodes)]
    plans = [EpisodePlan(key=key, env_id="echo", task=0) for key in keys]
    kept: list[Group] = []

    async def play() -> None:
        kept.extend(await play_groups(plans, settings, envs=envs))

    gc.collect()
    if not collect:
        gc.disable()
    with EnvPool(lambda *_: Echo()) as envs:
        started = time.process_time()
        asyncio.run(play())
        spent = time.process_time() - started
    gc.enable()
    turns = sum(len(trajectory.turns) for group in kept for trajectory in group)
    return spent / turns * 1e6


def main() -> None:
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    measure(min(episodes, 100), collect=True)
    with_collector = measure(episodes, collect=True)
    without = measure(episodes, collect=False)
    print(f"{episodes} concurrent episodes of {TURNS} turns:")
    print(f"{with_collector:.0f} CPU us per turn, {without:.0f} without the garbage collector")


if __name__ == "__main__":
    main()
