"""Checks that an environment keeps its promises: gymnasium's, and those of this package."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from hyperrl.envs.core import TextEnv
from hyperrl.envs.registration import make_env
from hyperrl.envs.spaces import Unicode

__all__ = ["Check", "CheckReport", "check_env_contract", "odd_texts"]

_TASKS_PLAYED = 20
_ODD_TEXTS = 200
_SHORT_GOLD = 3
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise.

    Attributes:
        name: what was promised.
        status: ``pass``, ``fail``, or ``skip`` where the environment does not say enough.
        detail: what was seen.
    """

    name: str
    status: Literal["pass", "fail", "skip"]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The promises of one environment.

    Attributes:
        env_id: which one.
        checks: each promise, in the order in which it was looked at.
        step_us: median microseconds of a step, the author's code included.
    """

    env_id: str
    checks: tuple[Check, ...]
    step_us: float

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "fail")


class _FailedError(Exception):
    """A promise was not kept; the message says how."""


class _SkippedError(Exception):
    """The environment does not say enough to look."""


def check_env_contract(env_id: str, **kwargs: Any) -> CheckReport:
    """Check an environment against gymnasium's contract and ours; never raises for a failing one.

    Args:
        env_id: a registered id.
        **kwargs: for its constructor.

    Raises:
        ConfigError: there is no such environment.
        EnvError: it is not a :class:`TextEnv`.
    """
    env = make_env(env_id, **kwargs)
    steps: list[float] = []
    promises: dict[str, Callable[[], str]] = {
        "gymnasium": lambda: _check_gymnasium(env),
        "gold scores 1": lambda: _check_gold(env),
        "empty stays under the floor": lambda: _check_empty(env),
        "any text can be an action": lambda: _check_odd_texts(env, steps),
        "same seed, same episode": lambda: _check_determinism(env, lambda: make_env(env_id, **kwargs)),
        "gold is not given away": lambda: _check_leak(env),
    }
    checks = tuple(_look(name, promise) for name, promise in promises.items())
    env.close()
    return CheckReport(env_id=env_id, checks=checks, step_us=float(np.median(steps or [0.0])) * 1e6)


def odd_texts(count: int, seed: int = 0) -> list[str]:
    """Return texts that break careless code: empty, controls, lone surrogates, markup, long, random."""
    fixed = ["", " ", "\n", "\x00", "\ud800", "\udfff\ud800x", "\U0010ffff", "a\u0301" * 50, "\u202eabc"]
    fixed += [
        "<think>",
        "</think>",
        "<tool_call>",
        '<tool_call>{"name": "x"',
        "{}",
        "[]",
        "null",
        "-0",
        "NaN",
    ]
    fixed += [
        "<tool_call>{}</tool_call>",
        "1e999",
        "9" * 5000,
        "{" * 2000,
        "\\boxed{",
        "%s%n{0}",
        "x" * 100_000,
    ]
    space = Unicode(seed=seed)
    return (fixed + [space.sample() for _ in range(count)])[:count]


def _look(name: str, promise: Callable[[], str]) -> Check:
    try:
        return Check(name=name, status="pass", detail=promise())
    except _SkippedError as reason:
        return Check(name=name, status="skip", detail=str(reason))
    except Exception as error:  # noqa: BLE001  # whatever a stranger's environment raises is the finding
        detail = str(error) if isinstance(error, _FailedError) else f"{type(error).__name__}: {error}"
        return Check(name=name, status="fail", detail=detail)


def _check_gymnasium(env: TextEnv) -> str:
    env.action_space.seed(0)  # check_env draws its actions from the space; a finding must not come and go
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    own = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    if own:
        raise _FailedError(f"check_env warns: {own[0]}")
    return f"gymnasium {gymnasium.__version__} check_env"


def _play(env: TextEnv, actions: Sequence[str]) -> tuple[float, str]:
    """Play the actions until the episode ends; return the sum of rewards and why it is NaN."""
    total, why = 0.0, ""
    for action in actions:
        _, reward, terminated, _, info = env.step(action)
        total, why = total + reward, str(info.get("unscored", ""))
        if terminated:
            return total, why
    raise _FailedError(f"the episode goes on after {len(actions)} action(s), the last {actions[-1]!r:.80}")


def _tasks(env: TextEnv) -> range:
    count = len(env.taskset)
    return range(0, count, max(1, count // _TASKS_PLAYED))


def _gold(env: TextEnv, index: int) -> tuple[str, list[str]]:
    """Reset to a task; return the first observation and the gold actions."""
    observation, _ = env.reset(seed=index, options={"task": index})
    gold = env.gold(env.task)
    if gold is None:
        raise _SkippedError("the environment defines no gold()")
    return observation, [gold] if isinstance(gold, str) else list(gold)


def _check_gold(env: TextEnv) -> str:
    for index in _tasks(env):
        _, actions = _gold(env, index)
        total, why = _play(env, actions)
        if not abs(total - 1) <= _TOLERANCE:
            raise _FailedError(f"task {index}: gold {actions[-1]!r:.80} scores {total} {why}".rstrip())
    return f"{len(_tasks(env))} tasks"


def _check_empty(env: TextEnv) -> str:
    worst = -np.inf
    for index in _tasks(env):
        env.reset(seed=index, options={"task": index})
        total, terminated = 0.0, False
        for _ in range(env.max_episode_steps or _TASKS_PLAYED):
            _, reward, terminated, _, info = env.step("")
            total += reward
            if terminated:
                break
        if not total <= env.floor + _TOLERANCE:
            raise _FailedError(f"task {index}: empty answers score {total}, the floor is {env.floor}; {info}")
        worst = max(worst, total)
    return f"at most {worst:g}"


def _check_odd_texts(env: TextEnv, steps: list[float]) -> str:
    terminated = True
    for index, text in enumerate(odd_texts(_ODD_TEXTS)):
        if terminated:
            env.reset(seed=index)
        start = time.perf_counter()
        try:
            terminated = env.step(text)[2]
        except Exception as error:
            raise _FailedError(f"step({text!r:.80}) raised {type(error).__name__}: {error}") from error
        steps.append(time.perf_counter() - start)
    return f"{_ODD_TEXTS} texts"


def _check_determinism(env: TextEnv, make: Callable[[], TextEnv]) -> str:
    """Compare new instances with each other, and with ``env``, which has played many episodes."""
    texts = odd_texts(40, seed=1)
    first = _replay_new(make, texts)
    if _replay(env, texts) == first:
        return f"{len(texts)} actions in a new and in a used instance"
    gave = "the same seed and actions gave other observations, rewards or infos"
    if _replay_new(make, texts) != first:
        raise _FailedError(gave)
    raise _FailedError(f"{gave} after earlier episodes: what they left behind must be set anew in start()")


def _replay_new(make: Callable[[], TextEnv], texts: Sequence[str]) -> list[str]:
    env = make()
    try:
        return _replay(env, texts)
    finally:
        env.close()


def _replay(env: TextEnv, texts: Sequence[str]) -> list[str]:
    terminated, seen = True, []
    for index, text in enumerate(texts):
        if terminated:
            observation, info = env.reset(seed=index)
            seen.append(repr((observation, observation.messages, info)))
        observation, reward, terminated, _, info = env.step(text)
        seen.append(repr((observation, observation.messages, reward, terminated, info)))
    return seen


def _check_leak(env: TextEnv) -> str:
    for index in _tasks(env):
        observation, actions = _gold(env, index)
        last = actions[-1].strip()
        if len(last) > _SHORT_GOLD and last in observation:
            raise _FailedError(f"task {index}: the gold answer {last!r:.80} stands in the observation")
    return f"{len(_tasks(env))} tasks"
