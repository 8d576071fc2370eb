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
    except OSError as error:  # a full disk, a folder that was taken away
        print(f"hyperrl: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave through the same clean-up as any other exit."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(EXIT_TERMINATED)
