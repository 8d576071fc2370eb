"""What a check found: one promise, and all promises of an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hyperrl.envs.author_code import describe_raised
from hyperrl.errors import MissingExtraError

__all__ = ["Check", "CheckReport", "FailedError", "SkippedError", "WarnedError", "look"]

Status = Literal["pass", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise.

    Attributes:
        name: what was promised.
        status: ``pass``, ``fail``, ``warn`` where it is kept badly (clocks differ between machines, so
            a slow environment does not fail), or ``skip`` where the environment does not say enough.
        detail: what was seen.
    """

    name: str
    status: Status
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The promises of one environment.

    Attributes:
        env_id: which one.
        checks: each promise, in the order in which it was looked at.
        step_us: median microseconds of a step, the author's code included.
        reset_us: median microseconds of a reset to a task that was not played before.
    """

    env_id: str
    checks: tuple[Check, ...]
    step_us: float = 0.0
    reset_us: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "fail")


class FailedError(Exception):
    """A promise was not kept; the message says how."""


class WarnedError(Exception):
    """A promise is kept, but badly."""


class SkippedError(Exception):
    """The environment does not say enough to look."""


def look(name: str, promise: Callable[[], str]) -> Check:
    """Look at one promise: a function that says what it saw, or raises one of the errors above.

    Raises:
        MissingExtraError: the environment needs an optional part that is not installed.
    """
    try:
        return Check(name=name, status="pass", detail=promise())
    except SkippedError as reason:
        return Check(name=name, status="skip", detail=str(reason))
    except WarnedError as reason:
        return Check(name=name, status="warn", detail=str(reason))
    except FailedError as error:
        return Check(name=name, status="fail", detail=str(error))
    except MissingExtraError:
        raise  # nothing can be found out before it is installed
    except Exception as error:  # noqa: BLE001  # whatever a stranger's environment raises is the finding
        return Check(name=name, status="fail", detail=describe_raised(error))
