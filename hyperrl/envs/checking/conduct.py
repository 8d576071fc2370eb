"""Whether an environment behaves: gymnasium's rules, repeatable, documented, in time."""

from __future__ import annotations

import contextlib
import inspect
import json
import pickle
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from hyperrl.envs.author_code import describe_raised
from hyperrl.envs.checking.findings import FailedError, SkippedError, WarnedError
from hyperrl.envs.checking.plays import Plays, spread
from hyperrl.envs.checking.texts import odd_texts
from hyperrl.envs.core import TextEnv
from hyperrl.envs.gold_actions import gold_actions
from hyperrl.errors import EnvError, HyperrlError

__all__ = [
    "Clock",
    "check_determinism",
    "check_documented",
    "check_gymnasium",
    "check_odd_texts",
    "check_pickle",
    "check_speed",
    "check_splits",
    "check_trace",
]

Make = Callable[..., TextEnv]

_ODD_TEXTS = 200
_FEWEST_ODD_TEXTS = 26
_TASKS_COMPARED = 500
_COMPARING_S = 1.0
_MOST_RESET_S = 0.005
_NAMES_ONLY = ("id", "task_id", "index", "split")
"""Fields that name a task and do not make it another one."""


class Clock:
    """Seconds that steps and resets took, in the order of the calls."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.resets: list[float] = []

    @property
    def step_us(self) -> float:
        """Median microseconds of a step."""
        return float(np.median(self.steps or [0.0])) * 1e6

    @property
    def reset_us(self) -> float:
        """Median microseconds of a reset."""
        return float(np.median(self.resets or [0.0])) * 1e6


def check_gymnasium(env: TextEnv) -> str:
    """Look whether gymnasium's own check passes without a warning."""
    first, _ = env.reset(seed=0)
    if first not in env.observation_space:
        raise FailedError(
            f"the first observation has {len(first):,} characters, more than {env.observation_space};"
            " shorten it, or set self.observation_space in __init__"
        )
    env.action_space.seed(0)  # check_env draws its actions from the space; a finding must not come and go
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    own = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    if own:
        raise FailedError(f"check_env warns: {own[0]}")
    return f"gymnasium {gymnasium.__version__} check_env"


def check_odd_texts(plays: Plays, clock: Clock) -> str:
    """Look whether any text can be an action; measure steps."""
    terminated = True
    count = plays.count(_FEWEST_ODD_TEXTS, _ODD_TEXTS)
    for index, text in enumerate(odd_texts(count)):
        if terminated:
            plays.env.reset(seed=index)
        start = time.perf_counter()
        try:
            terminated = plays.env.step(text)[2]
        except Exception as error:
            raise FailedError(f"step({text!r:.80}) raised {describe_raised(error)}") from error
        clock.steps.append(time.perf_counter() - start)
    return f"{count} texts"


def check_speed(plays: Plays, clock: Clock) -> str:
    """Look whether a task is there in time; the middle of several counts, the first reset loads the data."""
    for index in plays.tasks:
        start = time.perf_counter()
        plays.env.reset(seed=index, options={"task": index})
        clock.resets.append(time.perf_counter() - start)
    found = f"{clock.reset_us / 1000:.2g} ms a reset, {clock.step_us / 1000:.2g} ms a step"
    if clock.reset_us > _MOST_RESET_S * 1e6:
        raise WarnedError(
            f"{found}; make a task in under {_MOST_RESET_S * 1000:g} ms, or draw tasks beforehand"
        )
    return found


def check_determinism(env: TextEnv, make: Make, count: int) -> str:
    """Compare new instances with each other, and with ``env``, which has played many episodes."""
    texts = odd_texts(count, seed=1)
    first = _replay_new(make, texts)
    if _replay(env, texts) == first:
        return f"{len(texts)} actions in a new and in a used instance"
    gave = "the same seed and actions gave other observations, rewards or infos"
    if _replay_new(make, texts) != first:
        raise FailedError(f"{gave}: draw from rng (self.np_random) alone, and show no clock and no address")
    raise FailedError(f"{gave} after earlier episodes: what they left behind must be set anew in start()")


