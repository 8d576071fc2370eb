"""Progress on a terminal (a bar) and elsewhere (a line every few seconds)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hyperrl.errors import RunDirectoryError
from hyperrl.wiring.display import Display

__all__ = ["BarDisplay", "LineDisplay", "make_display", "shown"]

LINE_EVERY_S = 5.0
IDLE_LINE_EVERY_S = 30.0


class BarDisplay:
    """A progress bar with the latest numbers behind it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def start(self, title: str, total: int) -> None:
        self.stop()
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self._progress = Progress(*columns, console=self._console)
        self._task = self._progress.add_task(title, total=total, text="")
        self._progress.start()

    def advance(self, units: int = 1, text: str = "") -> None:
        if self._progress is None:
            return
        if text:
            self._progress.update(self._task, advance=units, text=text)
        else:
            self._progress.update(self._task, advance=units)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class LineDisplay:
    """A line every few seconds while something changes, fewer while not, and one at the end of a phase.

    For logs and pipes. The lines come from a thread of their own, so a long step shows life too.
    """

    def __init__(
        self, console: Console, *, every_s: float = LINE_EVERY_S, idle_every_s: float = IDLE_LINE_EVERY_S
    ) -> None:
        self._console = console
        self._every_s = every_s
        self._idle_every_s = idle_every_s
        self._title = ""
        self._total = 0
        self._done = 0
        self._text = ""
        self._shown = (0, "")
        self._began = self._last = 0.0
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def start(self, title: str, total: int) -> None:
        self.stop()
        self._title, self._total, self._done, self._text = title, total, 0, ""
        self._shown = (0, "")
        self._began = self._last = time.monotonic()
        self._ended.clear()
        self._ticker = threading.Thread(target=self._tick, name="hyperrl-display", daemon=True)
        self._ticker.start()

    def advance(self, units: int = 1, text: str = "") -> None:
        self._done += units
        self._text = text or self._text

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        if self._ticker is not None:
            self._ended.set()
            self._ticker.join()
            self._ticker = None
            self._print()

    def _tick(self) -> None:
        while not self._ended.wait(self._every_s):
            changed = self._shown != (self._done, self._text)
            if changed or time.monotonic() - self._last >= self._idle_every_s:
                self._print()

    def _print(self) -> None:
        self._last = time.monotonic()
        self._shown = (self._done, self._text)
        elapsed = self._last - self._began
        self.note(f"{self._title} {self._done}/{self._total} {elapsed:.0f} s {self._text}".rstrip())


def make_display() -> Display:
    """Return a bar for a terminal on standard error, else lines."""
    console = Console(stderr=True)
    return BarDisplay(console) if sys.stderr.isatty() else LineDisplay(console)


@contextmanager
def shown(kept: Callable[[], str] = lambda: "") -> Iterator[Display]:
    """Yield a display that ends with the block; say where things lie if the block does not reach its end.

    Args:
        kept: says what was written so far; empty if nothing was.
    """
    display = make_display()
    try:
        yield display
    except RunDirectoryError:
        raise  # what lies in a folder that is refused is not of this run
    except BaseException as error:
        display.stop()
        if (text := kept()) or not isinstance(error, Exception):
            print(f"stopped before the end: {text or 'nothing was written'}", file=sys.stderr)
        raise
    finally:
        display.stop()
