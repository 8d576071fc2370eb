"""What a long job shows while it works; the command line brings the real one."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Display", "Silent"]


class Display(Protocol):
    """Shows one phase at a time. Called from one thread; cheap enough to call for every episode."""

    def start(self, title: str, total: int) -> None:
        """Begin a phase of ``total`` units; ends the phase before."""
        ...

    def advance(self, units: int = 1, text: str = "") -> None:
        """Say that ``units`` more are done; ``text`` replaces what stands behind the bar."""
        ...

    def note(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def stop(self) -> None:
        """End the current phase. May be called again."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, title: str, total: int) -> None:
        """Show nothing."""

    def advance(self, units: int = 1, text: str = "") -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def stop(self) -> None:
        """Show nothing."""
