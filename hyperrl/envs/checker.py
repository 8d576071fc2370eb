"""Checks that an environment keeps its promises: gymnasium's, and those of this package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hyperrl.envs.checking import conduct, scores
from hyperrl.envs.checking.findings import Check, CheckReport, FailedError, SkippedError, WarnedError, look
from hyperrl.envs.checking.plays import Plays
from hyperrl.envs.checking.texts import odd_texts
from hyperrl.envs.core import TextEnv
from hyperrl.envs.registration import make_env

__all__ = [
    "Check",
    "CheckReport",
    "FailedError",
    "SkippedError",
    "WarnedError",
    "check_env_contract",
    "look",
    "odd_texts",
]

_REPLAYED = 40
_FEWEST_REPLAYED = 8


def check_env_contract(env_id: str, **kwargs: Any) -> CheckReport:
    """Check an environment against gymnasium's contract and ours; never raises for a failing one.

    About two seconds are spent on a promise, ten on attacks: where one episode takes long, fewer are played.

    Args:
        env_id: a registered id.
        **kwargs: for its constructor.

    Raises:
        ConfigError: there is no such environment.
        EnvError: it is not a :class:`TextEnv`.
        MissingExtraError: an episode needs an optional part that is not installed.
    """
    env = make_env(env_id, **kwargs)
    try:
        begins = look("an episode begins", lambda: _begin(env))
        if begins.status == "fail":
            return CheckReport(env_id=env_id, checks=(begins,))
        clock = conduct.Clock()
        make = functools.partial(_make, env_id, kwargs)
        checks = tuple(look(name, promise) for name, promise in _promises(env, make, clock).items())
    finally:
        env.close()
    return CheckReport(env_id=env_id, checks=checks, step_us=clock.step_us, reset_us=clock.reset_us)


def _begin(env: TextEnv) -> str:
    """Reset once: where no episode begins, no other promise can be looked at."""
    env.reset(seed=0)
    return ""


def _make(env_id: str, kwargs: dict[str, Any], **changed: Any) -> TextEnv:
    return make_env(env_id, **{**kwargs, **changed})


def _promises(env: TextEnv, make: conduct.Make, clock: conduct.Clock) -> dict[str, Callable[[], str]]:
    plays = functools.cache(lambda: Plays(env))
    return {
        "gymnasium": lambda: conduct.check_gymnasium(env),
        "gold reaches the declared score": lambda: scores.check_gold(plays()),
        "empty stays under the floor": lambda: scores.check_empty(plays()),
        "wrong stays under the floor": lambda: scores.check_wrong(plays()),
        "attacks stay under the floor": lambda: scores.check_attacks(plays()),
        "any text can be an action": lambda: conduct.check_odd_texts(plays(), clock),
        "same seed, same episode": lambda: conduct.check_determinism(
            env, make, plays().count(_FEWEST_REPLAYED, _REPLAYED)
        ),
        "reset leaves no trace": lambda: conduct.check_trace(make, plays().tasks),
        "gold is not given away": lambda: scores.check_leak(plays()),
        "splits do not overlap": lambda: conduct.check_splits(make, env.splits),
        "options are documented": lambda: conduct.check_documented(env),
        "pickle keeps it": lambda: conduct.check_pickle(plays(), make),
        "tasks are there in time": lambda: conduct.check_speed(plays(), clock),
    }
