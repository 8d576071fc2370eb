"""Environments that are kept between episodes: made once, reset for each."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from hyperrl.envs.core import TextEnv

__all__ = ["EnvPool", "MakeEnv"]

MakeEnv = Callable[[str, Mapping[str, Any]], "TextEnv"]
logger = logging.getLogger(__name__)


class EnvPool:
    """Lends environments to episodes, one at a time, and closes them all at the end.

    An environment whose episode did not end cleanly is closed instead of lent again: nobody knows
    what state it is in. Used as a context manager, or closed by hand.

    Args:
        make_env: makes an environment from its id and arguments; by default
            :func:`hyperrl.envs.registration.make_env`.
    """

    def __init__(self, make_env: MakeEnv | None = None) -> None:
        self._make_env = make_env or _make_registered
        self._idle: dict[tuple[str, str], list[TextEnv]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def borrow(self, env_id: str, env_kwargs: Mapping[str, Any]) -> TextEnv:
        """Return an environment that nobody else uses.

        Raises:
            ConfigError: there is no such environment, or it cannot be made so.
        """
        idle = self._idle[_key(env_id, env_kwargs)]
        return idle.pop() if idle else self._make_env(env_id, env_kwargs)

    def give_back(self, env: TextEnv, env_id: str, env_kwargs: Mapping[str, Any], *, clean: bool) -> None:
        """Take an environment back; it is lent again only if its episode ended cleanly."""
        if clean:
            self._idle[_key(env_id, env_kwargs)].append(env)
        else:
            _close(env)

    def close(self) -> None:
        """Close every environment that is not lent out."""
        for idle in self._idle.values():
            while idle:
                _close(idle.pop())


def _key(env_id: str, env_kwargs: Mapping[str, Any]) -> tuple[str, str]:
    return env_id, json.dumps(dict(env_kwargs), sort_keys=True, default=repr) if env_kwargs else ""


def _make_registered(env_id: str, env_kwargs: Mapping[str, Any]) -> TextEnv:
    from hyperrl.envs.registration import make_env  # noqa: PLC0415  (agents are usable without the registry)

    return make_env(env_id, **env_kwargs)


def _close(env: TextEnv) -> None:
    try:
        env.close()
    except Exception:  # an environment's own clean-up must not end the run; it is logged
        logger.warning("closing environment %s failed", type(env).__name__, exc_info=True)
