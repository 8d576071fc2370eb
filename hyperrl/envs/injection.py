"""What a class's functions ask for, found out once, so that a call costs little more than itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperrl.errors import EnvError, nearest

__all__ = ["EPISODE_NAMES", "GROUP_NAMES", "PLAYED_NAMES", "START_NAMES", "Injected", "inject"]

START_NAMES = ("task", "rng", "options")
"""What ``start`` may ask for."""

EPISODE_NAMES = (*START_NAMES, "action", "answer", "messages", "turn", "stop_reason", "tool_records")
"""What ``reply`` and rewards may ask for."""

GROUP_NAMES = ("task", "answers", "trajectories")
"""What a reward of a group may ask for."""

PLAYED_NAMES = ("task", "answer", "action", "messages", "turn", "stop_reason", "tool_records", "trajectory")
"""What a reward may ask for that acts after the episode, outside its environment."""

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Injected:
    """A function together with how to call it.

    Attributes:
        call: takes the environment and the episode, picks the arguments, calls the function.
        is_async: what ``call`` returns must be awaited.
        names: the injected names that it asks for.
    """

    call: Callable[[Any, Any], Any]
    is_async: bool
    names: frozenset[str]


def inject(
    function: Callable[..., Any],
    allowed: tuple[str, ...],
    *,
    where: str,
    error: type[EnvError] = EnvError,
) -> Injected:
    """Find out what ``function`` asks for.

    Args:
        function: a function whose first parameter may be ``self``.
        allowed: the names that it may ask for; any other parameter needs a default.
        where: what to call it in an error.
        error: the kind of error to raise.

    Raises:
        EnvError: it asks for something that cannot be given.
    """
    parameters = dict(inspect.signature(function).parameters)
    takes_self = next(iter(parameters), None) == "self"
    parameters.pop("self", None)
    for name, parameter in parameters.items():
        if parameter.kind in _COLLECTING or (name not in allowed and parameter.default is parameter.empty):
            raise error(
                f"{where} asks for {str(parameter)!r}, which cannot be given;"
                f" it may ask for {', '.join(allowed)}.{nearest(name, allowed)}"
            )
    asked = [name for name in parameters if name in allowed]
    positional = all(p.kind in _BY_POSITION and n in allowed for n, p in parameters.items())
    call = _by_position(function, asked, takes_self) if positional else _by_name(function, asked, takes_self)
    return Injected(call, inspect.iscoroutinefunction(function), frozenset(asked))


def _by_position(
    function: Callable[..., Any], names: list[str], takes_self: bool
) -> Callable[[Any, Any], Any]:
    """Hand on one or two attributes by themselves, as most functions ask: a list takes twice as long."""
    if takes_self and len(names) == 1:
        only = names[0]
        return lambda env, episode: function(env, getattr(episode, only))
    if takes_self and len(names) == 2:
        first, second = names
        return lambda env, episode: function(env, getattr(episode, first), getattr(episode, second))
    if takes_self:
        return lambda env, episode: function(env, *[getattr(episode, name) for name in names])
    return lambda _, episode: function(*[getattr(episode, name) for name in names])


def _by_name(function: Callable[..., Any], names: list[str], takes_self: bool) -> Callable[[Any, Any], Any]:
    def call(env: Any, episode: Any) -> Any:
        values = {name: getattr(episode, name) for name in names}
        return function(env, **values) if takes_self else function(**values)

    return call
