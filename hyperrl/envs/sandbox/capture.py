"""Keeping the start and the end of an output of any length in bounded memory."""

from __future__ import annotations

__all__ = ["OutputCapture"]


class OutputCapture:
    """The first and the last bytes of a stream.

    Args:
        limit: bytes to keep, half of them from the start.
    """

    def __init__(self, limit: int) -> None:
        self._head_size = (limit + 1) // 2
        self._tail_size = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_size + 65536:  # trimmed rarely, so that bytes move rarely
            del self._tail[: len(self._tail) - self._tail_size]

    @property
    def dropped(self) -> int:
        """Bytes that are not kept."""
        return self.total - len(self._head) - len(self._kept_tail())

    def text(self) -> str:
        """Return what was kept, with a notice where bytes are missing; what is not UTF-8 becomes U+FFFD."""
        if not self.dropped:
            return (self._head + self._kept_tail()).decode("utf-8", errors="replace")
        head = self._head.decode("utf-8", errors="replace")
        tail = self._kept_tail().decode("utf-8", errors="replace")
        return f"{head}\n[... {self.dropped} bytes left out ...]\n{tail}"

    def _kept_tail(self) -> bytearray:
        return self._tail[max(0, len(self._tail) - self._tail_size) :]
