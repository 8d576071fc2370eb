"""Small environments and shortcuts for tests of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.recorder import PolicySeat, Recorder
from hyperrl.agents.rollout import EnvPool, EpisodePlan, RolloutLimits, RolloutSettings
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs import TextEnv, reward, tool
from hyperrl.sampling import Completion, EpisodeKey, RequestKey, SamplingParams
from hyperrl.trajectory import StopReason


class Echo(TextEnv):
    """Answers every action with itself until it has heard ``turns`` of them, or "stop"."""

    def __init__(self, *, turns: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.turns = turns

    def tasks(self) -> Any:
        return [{"start": f"task {i}"} for i in range(4)]

    def start(self, task: Any, rng: Any) -> str:
        return f"{task['start']} {rng.integers(1000)}"

    def reply(self, action: str, turn: int) -> str | None:
        return None if turn + 1 >= self.turns or action == "stop" else f"you said {action}"

    @reward
    def said(self, turn: int) -> float:
        return float(turn + 1)


class Adder(TextEnv):
    """Has a tool that adds and one that raises; the right answer is 5."""

    system_prompt = "Use the tools."

    def tasks(self) -> Any:
        return [{"question": "2 + 3?"}]

    def start(self, task: Any) -> str:
        return str(task["question"])

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: One.
            b: The other.
        """
        return a + b

    @tool
    def explode(self) -> str:
        """Fail."""
        raise RuntimeError("the tool broke")

    @reward
    def right(self, answer: str) -> float:
        return float(answer.strip() == "5")


class Broken(Echo):
    """Fails where it is told to."""

    def __init__(self, *, at: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.at = at

    def start(self, task: Any, rng: Any) -> str:
        if self.at == "reset":
            raise RuntimeError("no start")
        return super().start(task, rng)

    def reply(self, action: str, turn: int) -> str | None:
        if self.at == "step":
            raise RuntimeError("no reply")
        return super().reply(action, turn)


class Slow(Echo):
    """Waits ``seconds`` in every step."""

    def __init__(self, *, seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seconds = seconds

    async def reply(self, action: str, turn: int) -> str | None:  # type: ignore[override]
        await asyncio.sleep(self.seconds)
        return Echo.reply(self, action, turn)


ENVS: dict[str, type[TextEnv]] = {"Echo": Echo, "Adder": Adder, "Broken": Broken, "Slow": Slow}


class CountingPool(EnvPool):
    """A pool of the environments above that counts what it makes and what is closed."""

    def __init__(self) -> None:
        super().__init__(self._make)
        self.made = 0
        self.closed = 0

    def _make(self, env_id: str, env_kwargs: Mapping[str, Any]) -> TextEnv:
        env = ENVS[env_id](**env_kwargs)
        self.made += 1

        def close() -> None:
            self.closed += 1

        env.close = close  # type: ignore[method-assign]
        return env


class SpySampler(ScriptedSampler):
    """A scripted sampler that keeps a copy of everything it was given."""

    def __init__(self, script: Any, **kwargs: Any) -> None:
        super().__init__(ByteRenderer(), script, **kwargs)
        self.prompts: dict[RequestKey, list[int]] = {}
        self.seeds: dict[RequestKey, int] = {}
        self.params: dict[RequestKey, SamplingParams] = {}

    async def generate(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int, request_id: RequestKey
    ) -> Completion:
        self.prompts[request_id] = list(prompt_ids)
        self.seeds[request_id] = seed
        self.params[request_id] = params
        return await super().generate(prompt_ids, params, seed=seed, request_id=request_id)


def counting_script(prompt: str, key: RequestKey) -> str:
    """Say something that differs by episode and request."""
    return f"{key.group_id[1]}/{key.sample_index}/{key.ordinal}"


def seat(sampler: Any, *, max_tokens: int = 64, **params: Any) -> PolicySeat:
    return PolicySeat(
        sampler=sampler, renderer=ByteRenderer(), params=SamplingParams(max_tokens=max_tokens, **params)
    )


def settings(sampler: Any, *, limits: RolloutLimits | None = None, **values: Any) -> RolloutSettings:
    values.setdefault("seats", {"main": seat(sampler)})
    return RolloutSettings(run_id="run", run_seed=7, limits=limits or RolloutLimits(), **values)


def plans(env_id: str, groups: int = 1, size: int = 1, **env_kwargs: Any) -> list[EpisodePlan]:
    return [
        EpisodePlan(key=EpisodeKey((0, group), sample), env_id=env_id, env_kwargs=env_kwargs, task=0)
        for group in range(groups)
        for sample in range(size)
    ]


def recorder(sampler: Any, **values: Any) -> Recorder:
    values.setdefault("seats", {"main": seat(sampler)})
    return Recorder(key=EpisodeKey((0, 0), 0), run_seed=7, **values)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


Script = Callable[[str, RequestKey], str]
STOP = StopReason.STOP
