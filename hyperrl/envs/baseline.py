"""The scripted player that comes with an environment: what a policy must beat to have learned something.

By convention it is a function ``baseline(messages, rng) -> str`` beside the environment: in the module
of its class, or in the package that holds the module. It reads what a policy reads, the conversation so
far, and draws from the generator that it is given.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from hyperrl.errors import ConfigError
from hyperrl.sampling import Message

if TYPE_CHECKING:
    from hyperrl.envs.core import TextEnv

__all__ = ["ScriptedPlayer", "find_baseline"]

ScriptedPlayer = Callable[[Sequence[Message], np.random.Generator], str | Awaitable[str]]
"""Answers a conversation: messages, oldest first, and a generator, to the text of an action."""

NAME = "baseline"


def find_baseline(env: TextEnv) -> ScriptedPlayer:
    """Return the scripted player of an environment.

    Raises:
        ConfigError: it has none.
    """
    module = type(env).__module__
    for place in (module, module.rpartition(".")[0]):
        found = getattr(_module(place), NAME, None)
        if callable(found):
            return cast(ScriptedPlayer, found)
    raise ConfigError(
        f"{type(env).__name__} comes with no scripted player: define 'def baseline(messages, rng)' in its"
        f" module {module!r} or in the package that holds it, or name another as 'module:function'"
    )


def _module(name: str) -> object:
    if not name:
        return None
    return sys.modules.get(name) or importlib.import_module(name)
