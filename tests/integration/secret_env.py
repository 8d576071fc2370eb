"""A two-turn environment that a tiny model learns in seconds: ask the tool, say what it said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium

from hyperrl.envs import TextEnv, reward, tool

ENV_ID = "hyperrl-tests/Secret-v0"


class Secret(TextEnv):
    """Ask for the secret and repeat it."""

    def tasks(self) -> Sequence[dict[str, Any]]:
        return [{"secret": "42"}, {"secret": "77"}]

    def start(self) -> str:
        return "?"

    @tool
    def peek(self) -> str:
        """Look."""
        return str(self.task["secret"])

    @reward
    def correct(self, answer: str) -> bool:
        return answer.strip() == self.task["secret"]

    def gold(self, task: Any) -> list[str]:
        return ['<tool_call>{"name": "peek", "arguments": {}}</tool_call>', task["secret"]]


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point=Secret)
