"""A one-turn environment of two tasks whose grading can be told to go wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import gymnasium

from hyperrl.envs import TextEnv, Unscored, reward

ENV_ID = "hyperrl-tests/Graded-v0"


class Graded(TextEnv):
    """Any answer will do; what it earns depends on ``grading``."""

    def __init__(self, *, grading: str = "letters", jitter: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grading = grading
        self.jitter = jitter

    def tasks(self) -> Sequence[dict[str, Any]]:
        return [{"name": "a"}, {"name": "b"}]

    async def start(self) -> str:
        if self.jitter:
            await asyncio.sleep(random.random() / 50)
        return f"task {self.task['name']}"

    async def reply(self, turn: int) -> str | None:
        if self.jitter and turn < 2:
            await asyncio.sleep(random.random() / 50)
            return "go on"
        return None

    @reward
    def score(self, answer: str) -> float | Unscored:
        if self.grading == "none":
            return Unscored("nobody can tell")
        if self.grading == "same":
            return 0.5
        return sum(map(ord, answer)) % 7 / 7

    def gold(self, task: Any) -> str:
        return str(task["name"])


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point=Graded)
