"""The folder of an evaluation: what was asked, what was played so far, and the figures at the end."""

from __future__ import annotations

import fcntl
import json
import math
import os
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hyperrl.errors import RunDirectoryError, StoreError
from hyperrl.sampling import EpisodeKey
from hyperrl.store import TrajectoryWriter, read_trajectories
from hyperrl.store.parts import find_parts
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.run_directory import refuse_unwritable, write_atomic

__all__ = ["EvalDirectory"]

PART_EPISODES = 64
PART_EVERY_S = 5.0
"""A part is written when it holds so many episodes, or its first one has waited so long."""


class EvalDirectory:
    """A folder with ``evaluation.json``, ``trajectories/`` and ``summary.json``, locked while it is used.

    Episodes are written as they end, by a thread of its own, so a killed evaluation loses those of the last
    seconds. Used as a context manager; leaving it writes what waits.

    Args:
        path: the folder; made if it is missing.
        settings: what is evaluated, as JSON values; a folder goes on only with equal ones.
        resume: go on in a folder that holds an evaluation.
        tokenizer: digest of the vocabulary that token ids are of.

    Attributes:
        ended: the episodes that were played here before and have a result. Failed ones are played again.

    Raises:
        RunDirectoryError: the folder is in use, cannot be written, is not empty (without ``resume``), or
            holds the evaluation of something else; the message lists the differences.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], *, resume: bool = False, tokenizer: str = ""
    ) -> None:
        refuse_unwritable(path)
        self.path = path
        self._tokenizer = tokenizer
        self.ended: dict[EpisodeKey, Trajectory] = {}
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path)
        try:
            self._claim(dict(settings), resume)
        except BaseException:
            os.close(self._lock)
            raise
        self._queue: queue.SimpleQueue[Trajectory | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="hyperrl-eval-writer", daemon=True)
        self._thread.start()

    def _claim(self, settings: dict[str, Any], resume: bool) -> None:
        asked = self.path / "evaluation.json"
        there = [path.name for path in self.path.iterdir() if path.name != _LOCK]
        if there and not resume:
            raise RunDirectoryError(
                f"{self.path} is not empty; choose another folder with --out, or go on with the evaluation"
                " in it with --resume"
            )
        if asked.exists():
            _refuse_other(self.path, json.loads(asked.read_text(encoding="utf-8")), settings)
        elif there:
            raise RunDirectoryError(
                f"{self.path} holds no evaluation to go on with: no evaluation.json in it"
            )
        else:
            write_atomic(asked, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
        self._writer = TrajectoryWriter(self.path / "trajectories", tokenizer=self._tokenizer)
        for trajectory in read_trajectories(self._writer.directory):
            if trajectory.failure is None:
                self.ended[EpisodeKey(trajectory.group_id, trajectory.sample_index)] = trajectory
        parts = find_parts(self._writer.directory)
        self._next_part = parts[-1].iteration + 1 if parts else 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, trajectory: Trajectory) -> None:
        """Keep an episode that ended.

        Raises:
            StoreError: an earlier one could not be written.
        """
        if self._error is not None:
            raise StoreError(f"the episodes cannot be kept: {self._error}") from self._error
        self._queue.put(trajectory)

    def finish(self, trajectories: Iterable[Trajectory], summary: Mapping[str, Any]) -> None:
        """Lay all episodes into one part, in order, and write ``summary.json``."""
        self._end_thread()
        order = sorted(trajectories, key=lambda t: (t.group_id, t.sample_index))
        self._writer.write_part(order, iteration=0)
        for part in find_parts(self._writer.directory):
            if part.iteration:
                (self._writer.directory / part.filename).unlink()
        write_atomic(
            self.path / "summary.json", json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n"
        )

    def close(self) -> None:
        """Write what waits and let the folder go. May be called again."""
        try:
            self._end_thread()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _end_thread(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise StoreError(f"the episodes cannot be kept: {error}") from error

    def _write(self) -> None:
        try:
            while (first := self._queue.get()) is not None:
                batch, ended = self._gather(first)
                self._writer.write_part(batch, iteration=self._next_part)
                self._next_part += 1
                if ended:
                    return
        except Exception as error:  # noqa: BLE001  (raised again by add and close, in the caller's thread)
            self._error = error

    def _gather(self, first: Trajectory) -> tuple[list[Trajectory], bool]:
        """Return the episodes of a part, and whether they are the last."""
        batch, until = [first], time.monotonic() + PART_EVERY_S
        while len(batch) < PART_EPISODES and (left := until - time.monotonic()) > 0:
            try:
                following = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if following is None:
                return batch, True
            batch.append(following)
        return batch, False


_LOCK = "eval.lock"


def _lock(path: Path) -> int:
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise RunDirectoryError(
            f"{path} is in use by another evaluation; wait for it, or choose another folder with --out"
        ) from error
    return lock


def _refuse_other(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    differences = [
        f"{name}: {json.dumps(there.get(name))} there, {json.dumps(here.get(name))} here"
        for name in dict.fromkeys([*there, *here])
        if there.get(name) != here.get(name)
    ]
    if differences:
        raise RunDirectoryError(
            f"{path} holds the evaluation of something else ({'; '.join(differences)}); give the same"
            " options, or choose another folder with --out"
        )


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace what is not a number by null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
