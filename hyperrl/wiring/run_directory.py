"""The folder of a run: what lies where, and that only one run writes to it at a time."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hyperrl.errors import RunDirectoryError

__all__ = [
    "RUN_FILES",
    "RunDirectory",
    "kept_files",
    "refuse_existing",
    "refuse_unavailable",
    "refuse_unwritable",
    "write_atomic",
]

RUN_FILES = (
    "config.yaml",
    "metrics.jsonl",
    "trajectories",
    "evaluations",
    "reward_curve.png",
    "model",
    "summary.json",
    "nonfinite.json",
    "profile",
    "failure.json",
)
"""What a run leaves in its folder, and what ``overwrite`` replaces."""

_LOCK = "run.lock"


class RunDirectory:
    """A run's folder, locked while the run is alive.

    Layout: ``config.yaml`` (resolved), ``metrics.jsonl``, ``trajectories/`` (the store), ``evaluations/``
    (the stores ``sampled`` and ``greedy`` of held-out episodes),
    ``reward_curve.png``, ``model/`` (final policy), ``summary.json``, ``run.lock``; ``failure.json`` where
    the run failed, and ``nonfinite.json`` where updates that were not finite have ended it.

    Raises:
        RunDirectoryError: another run holds the folder, it holds an earlier run and ``overwrite``
            is off, or it cannot be written.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self._lock: int | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _unwritable(path, str(error.strerror)) from error
        try:
            self._claim(lock, overwrite)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _claim(self, lock: int, overwrite: bool) -> None:
        _lock(lock, self.path, fcntl.LOCK_EX)
        _refuse_earlier(self.path, overwrite)
        for name in RUN_FILES:
            if (self.path / name).exists():
                _remove(self.path / name)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the folder go. May be called again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def metrics(self) -> Path:
        """One JSON object a line: an iteration or an evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def trajectories(self) -> Path:
        """The trajectory store."""
        return self.path / "trajectories"

    @property
    def evaluations(self) -> Path:
        """The trajectory stores of held-out evaluations, ``sampled`` and ``greedy``."""
        return self.path / "evaluations"

    @property
    def reward_curve(self) -> Path:
        """Reward and held-out success over the iterations."""
        return self.path / "reward_curve.png"

    @property
    def failure(self) -> Path:
        """Why the run stopped before its end, and how to repeat it."""
        return self.path / "failure.json"

    @property
    def profile(self) -> Path:
        """Traces of iterations."""
        return self.path / "profile"

    @property
    def model(self) -> Path:
        """The final policy as a model directory."""
        return self.path / "model"

    def write_config(self, text: str) -> None:
        """Keep the resolved config."""
        write_atomic(self.path / "config.yaml", text)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep the numbers that a run is judged by; what is not a number is ``null``."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in summary.items()
        }
        write_atomic(self.path / "summary.json", json.dumps(finite, indent=2, allow_nan=False) + "\n")

    def write_evidence(self, evidence: Sequence[Mapping[str, Any]]) -> Path:
        """Keep what is known about updates that were not finite, one object each; return the file."""
        path = self.path / "nonfinite.json"
        write_atomic(path, json.dumps(list(evidence), indent=2, allow_nan=False) + "\n")
        return path


def refuse_unavailable(path: Path, *, overwrite: bool) -> None:
    """Refuse a folder that a run could not take now; nothing is written.

    Raises:
        RunDirectoryError: as ``RunDirectory`` would.
    """
    refuse_unwritable(path)
    try:
        lock = os.open(path / _LOCK, os.O_RDONLY)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unwritable(path, str(error.strerror)) from error
    else:
        try:
            _lock(lock, path, fcntl.LOCK_SH)
        finally:
            os.close(lock)
    _refuse_earlier(path, overwrite)


def kept_files(path: Path) -> list[str]:
    """Return what a run of this process has left in its folder; nothing if the folder was never its own."""
    try:
        holder = (path / _LOCK).read_text(encoding="utf-8").strip()
    except OSError:
        return []
    return [name for name in RUN_FILES if holder == str(os.getpid()) and (path / name).exists()]


def refuse_existing(path: Path, *, overwrite: bool, how: str) -> None:
    """Refuse to write a model directory where it cannot or may not stand.

    Raises:
        RunDirectoryError: ``path`` has something in it and ``overwrite`` is off, or something that is
            no model; or it cannot be written.
    """
    refuse_unwritable(path)
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise RunDirectoryError(f"{path} exists already; choose another path, or replace it with {how}")
    if not (path / "config.json").exists():
        raise RunDirectoryError(f"{path} exists and is not a model directory; choose another path")


def refuse_unwritable(path: Path) -> None:
    """Refuse a folder that cannot be made or written in.

    Raises:
        RunDirectoryError: it, or the nearest folder above it that exists, is no folder or not ours to write.
    """
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise _unwritable(path, f"{existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _unwritable(path, f"no permission to write in {existing}")


def _unwritable(path: Path, why: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"directory {path} cannot be written: {why}; choose another (run.dir, model.path or --out)"
    )


def _lock(lock: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError as error:
        holder = (path / _LOCK).read_text(encoding="utf-8").strip() or "unknown"
        raise RunDirectoryError(
            f"run directory {path} is in use by another run (process {holder});"
            " wait for it, or choose another with --set run.dir=PATH"
        ) from error


def _refuse_earlier(path: Path, overwrite: bool) -> None:
    found = [name for name in RUN_FILES if (path / name).exists()]
    if found and not overwrite:
        raise RunDirectoryError(
            f"run directory {path} holds an earlier run ({', '.join(found)}); choose another"
            " with --set run.dir=PATH, or replace it with --set run.overwrite=true"
        )


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
