"""Attributes that ``TextEnv.__init__`` sets, or that are made when they are first asked for.

Each stands in its class as a descriptor, which an attribute of the instance takes the place of. (A
``__getattr__`` would do the same, and make every access to any attribute of an environment slower.)
"""

from __future__ import annotations

from typing import Any

from hyperrl.envs.spaces import Unicode
from hyperrl.errors import EnvError

__all__ = ["SetByInit", "SpaceOnDemand"]


class SetByInit:
    """Says where an attribute is missing that nobody called ``super().__init__``."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, env: object | None, owner: type) -> Any:
        if env is None:
            return self
        raise EnvError(
            f"{owner.__name__} has no {self.name!r} yet: its __init__ must take **kwargs and first call"
            " super().__init__(**kwargs)"
        )


class SpaceOnDemand(SetByInit):
    """A space of texts, made when it is first asked for."""

    def __get__(self, env: object | None, owner: type) -> Any:
        if env is None or "split" not in vars(env):
            return super().__get__(env, owner)
        return vars(env).setdefault(self.name, Unicode())
