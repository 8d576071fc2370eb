"""A scripted player of ReverseText: it copies letter by letter and now and then forgets one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyperrl.sampling import Message

__all__ = ["SLIP", "baseline"]

SLIP = 0.05
"""Probability of leaving a letter out."""


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return the text of the last message backwards, each letter left out with probability :data:`SLIP`."""
    text = str(messages[-1]["content"]).rpartition(" ")[2]
    return "".join(letter for letter in reversed(text) if rng.random() >= SLIP)
