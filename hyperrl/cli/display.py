"""Progress on a terminal (a bar) and elsewhere (a line every few seconds)."""

from __future__ import annotations

import sys
import time

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

from hyperrl.wiring.display import Display

__all__ = ["BarDisplay", "LineDisplay", "make_display"]

LINE_EVERY_S = 5.0


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
    """A line every few seconds and one at the end of a phase, for logs and pipes."""

    def __init__(self, console: Console, *, every_s: float = LINE_EVERY_S) -> None:
        self._console = console
        self._every_s = every_s
        self._title: str | None = None
        self._total = 0
        self._done = 0
        self._text = ""
        self._began = self._last = 0.0

    def start(self, title: str, total: int) -> None:
        self.stop()
        self._title, self._total, self._done, self._text = title, total, 0, ""
        self._began = self._last = time.monotonic()

    def advance(self, units: int = 1, text: str = "") -> None:
        self._done += units
        self._text = text or self._text
        now = time.monotonic()
        if self._title is not None and now - self._last >= self._every_s:
            self._last = now
            self._print()

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        if self._title is not None:
            self._print()
            self._title = None

    def _print(self) -> None:
        elapsed = time.monotonic() - self._began
        self.note(f"{self._title} {self._done}/{self._total} {elapsed:.0f} s {self._text}".rstrip())


def make_display() -> Display:
    """Return a bar for a terminal on standard error, else lines."""
    console = Console(stderr=True)
    return BarDisplay(console) if sys.stderr.isatty() else LineDisplay(console)
