"""Arguments that several commands share."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from hyperrl.errors import ConfigError, MissingExtraError

__all__ = [
    "ConfigPath",
    "EnvArguments",
    "Overrides",
    "parse_env_arguments",
    "parse_pairs",
    "require_training",
]

ConfigPath = Annotated[Path, typer.Argument(help="YAML config; configs/ has examples.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="a.b=VALUE", help="Override one option; may be repeated."),
]
EnvArguments = Annotated[
    list[str] | None,
    typer.Option("--env-arg", metavar="NAME=VALUE", help="Argument of the environment; repeatable."),
]


def parse_env_arguments(pairs: list[str] | None) -> dict[str, Any]:
    """Turn the pairs of ``--env-arg`` into keyword arguments, as :func:`parse_pairs` does."""
    return parse_pairs(pairs, "--env-arg")


def parse_pairs(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """Turn ``name=value`` pairs of an option into keyword arguments; values are read as YAML.

    Raises:
        ConfigError: a pair has no name or no equals sign, or its value is not YAML.
    """
    arguments: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"{option} {pair!r} must look like name=value")
        try:
            arguments[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{option} {pair!r}: the value is not YAML: {error}") from error
    return arguments


def require_training() -> None:
    """Say how to install what training needs, before anything else is looked at.

    Raises:
        MissingExtraError: a package of the extra ``train`` is not installed.
    """
    for package in ("torch", "transformers", "tokenizers", "jinja2", "matplotlib"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "train")
