"""Where metrics go: a JSON line for each iteration."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from hyperrl.train.metrics import find_metric

__all__ = ["JsonlTracker", "MetricsLogger", "Tracker"]


class Tracker(Protocol):
    """One place that metrics go to."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one iteration."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class JsonlTracker:
    """Appends one JSON object a line; each line is handed to the system before ``log`` returns.

    A killed process loses nothing it logged. A line torn by a full disk or a power cut is ended
    before the next one begins, so it never spoils its neighbour.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = _is_torn(path)
        self._file = path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _is_torn(path: Path) -> bool:
    """Whether the file's last line has no end."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


class MetricsLogger:
    """Checks every name against the table, then hands the metrics to every tracker.

    Usable as a context manager, which closes the trackers.
    """

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of one iteration.

        Raises:
            ConfigError: a name has no row in ``metrics.METRICS``; nothing is logged.
        """
        plain = {}
        for name, value in metrics.items():
            find_metric(name)
            plain[name] = float(value)
        for tracker in self._trackers:
            tracker.log(step, plain)

    def close(self) -> None:
        """Close every tracker."""
        for tracker in self._trackers:
            tracker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
