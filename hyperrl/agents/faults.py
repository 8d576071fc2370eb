"""Which part of an episode an exception came from, and what of it is recorded."""

from __future__ import annotations

from hyperrl.envs.author_code import describe_raised
from hyperrl.errors import RolloutError
from hyperrl.trajectory import Failure

__all__ = ["EpisodeError", "Faults"]

REASON_LIMIT = 2000


class EpisodeError(RolloutError):
    """An episode cannot go on for a reason that has a name of its own.

    Attributes:
        kind: what the failure is counted by.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class Faults:
    """Remembers at which stage an exception was raised while it travels through a program."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: tuple[tuple[BaseException, str], ...] = ()

    def note(self, error: BaseException, stage: str) -> None:
        """Say that ``error`` was raised at ``stage``. The first note of an exception stays."""
        self._noted += ((error, stage),)

    def failure(self, error: BaseException) -> Failure:
        """Return the failure that ``error`` means for its episode.

        The kind is the error's own, or ``<stage>_error``. What no part of ours noted, the program raised.
        """
        stage = next((stage for noted, stage in self._noted if noted is error), "program")
        kind = error.kind if isinstance(error, EpisodeError) else f"{stage}_error"
        return Failure(kind=kind, stage=stage, reason=describe_raised(error)[:REASON_LIMIT])
