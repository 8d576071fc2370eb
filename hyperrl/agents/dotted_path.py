"""Finding what a config names by a dotted path."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from hyperrl.errors import ConfigError, nearest

__all__ = ["load_object"]


def load_object(path: str, *, what: str, example: str, known: Iterable[str] = ()) -> Any:
    """Return the object at ``package.module:name`` or ``package.module.name``.

    Args:
        path: the dotted path.
        what: what to call it in an error.
        example: a path as it could be.
        known: names that a registry would have known.

    Raises:
        ConfigError: nothing is found there.
    """
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    known = sorted(known)
    if not module_name or not attribute:
        one_of = f"one of {known} or " if known else ""
        raise ConfigError(
            f"unknown {what} {path!r}: expected {one_of}a dotted path such as {example!r}."
            f"{nearest(path, known)}"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{what} {path!r}: module {module_name!r} cannot be imported ({error}).{nearest(path, known)}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [item for item in vars(found) if not item.startswith("_")]
            raise ConfigError(f"{what} {path!r}: {module_name!r} has no {attribute!r}.{nearest(part, names)}")
        found = getattr(found, part)
    return found
