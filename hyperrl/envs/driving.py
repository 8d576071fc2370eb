"""Running an environment's coroutine from code that has no event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from hyperrl.errors import EnvError

__all__ = ["being_cancelled", "drive_in_place", "drive_on_loop", "in_event_loop"]

T = TypeVar("T")


def being_cancelled() -> bool:
    """Whether somebody cancels the running task.

    Else a ``CancelledError`` only says that something it waited for was cancelled: an error like others.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # driven in place, without a loop
        return False
    return task is not None and task.cancelling() > 0


def in_event_loop() -> bool:
    """Whether the caller runs in an event loop, which it must not keep waiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def drive_in_place(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop.

    Raises:
        EnvError: it waited after all.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise EnvError("an environment without async functions waited for something; declare it `async def`")


def drive_on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the process's background loop and wait for its result.

    The loop is made when first needed and made again in a forked child.

    Raises:
        EnvError: called from the background loop itself, which would wait for itself forever.
    """
    loop = _background.loop()
    if threading.get_ident() == _background.thread_id:
        coroutine.close()
        raise EnvError(
            "reset and step cannot be called from async code of an environment; use areset and astep"
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class _Background:
    """One event loop in a daemon thread, made on demand."""

    def __init__(self) -> None:
        self.thread_id: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._loop.run_forever, name="hyperrl-envs", daemon=True)
                thread.start()
                self.thread_id = thread.ident
            return self._loop


_background = _Background()


def _forget_after_fork() -> None:
    global _background  # noqa: PLW0603  # the parent's thread does not live in the child
    _background = _Background()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
