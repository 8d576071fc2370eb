"""A scripted player of SortDigits: three passes of bubble sort, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyperrl.sampling import Message

__all__ = ["PASSES", "baseline"]

PASSES = 3
"""Passes over the digits: enough for four digits in any order, rarely for eight."""


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:  # noqa: ARG001  # it draws nothing
    """Return the digits of the last message after :data:`PASSES` passes of bubble sort."""
    digits = list(str(messages[-1]["content"]).rpartition(" ")[2])
    for _ in range(PASSES):
        for i in range(len(digits) - 1):
            if digits[i] > digits[i + 1]:
                digits[i], digits[i + 1] = digits[i + 1], digits[i]
    return "".join(digits)
