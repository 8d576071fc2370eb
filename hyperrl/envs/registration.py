"""Environments by id: ours, those of installed packages, and how to make one for a rollout."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import logging
import re
import typing
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import load_env_creator, registry
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from hyperrl.envs.author_code import where_raised
from hyperrl.envs.tool_text import describe_error
from hyperrl.errors import ConfigError, EnvError, nearest

if TYPE_CHECKING:
    from hyperrl.envs.core import TextEnv

__all__ = ["ENTRY_POINT_GROUP", "env_ids", "find_env_id", "load_entry_points", "make_env", "register_all"]

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "hyperrl.envs"
"""Packages name a module here that registers their environments when it is imported."""

_OURS: dict[str, tuple[str, int | None]] = {
    "hyperrl/SortDigits-v0": ("hyperrl_tasks.sort_digits:SortDigits", None),
    "hyperrl/ReverseText-v0": ("hyperrl_tasks.reverse_text:ReverseText", None),
    "hyperrl/GSM8K-v0": ("hyperrl_tasks.gsm8k:GSM8K", 8),
    "hyperrl/Calculate-v0": ("hyperrl_tasks.calculate:Calculate", 4),
    "hyperrl/Countdown-v0": ("hyperrl_tasks.countdown:Countdown", None),
    "hyperrl/CodeTests-v0": ("hyperrl_tasks.code_tests:CodeTests", None),
    "hyperrl/Wordle-v0": ("hyperrl_tasks.wordle:Wordle", None),
    "hyperrl/Desk-v0": ("hyperrl_tasks.desk:Desk", 60),
    "hyperrl/PythonMath-v0": ("hyperrl_tasks.python_math:PythonMath", 8),
    "hyperrl/SearchR1-v0": ("hyperrl_tasks.search_r1:SearchR1", 8),
    "hyperrl/RepoFix-v0": ("hyperrl_tasks.repo_fix:RepoFix", 24),
}
"""Entry point and turn limit by id."""

_OTHERS: set[str] = set()
_COLLECTED = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_PLAYED_THROUGH = (PassiveEnvChecker, OrderEnforcing, TimeLimit)


def register_all() -> None:
    """Register our environments with gymnasium, by name only: nothing of them is imported."""
    for env_id, (entry_point, turns) in _OURS.items():
        if env_id not in registry:
            gymnasium.register(env_id, entry_point=entry_point, max_episode_steps=turns)


def load_entry_points() -> tuple[str, ...]:
    """Import what installed packages publish under ``hyperrl.envs``; return the ids that are new.

    A package that fails to load is logged and left out.
    """
    before = set(registry)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry.load()
        except Exception as error:  # noqa: BLE001  # a stranger's package must not keep ours from working
            why = describe_error(error) + where_raised(error)
            logger.warning("the environments of %s cannot be loaded: %s", entry.value, why)
    new = set(registry) - before
    _OTHERS.update(new)
    return tuple(sorted(new))


def env_ids() -> tuple[str, ...]:
    """Return the ids of our environments and of those that :func:`load_entry_points` has found."""
    return tuple(sorted({*_OURS, *_OTHERS}))


def find_env_id(name: str) -> str:
    """Return the id that a person means: ``countdown`` and ``Countdown-v0`` are ``hyperrl/Countdown-v0``.

    Installed packages are loaded first. A name that means no id, or several, is returned as it is.
    """
    load_entry_points()
    meant = [env_id for env_id in env_ids() if _short_name(env_id) == _short_name(name)]
    return meant[0] if len(meant) == 1 and ":" not in name and "/" not in name else name


def _hint_short_name(name: str) -> str:
    """Say which environment is meant by what is nearly its short name, such as ``countdwn``."""
    ids = {_short_name(env_id): env_id for env_id in env_ids()}
    close = difflib.get_close_matches(_short_name(name), ids, n=1)
    return f" Did you mean {ids[close[0]]!r}?" if close else ""


def _hint_package(name: str) -> str:
    """Say what is missing where nothing has registered anything under the namespace of ``name``."""
    namespace, slash, _ = name.rpartition("/")
    known = {env_id.rpartition("/")[0] for env_id in env_ids()}
    if not slash or namespace in known or nearest(namespace, known):
        return ""
    return (
        f" Nothing is registered under {namespace!r}: install the package that does it; one that is not"
        f" installed is named with its module, as in '{namespace}:{name}'."
    )


def _short_name(env_id: str) -> str:
    return re.sub(r"-v\d+$|[^a-z0-9]", "", env_id.rpartition("/")[2].lower())


def make_env(env_id: str, **kwargs: Any) -> TextEnv:
    """Make an environment for a rollout, without gymnasium's wrappers.

    Its ``max_episode_steps`` holds the turn limit that it was registered with, since the rollout,
    not the ``TimeLimit`` wrapper, ends an episode that takes too many turns.

    Args:
        env_id: a registered id, or ``module:id`` to import a module first.
        **kwargs: for the environment's constructor.

    Raises:
        ConfigError: no such environment, or not with these arguments.
        EnvError: it is not a :class:`TextEnv`, or wears wrappers, which a rollout would not see.
    """
    from hyperrl.envs.core import TextEnv  # noqa: PLC0415  # registering must not import what it registers

    name = _find(env_id)
    try:
        outer = gymnasium.make(name, disable_env_checker=True, **kwargs)
    except TypeError as error:
        why = _hint_option(name, kwargs) or f"{error.__cause__ or error}{where_raised(error)}"
        raise ConfigError(f"{env_id} cannot be made with the arguments {kwargs}: {why}") from error
    env: Any = outer
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, _PLAYED_THROUGH):
            raise EnvError(
                f"{env_id} wears the wrapper {type(env).__name__}, which a rollout would leave out;"
                " do in the environment what the wrapper does"
            )
        env = env.env
    if not isinstance(env, TextEnv):
        raise EnvError(f"{env_id} is a {type(env).__name__}; a rollout plays subclasses of TextEnv")
    if "_face" not in vars(env):
        raise EnvError(
            f"{type(env).__name__}.__init__ must take **kwargs and first call super().__init__(**kwargs)"
        )
    env.max_episode_steps = None if outer.spec is None else outer.spec.max_episode_steps
    return env


def _hint_option(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Say which argument the environment does not have, or not of that type; empty if that is not it."""
    entry_point = gymnasium.spec(env_id).entry_point
    make = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if make is None:
        return ""
    own = [p.name for p in inspect.signature(make).parameters.values() if p.kind not in _COLLECTED]
    known = [*own, "split", "render_mode"]
    strange = [name for name in kwargs if name not in known]
    if strange:
        return f"it has no option {strange[0]!r}, only {', '.join(known)}.{nearest(strange[0], known)}"
    if set(kwargs) - set(own) and not _collects(make):
        return "its __init__ must take **kwargs and pass them on, super().__init__(**kwargs)"
    types = _plain_types(make)
    wrong = [name for name, value in kwargs.items() if name in types and not isinstance(value, types[name])]
    return (
        f"{wrong[0]} must be of the type {types[wrong[0]].__name__}, got {kwargs[wrong[0]]!r:.80}"
        if wrong
        else ""
    )


