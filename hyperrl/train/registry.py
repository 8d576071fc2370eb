"""Parts of an algorithm by name: those that are registered, and any function by its dotted path."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from hyperrl.errors import ConfigError, nearest

__all__ = ["Registry"]

F = TypeVar("F", bound=Callable[..., Any])


class Registry(Generic[F]):
    """Functions of one kind by name.

    Args:
        kind: what the functions are called in errors, such as ``advantage``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._functions: dict[str, F] = {}

    def register(self, name: str) -> Callable[[F], F]:
        """Register the decorated function under ``name``.

        Raises:
            ConfigError: another function has the name already.
        """

        def keep(function: F) -> F:
            known = self._functions.setdefault(name, function)
            if (known.__module__, known.__qualname__) != (function.__module__, function.__qualname__):
                raise ConfigError(
                    f"the {self.kind} {name!r} is {known.__module__}.{known.__qualname__} already;"
                    " register yours under another name"
                )
            self._functions[name] = function  # a module that is run again brings its functions anew
            return function

        return keep

    def find(self, name: str) -> F:
        """Return a function by its name, or by a dotted path such as ``my_module:my_function``.

        Raises:
            ConfigError: there is none, or what the path leads to cannot be called.
        """
        if name in self._functions:
            return self._functions[name]
        module, separator, attribute = name.partition(":")
        if not separator:
            raise ConfigError(
                f"unknown {self.kind} {name!r}; there are {', '.join(self)}, and your own as"
                f" 'module:function'.{nearest(name, self._functions)}"
            )
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"the {self.kind} {name!r} cannot be imported: {error}") from error
        if not callable(found):
            raise ConfigError(f"the {self.kind} {name!r} is a {type(found).__name__}, not a function")
        return found  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._functions))

    def __contains__(self, name: object) -> bool:
        return name in self._functions
