"""Where code that an author wrote raised something: the line that a person has to look at."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from hyperrl.envs.tool_text import describe_error
from hyperrl.errors import HyperrlError

__all__ = ["describe_raised", "where_raised"]

_OURS = str(Path(__file__).parents[1]) + os.sep
_PYTHON = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_BETWEEN = frozenset(
    {
        "anyio",
        "click",
        "gymnasium",
        "httpcore",
        "httpx",
        "jinja2",
        "jsonschema",
        "math_verify",
        "matplotlib",
        "mcp",
        "numpy",
        "pyarrow",
        "pydantic",
        "rich",
        "safetensors",
        "starlette",
        "sympy",
        "tokenizers",
        "torch",
        "transformers",
        "typer",
        "uvicorn",
        "yaml",
    }
)
"""Installed packages that call authors' code, or that we call: by themselves they mean a fault of ours."""


def describe_raised(error: BaseException) -> str:
    """Return what an exception says and, unless it is one of ours, where an author's code raised it."""
    return describe_error(error) + ("" if isinstance(error, HyperrlError) else where_raised(error))


def where_raised(error: BaseException) -> str:
    """Return where code outside hyperrl raised ``error``, such as ``" (games.py, line 12, in start)"``.

    The innermost line of an author's own files counts; where there is none, that of an installed package.
    Empty where only hyperrl, what it is built on, and Python were running.
    """
    found = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_authors(frame)]
    own = [place for place in found if not place[0].f_code.co_filename.startswith(_INSTALLED)]
    if not found:
        return ""
    frame, line = (own or found)[-1]
    return f" ({Path(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name})"


def _is_authors(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith(_INSTALLED):
        package = Path(file).relative_to(next(p for p in _INSTALLED if file.startswith(p))).parts[0]
        return package not in _BETWEEN and not file.startswith(_OURS)
    return not file.startswith(("<", _OURS, *_PYTHON))
