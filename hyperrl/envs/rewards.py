"""Rewards: functions that score an episode, or say why they cannot.

There are three outcomes: a score, no score with a cause (:class:`Unscored`), and an episode that does not
count (:class:`Excluded`). An exception, a deadline and a number that is not finite leave a term without a
score; none of them is ever taken for 0. A 0 may carry its cause: ``Score(0, cause="unparsed")``.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Literal, get_args, overload

from hyperrl.drafts import scored_term
from hyperrl.envs.author_code import describe_raised
from hyperrl.envs.tool_text import describe_error
from hyperrl.errors import EndpointError, RewardDefinitionError, nearest
from hyperrl.trajectory import EXCLUDED, Failure, RewardTerm

__all__ = ["Excluded", "Moment", "Reward", "Score", "Unscored", "reward"]

Moment = Literal["end", "step", "group"]
"""When a reward runs: as the episode ends, after every step, or when all episodes of a group ended."""

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


@dataclass(frozen=True, slots=True)
class Excluded:
    """What a reward returns when the episode does not count: ``return Excluded("the task has no answer")``.

    The episode is left out of learning and of success rates, whatever its other terms say.

    Attributes:
        reason: what a person should read.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Score:
    """A number with why it is what it is: ``return Score(0, cause="unparsed")``.

    Attributes:
        value: the score.
        cause: short name that reports count it by, one of ``hyperrl.causes.CAUSES`` or your own;
            ``unparsed`` says that no answer could be read.
    """

    value: float
    cause: str | None = None


class Reward:
    """A function that scores an episode. Made by :func:`reward`.

    Attributes:
        function: the function itself.
        name: the term's name.
        at: when it runs.
        weight: factor in the sum of terms.
        timeout_s: seconds an async reward may take; ``None`` sets no limit.
        is_async: the function must be awaited.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        at: Moment = "end",
        weight: float = 1.0,
        name: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if not callable(function):
            raise RewardDefinitionError(
                f"@reward stands above a function, got {function!r}; a name is given as @reward(name=...)"
            )
        self.function = function
        self.at = at
        self.name: str = name or function.__name__
        self.weight = float(weight)
        self.timeout_s = timeout_s
        self.is_async = inspect.iscoroutinefunction(function)
        if at not in get_args(Moment):
            known = get_args(Moment)
            raise RewardDefinitionError(
                f"reward {self.name!r}: at must be one of {', '.join(known)}, got {at!r}."
                f"{nearest(str(at), known)}"
            )
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
        if type(value) is float and -_LARGEST_SCORE <= value <= _LARGEST_SCORE:
            return (scored_term(self.name, value, self.weight),)
        if not isinstance(value, Mapping):
            return (self._term(self.name, value),)
        if not value:
            return (self._unscored(self.name, "reward_error", "it returned an empty mapping"),)
        return tuple(self._term(f"{self.name}/{key}", part) for key, part in value.items())

    def member_terms(self, values: object, count: int) -> list[tuple[RewardTerm, ...]]:
        """Return the terms of each of ``count`` members of a group.

        One value a member, in order; :class:`Unscored` and :class:`Excluded` alone stand for all. With
        another number of values nobody knows whose they are, so that no member is scored.
        """
        if isinstance(values, (Unscored, Excluded)):
            return [self.terms(values)] * count
        if isinstance(values, (str, Mapping)) or not hasattr(values, "__len__"):
            got = f"it returned {values!r:.80} ({type(values).__name__})"
        elif len(values) != count:
            got = f"it returned {len(values)} values"
        else:
            parts: Sequence[object] = values  # type: ignore[assignment]  # a sequence or an array
            return [self.terms(value) for value in parts]
        reason = f"{got}; expected one value for each of the {count} members"
        return [(self._unscored(self.name, "reward_error", reason),)] * count

    def failed(self, error: BaseException) -> tuple[RewardTerm, ...]:
        """Return the term of a reward that raised."""
        kind, reason = "reward_error", describe_raised(error)
        if isinstance(error, TimeoutError):
            kind = "reward_timeout"
            limit = "" if self.timeout_s is None else f" (its timeout is {self.timeout_s:g} s)"
            reason = f"{reason}{limit}"
        elif isinstance(error, EndpointError):  # only judges and reward models are asked over HTTP here
            kind = "judge_failure"
        return (self._unscored(self.name, kind, reason),)

    def _term(self, name: str, value: object) -> RewardTerm:
        if type(value) is float and abs(value) <= _LARGEST_SCORE:
            return RewardTerm(name=name, score=value, weight=self.weight)
        if isinstance(value, Score):
            term = self._term(name, value.value)
            return term if term.score is None else replace(term, cause=value.cause)
        if isinstance(value, Excluded):
            return self._unscored(name, EXCLUDED, value.reason)
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
            " a Score, a mapping of names to those, Unscored(why) or Excluded(why)"
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
    *, at: Moment = "end", weight: float = 1.0, name: str | None = None, timeout: float | None = None
) -> Callable[[Callable[..., Any]], Reward]: ...
def reward(
    function: Callable[..., Any] | None = None,
    /,
    *,
    at: Moment = "end",
    weight: float = 1.0,
    name: str | None = None,
    timeout: float | None = None,
) -> Reward | Callable[[Callable[..., Any]], Reward]:
    """Make a method of a :class:`TextEnv` score its episodes, as ``@reward`` or ``@reward(weight=0.2)``.

    It returns a number, a bool, a :class:`Score`, a mapping of names to those (one term each, named
    ``reward/key``), :class:`Unscored` or :class:`Excluded`. Arguments are injected by name: ``task``,
    ``answer``, ``action``, ``messages``, ``turn``, ``stop_reason``, ``tool_records`` (the calls of the last
    action and their results), ``rng``, ``options``.

    With ``at="group"`` it is asked for ``task``, ``answers`` and ``trajectories``, both with one entry for
    each member that was played to an end, and returns as many values. It acts after the episodes, in
    rollouts and in training; gymnasium's ``step`` knows one episode only and leaves it out.

    A plain function may be a reward too: named in ``env.scorers`` of a config it acts after the episode.

    Args:
        function: a plain or an async method.
        at: when it runs: ``end``, ``step`` (after every step, the last one too), or ``group``.
        weight: factor in the sum of terms; 0 records the term without counting it.
        name: the term's name; by default the function's.
        timeout: seconds an async reward may take before its term is left unscored.

    Raises:
        RewardDefinitionError: the weight is not finite, ``at`` is unknown, or a timeout is set on a
            blocking function.
    """

    def decorate(function: Callable[..., Any]) -> Reward:
        return Reward(function, at=at, weight=weight, name=name, timeout_s=timeout)

    return decorate if function is None else decorate(function)
