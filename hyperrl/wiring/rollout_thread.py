"""The thread in which episodes are played: one asyncio loop, home of environments and programs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from types import TracebackType
from typing import Any, Self, TypeVar

from hyperrl.errors import RolloutError

__all__ = ["RolloutThread"]

T = TypeVar("T")
CANCEL_GRACE_S = 10.0
ALIVE_CHECK_S = 1.0
logger = logging.getLogger(__name__)


class RolloutThread:
    """One asyncio loop in one thread; the main thread hands it coroutines and waits.

    Used as a context manager. Leaving it cancels what still runs, waits for it, and ends the thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="hyperrl-rollout", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the loop and return its result. An interrupt of the caller cancels it.

        Raises:
            RolloutError: the thread is not running.
        """
        if not self._thread.is_alive():
            work.close()
            raise RolloutError("the rollout thread is not running")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while not wait([future], timeout=ALIVE_CHECK_S).done:
                if not self._thread.is_alive():
                    raise RolloutError(
                        f"an episode ended the rollout thread with {self._error!r}"
                    ) from self._error
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel every task, wait for them, end the thread. May be called again.

        Code that blocks the loop cannot be cancelled: after a grace its thread ends with the process.
        """
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(2 * CANCEL_GRACE_S)
            if self._thread.is_alive():
                logger.error("an environment or a program blocks the rollout thread, which is left behind")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        # asyncio lets a task's SystemExit through, and again where the task's parent is cancelled.
        for part in (self._loop.run_forever, self._end_tasks, self._end_tasks):
            try:
                part()
            except BaseException as error:  # noqa: BLE001 - it ends the rollout, not silently: run() raises it
                self._error = self._error or error
        self._loop.close()

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = self._loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_GRACE_S))
            for task in stuck:
                logger.error("task %s ignored its cancellation for %s s", task.get_name(), CANCEL_GRACE_S)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
