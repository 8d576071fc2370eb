"""The first version of somebody's environment package, for ``hyperrl new``."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from hyperrl.errors import ConfigError, RunDirectoryError, nearest

__all__ = ["KINDS", "Scaffold", "plan_scaffold", "write_scaffold"]

KINDS = ("single", "tools", "multi-turn")
"""One answer; tools before the answer; a conversation with the environment."""

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold:
    """What is going to be written.

    Attributes:
        folder: of the project; it does not exist yet.
        module: name of the package in it.
        cls: name of the environment's class.
        env_id: under which it is registered.
        files: text by path below the folder.
    """

    folder: Path
    module: str
    cls: str
    env_id: str
    files: dict[str, str]


def plan_scaffold(name: str, *, parent: Path, kind: str = "single") -> Scaffold:
    """Make the files of an environment package, and write nothing.

    Args:
        name: of the project: small letters, digits, and ``-`` or ``_`` between them.
        parent: the folder in which the project's folder will be.
        kind: one of :data:`KINDS`.

    Raises:
        ConfigError: the name cannot be that of a package, or there is no such kind.
        RunDirectoryError: the project's folder exists.
    """
    if kind not in KINDS:
        raise ConfigError(f"there is no kind {kind!r}, only {', '.join(KINDS)}.{nearest(kind, KINDS)}")
    module = _module_name(name)
    folder = parent / name
    if folder.exists():
        raise RunDirectoryError(f"{folder} exists already; choose another name, or another folder with --dir")
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.origin is not None:
        raise ConfigError(f"a module {module!r} is there already and would be hidden; choose another name")
    cls = "".join(part.capitalize() for part in module.split("_"))
    env_id = f"{module}/{cls}-v0"
    words = {"project": name, "module": module, "cls": cls, "env_id": env_id}
    files = {
        "pyproject.toml": _fill("pyproject.toml", words),
        "README.md": _fill("README.md", words),
        f"{module}/__init__.py": _fill("init.py", words),
        f"{module}/env.py": _fill(f"{kind}.py", words),
        f"tests/test_{module}.py": _fill("tests.py", words),
    }
    return Scaffold(folder=folder, module=module, cls=cls, env_id=env_id, files=files)


def write_scaffold(scaffold: Scaffold) -> None:
    """Write the files.

    Raises:
        RunDirectoryError: the folder exists by now, or cannot be made.
        OSError: a file cannot be written.
    """
    try:
        scaffold.folder.mkdir(parents=True)
    except OSError as error:
        raise RunDirectoryError(
            f"{scaffold.folder} cannot be made: {error.strerror}; choose another folder with --dir"
        ) from error
    for name, text in scaffold.files.items():
        path = scaffold.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _module_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot name a package: expected small letters, digits, and - or _ between them, a"
            " letter first, such as word-game"
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        raise ConfigError(f"{module!r} is a word of Python itself; choose another name, such as {module}-env")
    return module


def _fill(name: str, words: dict[str, str]) -> str:
    text = Path(__file__).with_name(f"{name}.tmpl").read_text(encoding="utf-8")
    return Template(text).substitute(words)