def _collects(make: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(make).parameters.values())


def _plain_types(make: Callable[..., Any]) -> dict[str, type]:
    """Return the parameters that are annotated with one class. A ``float`` may be whole, and is left out."""
    try:
        hints = typing.get_type_hints(vars(make).get("__init__", make) if isinstance(make, type) else make)
    except (NameError, TypeError):
        return {}
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and hint is not float}


def _find(env_id: str) -> str:
    """Import the module that ``env_id`` names, if it names one; return the id alone. Raises ConfigError."""
    module, _, name = env_id.rpartition(":")
    where = f" after importing {module!r} ({_import(module, env_id)})" if module else ""
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error as error:
        hint = (
            (not module and _hint_package(name))
            or nearest(name, [*env_ids(), *registry])
            or _hint_short_name(name)
            or (
                ""
                if module
                else f" One that is not ours is named with its module: '{_module_name(name)}:my/Env-v0'."
            )
        )
        raise ConfigError(
            f"there is no environment {name!r}{where}; known are {', '.join(env_ids())}.{hint}"
        ) from error
    return name


def _import(module: str, env_id: str) -> str:
    """Import a module; return the file that it came from. Raises ConfigError."""
    if not all(part.isidentifier() for part in module.split(".")) or module.endswith(".py"):
        raise ConfigError(
            f"{env_id!r} names no module but {module!r}: go to the folder that holds it, and write"
            f" {_module_name(module)}:{env_id.rpartition(':')[2]}"
        )
    try:
        return getattr(importlib.import_module(module), "__file__", None) or "it has no file"
    except ImportError as error:
        raise ConfigError(
            f"the module {module!r} of the environment {env_id!r} cannot be imported: {error}. Install it, or"
            " run from the directory that holds it"
        ) from error


def _module_name(path: str) -> str:
    """Return the name of the module that a file holds."""
    return PurePath(path).stem if path.endswith(".py") else "my_module"
