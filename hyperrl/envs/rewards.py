"""Rewards: functions that score an episode, or say why they cannot.

There are three outcomes: a score, no score with a cause, and (by the cause's ``exclude``) an episode
that must not be learned from. An exception, a deadline and a number that is not finite leave a term
without a score; none of them is ever taken for 0.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, overload

from hyperrl.envs.tool_text import describe_error
from hyperrl.errors import RewardDefinitionError
from hyperrl.trajectory import Failure, RewardTerm

__all__ = ["Reward", "Unscored", "reward"]


_LARGEST_SCORE = 1e30


@dataclass(frozen=True, slots=True)
class Unscored:
    """What a reward returns when it cannot tell: ``return Unscored("the judge did not answer")``.

    Attributes:
        reason: what a person should read; an exception is described.
        kind: short name that such cases are counted by.
    """

    reason: str | BaseException
    kind: str = "unscored"


class Reward:
    """A function that scores an episode. Made by :func:`reward`.

    Attributes:
        function: the function itself.
        name: the term's name.
        weight: factor in the sum of terms.
        timeout_s: seconds an async reward may take; ``None`` sets no limit.
        is_async: the function must be awaited.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        weight: float = 1.0,
        name: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.function = function
        self.name: str = name or function.__name__
        self.weight = float(weight)
        self.timeout_s = timeout_s
        self.is_async = inspect.iscoroutinefunction(function)
        if not math.isfinite(self.weight):
            raise RewardDefinitionError(f"reward {self.name!r}: weight must be finite, got {weight}")
        if timeout_s is not None and not (self.is_async and timeout_s > 0):
            raise RewardDefinitionError(
                f"reward {self.name!r}: timeout={timeout_s} needs an async function and a number above 0;"
                " a blocking function cannot be stopped"
            )
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Reward: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Reward | Callable[..., Any]:
        return self if instance is None else MethodType(self.function, instance)

    async def settle(self, value: Awaitable[Any]) -> Any:
        """Await an async reward within its limit. Raises TimeoutError."""
        if self.timeout_s is None:
            return await value
        async with asyncio.timeout(self.timeout_s):
            return await value

    def terms(self, value: object) -> tuple[RewardTerm, ...]:
        """Return the terms that a returned value stands for: one, or one for each key of a mapping."""
        if not isinstance(value, Mapping):
            return (self._term(self.name, value),)
        if not value:
            return (self._unscored(self.name, "reward_error", "it returned an empty mapping"),)
        return tuple(self._term(f"{self.name}/{key}", part) for key, part in value.items())

    def failed(self, error: BaseException) -> tuple[RewardTerm, ...]:
        """Return the term of a reward that raised."""
        kind = "reward_timeout" if isinstance(error, TimeoutError) else "reward_error"
        return (self._unscored(self.name, kind, describe_error(error)),)

    def _term(self, name: str, value: object) -> RewardTerm:
        if isinstance(value, Unscored):
            reason = value.reason
            text = describe_error(reason) if isinstance(reason, BaseException) else str(reason)
            return self._unscored(name, str(value.kind), text)
        if isinstance(value, (numbers.Real, bool)) or hasattr(value, "__float__"):
            score = float(value)
            if abs(score) <= _LARGEST_SCORE:
                return RewardTerm(name=name, score=score, weight=self.weight)
            if math.isfinite(score):
                why = f"it returned {score:g}; sums and fp32 hold scores up to {_LARGEST_SCORE:g}"
                return self._unscored(name, "reward_too_large", why)
            return self._unscored(name, "reward_not_finite", f"it returned {score}")
        reason = (
            f"it returned {value!r:.80} ({type(value).__name__}); expected a number, a bool,"
            " a mapping of names to those, or Unscored(why)"
        )
        return self._unscored(name, "reward_error", reason)

    def _unscored(self, name: str, kind: str, reason: str) -> RewardTerm:
        error = Failure(kind=kind, stage="reward", reason=reason)
        return RewardTerm(name=name, score=None, weight=self.weight, error=error)

    def __repr__(self) -> str:
        return f"<reward {self.name}, weight {self.weight:g}>"


@overload
def reward(function: Callable[..., Any], /) -> Reward: ...
@overload
def reward(
    *, weight: float = 1.0, name: str | None = None, timeout: float | None = None
) -> Callable[[Callable[..., Any]], Reward]: ...
def reward(
    function: Callable[..., Any] | None = None,
    /,
    *,
    weight: float = 1.0,
    name: str | None = None,
    timeout: float | None = None,
) -> Reward | Callable[[Callable[..., Any]], Reward]:
    """Make a method of a :class:`TextEnv` score its episodes, as ``@reward`` or ``@reward(weight=0.2)``.

    It runs when the episode ends and returns a number, a bool, a mapping of names to those (one term
    each, named ``reward/key``), or :class:`Unscored`. Arguments are injected by name: ``task``,
    ``answer``, ``action``, ``messages``, ``turn``, ``stop_reason``, ``rng``, ``options``.

    Args:
        function: a plain or an async method.
        weight: factor in the sum of terms; 0 records the term without counting it.
        name: the term's name; by default the function's.
        timeout: seconds an async reward may take before its term is left unscored.

    Raises:
        RewardDefinitionError: the weight is not finite, or a timeout is set on a blocking function.
    """

    def decorate(function: Callable[..., Any]) -> Reward:
        return Reward(function, weight=weight, name=name, timeout_s=timeout)

    return decorate if function is None else decorate(function)