def check_trace(make: Make, tasks: Sequence[int]) -> str:
    """Play a task in a new instance, then another, then the first again: both times it must be equal."""
    played = list(tasks)[: max(1, len(tasks) // 4)]
    for place, index in enumerate(played):
        env = make()
        try:
            first = _record(env, index)
            _record(env, tasks[(place + 1) % len(tasks)])
            again = _record(env, index)
        finally:
            env.close()
        if again != first:
            step = next(
                (i for i, pair in enumerate(zip(first, again, strict=False)) if pair[0] != pair[1]), 0
            )
            raise FailedError(
                f"task {index}: played again after another episode it differs at step {step}:"
                f" {_shown(first, step)} at first, then {_shown(again, step)};"
                " what an episode leaves behind must be set anew in start()"
            )
    return f"{len(played)} tasks played again"


def check_pickle(plays: Plays, make: Make) -> str:
    """Look whether a copy through pickle plays on as the environment itself would."""
    index = plays.tasks[0]
    plays.env.reset(seed=index, options={"task": index})
    try:
        kept = pickle.dumps(plays.env)
    except EnvError:  # the episode holds something open, so only an environment without one is copied
        with contextlib.closing(make()) as unused:
            kept = pickle.dumps(unused)
    twin: TextEnv = pickle.loads(kept)
    try:
        seen = [repr(_seen(one.reset(seed=index, options={"task": index}))) for one in (plays.env, twin)]
    finally:
        twin.close()
    if seen[0] != seen[1]:
        raise FailedError(f"the copy begins task {index} with {seen[1]:.120}, not {seen[0]:.120}")
    return "a copy begins the same episode"


def check_documented(env: TextEnv) -> str:
    """Look whether the class says what it is, and what each of its options does."""
    cls = type(env)
    text = inspect.getdoc(cls) or ""
    if not text or text == inspect.getdoc(TextEnv):
        raise FailedError(f"{cls.__name__} has no docstring; its first line is what `hyperrl envs` shows")
    options = [
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in ("split", "render_mode")
    ]
    missing = [name for name in options if f"{name}:" not in text]
    if missing:
        raise FailedError(f"the docstring of {cls.__name__} has no line for its options {', '.join(missing)}")
    return f"{len(options)} options"


def check_splits(make: Make, splits: Sequence[str]) -> str:
    """Look whether a task stands in two splits, by its fields; ids and names of splits do not count."""
    if len(splits) < 2:
        raise SkippedError(f"there is one split only, {splits[0] if splits else 'none'}")
    seen: dict[str, tuple[str, str]] = {}
    counted = []
    for split in splits:
        mine = _contents(make, split)
        for content, task_id in mine.items():
            if content in seen:
                where, other = seen[content]
                raise FailedError(
                    f"task {task_id!r} of {split!r} is task {other!r} of {where!r}: {content:.120}"
                )
        seen.update({content: (split, task_id) for content, task_id in mine.items()})
        counted.append(f"{len(mine)} of {split}")
    return f"{', '.join(counted)} compared"


def _contents(make: Make, split: str) -> dict[str, str]:
    """Return the ids of up to 500 tasks of a split by their fields, as many as a second makes."""
    try:
        env = make(split=split)
    except HyperrlError as error:
        raise SkippedError(f"the split {split!r} cannot be made: {error}") from error
    try:
        taskset, found = env.taskset, {}
        start = time.perf_counter()
        for index in spread(len(taskset), _TASKS_COMPARED):
            task = taskset[index]
            kept = {name: task[name] for name in task if name not in _NAMES_ONLY}
            found[json.dumps(kept, sort_keys=True, default=repr)] = task.task_id
            if time.perf_counter() - start > _COMPARING_S:
                break
        return found
    finally:
        env.close()


def _replay_new(make: Make, texts: Sequence[str]) -> list[str]:
    env = make()
    try:
        return _replay(env, texts)
    finally:
        env.close()


def _replay(env: TextEnv, texts: Sequence[str]) -> list[str]:
    terminated, seen = True, []
    for index, text in enumerate(texts):
        if terminated:
            seen.append(repr(_seen(env.reset(seed=index))))
        outcome = env.step(text)
        terminated = outcome[2]
        seen.append(repr(_seen(outcome)))
    return seen


def _record(env: TextEnv, index: int) -> list[str]:
    """Play an empty answer, then the gold where there is one; return what was seen."""
    seen = []
    for golden in (False, True):
        observation, _ = env.reset(seed=index, options={"task": index})
        seen.append(repr(_seen((observation,))))
        for action in (gold_actions(env) or ()) if golden else ("",):
            outcome = env.step(action)
            seen.append(repr(_seen(outcome)))
            if outcome[2]:
                break
    return seen


def _seen(outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    return (outcome[0].messages, *outcome)


def _shown(seen: Sequence[str], step: int) -> str:
    return f"{seen[step]:.120}" if step < len(seen) else "nothing"
