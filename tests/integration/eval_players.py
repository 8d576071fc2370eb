"""Scripted players for tests of evaluations; imported by name, as a user's own would be."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyperrl.envs import reward
from hyperrl.errors import ConfigError
from hyperrl.wiring import eval_directory

STOP_AFTER: list[int] = []
"""How many more answers there are before :func:`stopping` ends the evaluation; empty for no end."""


def drawing(messages: Sequence[Any], rng: np.random.Generator) -> str:
    """Answer with a digit that depends on the draws of the request only."""
    return str(rng.integers(10))


async def waiting(messages: Sequence[Any], rng: np.random.Generator) -> str:
    """The same as a coroutine."""
    return drawing(messages, rng)


def stopping(messages: Sequence[Any], rng: np.random.Generator) -> str:
    """Draw, until it ends the whole evaluation."""
    if STOP_AFTER:
        STOP_AFTER[0] -= 1
        if STOP_AFTER[0] < 0:
            raise ConfigError("stopped by the player")
    return drawing(messages, rng)


ANSWERS: list[str] = []


def killing(messages: Sequence[Any], rng: np.random.Generator) -> str:
    """Draw; where the environment names a store, kill the process in the middle, once a part is in it."""
    store = os.environ.get("KILL_WITH_A_PART_IN")
    ANSWERS.append(drawing(messages, rng))
    if store:
        eval_directory.PART_EVERY_S = 0.01
        while len(ANSWERS) == 20:
            time.sleep(0.01)
            if list(Path(store).glob("part-*.parquet")):
                os.kill(os.getpid(), signal.SIGKILL)
    return ANSWERS[-1]


def speechless(messages: Sequence[Any], rng: np.random.Generator) -> Any:
    """Return no text."""
    return None


@reward(at="group")
def beats_the_others(answers: Sequence[str]) -> list[float]:
    """Score how many other samples of the task said less."""
    return [float(sum(other < answer for other in answers)) for answer in answers]
