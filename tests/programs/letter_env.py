"""A question that any answer earns something for, so that members of a group differ."""

from __future__ import annotations

from typing import Any

import gymnasium

from hyperrl.envs import TextEnv, reward

ENV_ID = "hyperrl-tests/Letters-v0"


class Letters(TextEnv):
    """Wants lower-case letters; the score is their share."""

    def tasks(self) -> Any:
        return [{"question": "Write letters."}, {"question": "Write more letters."}]

    def start(self, task: Any) -> str:
        return str(task["question"])

    @reward
    def letters(self, answer: str) -> float:
        return sum(character.islower() for character in answer) / max(len(answer), 1)


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point=Letters)
