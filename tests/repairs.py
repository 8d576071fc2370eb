"""A repair task in a small repository on disk, and a script of actions that solves it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyperrl.agents.recorder import PolicySeat
from hyperrl.agents.rollout import EnvPool, EpisodePlan, RolloutLimits, RolloutSettings, play_episode
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs import TextEnv, reward, tool
from hyperrl.harness.gateway import Gateway
from hyperrl.sampling import Completion, EpisodeKey, RequestKey, SamplingParams
from hyperrl.trajectory import Trajectory

BROKEN = "def add(a, b):\n    return a - b\n"
CHECK = "from calc import add; raise SystemExit(0 if add(2, 3) == 5 and add(-1, 1) == 0 else 1)"


class Repair(TextEnv):
    """``calc.py`` subtracts where it should add; ``run_tests`` tells."""

    system_prompt = "Mend the repository."

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asked = 0

    def tasks(self) -> Any:
        return [{"question": "calc.add is wrong. Mend it, then say done."}]

    def start(self, task: Any) -> str:
        self.workspace = Path(self.resources.enter_context(tempfile.TemporaryDirectory(prefix="repair-")))
        (self.workspace / "calc.py").write_text(BROKEN)
        self.asked = 0
        return str(task["question"])

    @tool
    def run_tests(self) -> str:
        """Run the tests of the repository."""
        self.asked += 1
        return "passed" if self._passes() else "FAILED: add(2, 3) should be 5"

    @reward
    def repaired(self) -> float:
        return float(self._passes())

    @reward(weight=0.5)
    def said_done(self, answer: str) -> float:
        return float(answer.strip() == "done")

    def _passes(self) -> bool:
        assert self.workspace is not None
        command = [sys.executable, "-c", CHECK]
        return subprocess.run(command, cwd=self.workspace, check=False, timeout=30).returncode == 0


class Question(TextEnv):
    """Has no tools, and is answered with 5."""

    def tasks(self) -> Any:
        return [{"question": "2 + 3?"}]

    def start(self, task: Any) -> str:
        return str(task["question"])

    @reward
    def right(self, answer: str) -> float:
        return float(answer.strip() == "5")


ENVS: dict[str, type[TextEnv]] = {"Repair": Repair, "Question": Question}


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def repair_script(shell: str, argument: str, tests: str) -> list[str]:
    """Return actions that repair it: two calls at once, a malformed one, an edit, a look, the answer."""
    mend = "sed -i s/-/+/ calc.py"
    return [
        "<think>\nFirst look.\n</think>\n\n" + call(shell, **{argument: "cat calc.py"}) + "\n" + call(tests),
        f'<tool_call>\n{{"name": "{shell}", "arguments": {{"{argument}": "ls",, }}\n</tool_call>',
        call(shell, **{argument: mend}),
        call(tests),
        "<think>\nIt passes.\n</think>\n\ndone",
    ]


class RecordingSampler(ScriptedSampler):
    """A scripted sampler that keeps every prompt and action; every token has a logprob of its own."""

    def __init__(self, renderer: Any, script: Any, **options: Any) -> None:
        super().__init__(renderer, script, policy_version=3, **options)
        self.prompts: dict[RequestKey, list[int]] = {}
        self.actions: dict[RequestKey, list[int]] = {}

    async def generate(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int, request_id: RequestKey
    ) -> Completion:
        drawn = await super().generate(prompt_ids, params, seed=seed, request_id=request_id)
        self.prompts[request_id], self.actions[request_id] = list(prompt_ids), list(drawn.action_ids)
        return Completion(
            action_ids=drawn.action_ids,
            logprobs=[-0.001 * (i + 1) for i in range(len(drawn.action_ids))],
            policy_versions=drawn.policy_versions,
            stop_reason=drawn.stop_reason,
        )


def check_every_token(trajectory: Trajectory, sampler: RecordingSampler) -> None:
    """Assert that every sampled token stands in the record once, behind exactly the prompt that drew it."""
    keys = sorted(key for key in sampler.prompts if key.sample_index == trajectory.sample_index)
    assert len(trajectory.turns) == len(keys)
    for index, (turn, key) in enumerate(zip(trajectory.turns, keys, strict=True)):
        assert turn.action_ids.tolist() == sampler.actions[key]
        assert trajectory.prompt_ids(index).tolist() == sampler.prompts[key]
        assert turn.behavior_logprobs is not None
        wanted = -0.001 * (np.arange(len(turn.action_ids), dtype=np.float32) + 1)
        np.testing.assert_allclose(turn.behavior_logprobs, wanted, rtol=1e-5)
        if turn.parent is not None:
            before = [*sampler.prompts[keys[turn.parent]], *sampler.actions[keys[turn.parent]]]
            assert sampler.prompts[key][: len(before)] == before


def settings_for(program: Any, sampler: Any, renderer: Any, **values: Any) -> RolloutSettings:
    params = SamplingParams(max_tokens=512)
    return RolloutSettings(
        run_id="run",
        run_seed=7,
        seats={"main": PolicySeat(sampler=sampler, renderer=renderer, params=params)},
        program=program,
        **{"limits": RolloutLimits(wall_clock_s=120), **values},
    )


def plans_for(env_id: str, size: int) -> list[EpisodePlan]:
    return [EpisodePlan(key=EpisodeKey((0, 0), i), env_id=env_id) for i in range(size)]


def pool() -> EnvPool:
    def make(env_id: str, env_kwargs: Mapping[str, Any]) -> TextEnv:
        return ENVS[env_id](**env_kwargs)

    return EnvPool(make)


def play_with(program: Any, sampler: Any, renderer: Any, *, env: str = "Repair", **options: Any) -> Any:
    """Play episodes of one group in a loop of its own, and return them."""

    async def main() -> list[Trajectory]:
        size = options.pop("size", 1)
        gateway = options.pop("gateway", None)
        before = asyncio.all_tasks()
        async with Gateway() as served:
            settings = settings_for(program, sampler, renderer, gateway=gateway or served, **options)
            envs = pool()
            work = [play_episode(plan, settings, envs=envs) for plan in plans_for(env, size)]
            played = await asyncio.gather(*work)
        assert asyncio.all_tasks() == before
        return played

    return asyncio.run(main())
