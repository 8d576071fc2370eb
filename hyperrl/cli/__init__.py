"""The command line: reads arguments, sets up logging and progress, turns errors into exit codes.

Exit codes: 0 done; 1 the job failed; 2 the input is not acceptable; 130 stopped by Ctrl-C; 143 stopped
by SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from hyperrl.errors import (
    ConfigError,
    DataError,
    EnvError,
    HyperrlError,
    MissingExtraError,
    ModelError,
    RunDirectoryError,
)

__all__ = ["main"]

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_TERMINATED = 143

_BAD_INPUT = (
    ConfigError,
    DataError,
    EnvError,
    MissingExtraError,
    ModelError,
    RunDirectoryError,
)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit. Modules in the working directory can be named, as with ``python -m``."""
    sys.path.append(os.getcwd())
    from hyperrl.cli.app import app

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(args=arguments, prog_name="hyperrl")
    except HyperrlError as error:
        print(f"hyperrl: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT if isinstance(error, _BAD_INPUT) else EXIT_FAILED)
    except Exception as error:
        text = _describe_stray(error)
        if not text:
            raise  # a fault of ours: its traceback is what a report needs
        print(f"hyperrl: {text}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def _describe_stray(error: Exception) -> str:
    """Say what was raised that is no error of ours; empty if nobody but us can have caused it."""
    from hyperrl.envs.author_code import where_raised
    from hyperrl.envs.tool_text import describe_error

    if place := where_raised(error):  # an environment, policy or reward of the user's raised it
        return f"{describe_error(error)}{place}"
    if isinstance(error, SyntaxError):  # its text says where
        return describe_error(error)
    return str(error) if isinstance(error, OSError) else ""  # a full disk, a folder that was taken away


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave through the same clean-up as any other exit."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(EXIT_TERMINATED)
