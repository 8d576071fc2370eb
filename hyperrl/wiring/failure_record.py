"""What a run that failed leaves behind, so that its last update can be repeated."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hyperrl.store import list_iterations
from hyperrl.train.trainer import Trainer
from hyperrl.wiring.display import Display
from hyperrl.wiring.run_directory import RunDirectory, write_atomic

__all__ = ["keep_failure"]

logger = logging.getLogger(__name__)


@contextmanager
def keep_failure(run: RunDirectory, trainer: Trainer, display: Display) -> Iterator[None]:
    """Write ``failure.json`` if the block raises, and say how to replay the iteration.

    An iteration's episodes are on disk before they are learned from; together with the config and the
    starting point they give the same update again (``hyperrl replay``).

    Args:
        run: the run's folder.
        trainer: runs in the block.
        display: says what to do.
    """
    try:
        yield
    except Exception as error:
        try:
            _write(run, trainer, display, error)
        except OSError as problem:  # often the disk is full, and the error that says so must stay the first
            logger.error("%s was not written: %s", run.failure, problem)
        raise


def _write(run: RunDirectory, trainer: Trainer, display: Display, error: Exception) -> None:
    iteration = trainer.iteration + 1
    stored = iteration in list_iterations(run.trajectories)
    replay = f"hyperrl replay {run.path} --iteration {iteration}" if stored else None
    record = {
        "error": type(error).__name__,
        "message": str(error),
        "iteration": iteration,
        "policy_version": trainer.version,
        "replay": replay,
    }
    write_atomic(run.failure, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    if replay is not None:
        display.note(f"iteration {iteration} failed; '{replay}' repeats its update")
