"""The folder of a run: what lies where, and that only one run writes to it at a time."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hyperrl.errors import RunDirectoryError

__all__ = ["RunDirectory", "refuse_existing", "write_atomic"]

_OURS = ("config.yaml", "metrics.jsonl", "summary.json", "reward_curve.png", "trajectories", "model")


class RunDirectory:
    """A run's folder, locked while the run is alive.

    Layout: ``config.yaml`` (resolved), ``metrics.jsonl``, ``trajectories/`` (the store),
    ``reward_curve.png``, ``model/`` (final policy), ``summary.json``, ``run.lock``.

    Raises:
        RunDirectoryError: another run holds the folder, it holds an earlier run and ``overwrite``
            is off, or it cannot be written.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self._lock: int | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunDirectoryError(
                f"run directory {path} cannot be written: {error.strerror};"
                " choose another with --set run.dir=PATH"
            ) from error
        try:
            self._claim(lock, overwrite)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _claim(self, lock: int, overwrite: bool) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = (self.path / "run.lock").read_text(encoding="utf-8").strip() or "unknown"
            raise RunDirectoryError(
                f"run directory {self.path} is in use by another run (process {holder});"
                " wait for it, or choose another with --set run.dir=PATH"
            ) from error
        found = [name for name in _OURS if (self.path / name).exists()]
        if found and not overwrite:
            raise RunDirectoryError(
                f"run directory {self.path} holds an earlier run ({', '.join(found)}); choose another"
                " with --set run.dir=PATH, or replace it with --set run.overwrite=true"
            )
        for name in found:
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
    def reward_curve(self) -> Path:
        """Reward and held-out success over the iterations."""
        return self.path / "reward_curve.png"

    @property
    def model(self) -> Path:
        """The final policy as a model directory."""
        return self.path / "model"

    def write_config(self, text: str) -> None:
        """Keep the resolved config."""
        write_atomic(self.path / "config.yaml", text)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep the numbers that a run is judged by."""
        write_atomic(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")


def refuse_existing(path: Path, *, overwrite: bool, how: str) -> None:
    """Refuse to write a model directory over what is there.

    Raises:
        RunDirectoryError: ``path`` has something in it and ``overwrite`` is off.
    """
    if path.exists() and not overwrite and (not path.is_dir() or any(path.iterdir())):
        raise RunDirectoryError(f"{path} exists already; choose another path, or replace it with {how}")


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
