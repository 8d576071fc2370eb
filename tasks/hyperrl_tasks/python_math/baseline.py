"""A scripted player: a clerk who works a problem out in the head, and slips now and then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyperrl.sampling import Message
from hyperrl_tasks.python_math.families import FAMILIES

__all__ = ["SLIPS", "baseline"]

SLIPS = 0.01
"""The chance that a single computation goes wrong."""


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return an answer that is right if none of the computations that it takes goes wrong.

    It reads the messages only, as a policy does, knows how each family is solved, and calls no tool: its
    success says how hard the problems are without one.

    Args:
        messages: the conversation of an episode.
        rng: decides about the slips.
    """
    asked = [str(message["content"]) for message in messages if message["role"] == "user"]
    boxed = "\\boxed" in str(messages[0]["content"])
    answer = str(_work_out(asked[0].strip() if asked else "", rng))
    return f"\\boxed{{{answer}}}" if boxed else f"#### {answer}"


def _work_out(question: str, rng: np.random.Generator) -> object:
    for family in FAMILIES.values():
        numbers = family.read(question)
        if numbers is not None:
            slipped = rng.random() > (1 - SLIPS) ** family.steps(numbers)
            return family.solve(**numbers) + (int(rng.integers(1, 10)) if slipped else 0)
    return int(rng.integers(100))
