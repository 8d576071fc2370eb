"""Small environments that the tests of this folder play, one for each kind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np

from hyperrl.envs import ProceduralTaskset, TextEnv, Unscored, reward, tool
from hyperrl.envs.tools import ToolResult


def _sum_task(rng: np.random.Generator) -> dict[str, Any]:
    a, b = map(int, rng.integers(10, 1000, size=2))
    return {"question": f"What is {a} + {b}?", "answer": str(a + b)}


class Sums(TextEnv):
    """Single turn, plain functions."""

    system_prompt = "Answer with a number."

    def tasks(self):
        return ProceduralTaskset(_sum_task, count=50, seed=1 if self.split == "train" else 2)

    def start(self, task):
        return task["question"]

    @reward
    def correct(self, task, answer):
        return answer.strip() == task["answer"]

    def gold(self, task):
        return task["answer"]


class Guess(TextEnv):
    """Several turns through reply, with a secret drawn by start."""

    def tasks(self):
        return [{"high": 10}, {"high": 100}]

    def start(self, task, rng):
        self.secret = int(rng.integers(1, task["high"] + 1))
        return f"Guess a number from 1 to {task['high']}."

    def reply(self, answer, turn):
        self.tries = turn + 1
        if answer.strip() == str(self.secret) or turn == 6:
            return None
        guess = answer.strip()[:3]
        return "too low" if guess.isdecimal() and int(guess) < self.secret else "too high"

    @reward
    def solved(self, answer):
        return float(answer.strip() == str(self.secret))

    @reward(weight=0.0)
    def tries_needed(self):
        return self.tries

    def gold(self, task):
        return ["1" if self.secret != 1 else "2", str(self.secret)]


class Desk(TextEnv):
    """Plain tools, methods of the environment; one of them takes the answer."""

    def tasks(self):
        return [{"stock": {"apple": 3, "pear": 5}, "question": "How many pears?", "answer": "5"}]

    def start(self, task):
        self.asked: list[str] = []
        return task["question"]

    @tool
    def stock(self, item: str, warehouse: int = 1) -> int:
        """Look up how many of an item there are.

        Args:
            item: the item's name,
                in the singular.
            warehouse: where to look.
        """
        self.asked.append(item)
        return self.task["stock"][item] * warehouse

    @tool(name="submit")
    def take_answer(self, answer: str) -> str:
        """Give the final answer.

        Args:
            answer: a number.
        """
        self.submitted = answer
        self.end_episode()
        return "Thank you."

    @reward
    def correct(self, task, answer):
        return getattr(self, "submitted", answer) == task["answer"]


class Slow(TextEnv):
    """Async from start to reward, with async tools."""

    def tasks(self):
        return [{"question": "go"}]

    async def start(self, task):
        await asyncio.sleep(0)
        self.running, self.most = 0, 0
        return task["question"]

    @tool
    async def wait(self, key: str) -> str:
        """Wait a little.

        Args:
            key: what to give back.
        """
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.02)
        self.running -= 1
        return f"waited for {key}"

    @tool(timeout=0.05)
    async def forever(self) -> str:
        """Wait forever."""
        await asyncio.sleep(3600)
        return "never"

    @reward
    async def overlap(self):
        await asyncio.sleep(0)
        return self.most


@tool(timeout=1.0)
def spin(way: str) -> Any:
    """Hang.

    Args:
        way: how.
    """
    if way == "child":
        mark = os.environ["HYPERRL_TEST_SLEEPER"]
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", mark])
    if way == "exit":
        sys.exit(3)
    if way == "raise":
        raise ValueError("no such way")
    if way == "quick":
        return "x" * 50_000
    if way in ("error", "own"):
        return ToolResult(status=way, text="as it says itself")
    if way == "nothing to say":
        return iter(())
    if way == "die":
        os._exit(7)
    while way == "spin":
        pass
    time.sleep(600)
    return "never"


class Hanging(TextEnv):
    """A blocking tool that runs in a worker."""

    spin = spin

    def tasks(self):
        return [{"question": "go"}]

    def start(self, task):
        return task["question"]

    @reward
    def one(self):
        return 1


class Unsure(TextEnv):
    """Rewards that fail in every way."""

    def tasks(self):
        return [{"question": "?"}]

    def start(self, task):
        return task["question"]

    @reward
    def fine(self):
        return {"format": True, "length": 0.5}

    @reward
    def raises(self, answer):
        raise ZeroDivisionError("broken grader")

    @reward(weight=2.0)
    def unknown(self):
        return Unscored("nobody knows", kind="judge_failure")

    @reward
    def not_finite(self):
        return float("inf")

    @reward
    def nothing(self):
        return None

    @reward
    def leaves(self):
        sys.exit(1)

    @reward(timeout=0.01)
    async def late(self):
        await asyncio.sleep(3600)


REGISTERED = {
    "HyperrlTest/Sums-v0": Sums,
    "HyperrlTest/Guess-v0": Guess,
    "HyperrlTest/Desk-v0": Desk,
    "HyperrlTest/Slow-v0": Slow,
    "HyperrlTest/Hanging-v0": Hanging,
}

for _id, _cls in REGISTERED.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point=_cls)
