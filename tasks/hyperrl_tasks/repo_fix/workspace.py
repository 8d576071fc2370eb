"""The files of an episode: a mapping in memory. Nothing is written to a disk but by the sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hyperrl.errors import nearest

__all__ = ["MAX_CHARS", "MAX_FILES", "Workspace"]

MAX_FILES = 40
"""Files that a workspace may hold."""

MAX_CHARS = 200_000
"""Characters that all files together may have."""

_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_MAX_PATH = 100
_RESERVED = "program.py"
_MAX_MATCHES = 50
_LINE_CHARS = 300


class Workspace:
    """Files that can be read, searched and changed.

    Every method that takes a path raises ``ValueError`` for one that is absolute, leads outside, or is
    no plain path; so nothing but the files themselves can be named.

    Args:
        files: contents by path.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)

    def listing(self) -> str:
        """Return a line for each file: path and number of lines."""
        return "\n".join(f"{path} ({_size(text)})" for path, text in sorted(self.files.items()))

    def read(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Return the numbered lines from ``start`` to ``end``, both from 1 and included.

        Raises:
            ValueError: there is no such file, or no such lines in it.
        """
        lines = self._existing(path).splitlines()
        last = len(lines) if end is None else min(end, len(lines))
        if lines and not 1 <= start <= last:
            raise ValueError(f"{path} has lines 1 to {len(lines)}; {start} to {last} are none of them")
        return "\n".join(f"{number:>4}  {lines[number - 1]}" for number in range(start, last + 1))

    def search(self, text: str) -> str:
        """Return the lines that hold ``text``, with path and number.

        Raises:
            ValueError: there is nothing to look for.
        """
        if not text.strip():
            raise ValueError("give a text to look for")
        found = [
            f"{path}:{number}: {line.strip()[:_LINE_CHARS]}"
            for path, content in sorted(self.files.items())
            for number, line in enumerate(content.splitlines(), 1)
            if text in line
        ]
        if len(found) > _MAX_MATCHES:
            found = [*found[:_MAX_MATCHES], f"[... {len(found) - _MAX_MATCHES} more lines ...]"]
        return "\n".join(found) or "(no line holds it)"

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace ``old``, which must stand in the file exactly once.

        Raises:
            ValueError: there is no such file, or ``old`` does not stand in it once.
        """
        content = self._existing(path)
        count = content.count(old) if old else 0
        if count != 1:
            raise ValueError(f"the old text stands in {path} {count} times; it must stand there exactly once")
        self.write(path, content.replace(old, new))

    def write(self, path: str, content: str) -> None:
        """Make a file, or replace what is in it.

        Raises:
            ValueError: the path cannot be a file, or the workspace would be too large.
        """
        self._check(path)
        if any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in self.files):
            raise ValueError(f"{path} cannot be a file: a file and a folder would have the same name")
        changed = {**self.files, path: content}
        if len(changed) > MAX_FILES:
            raise ValueError(f"there can be at most {MAX_FILES} files")
        if sum(map(len, changed.values())) > MAX_CHARS:
            raise ValueError(f"all files together can have at most {MAX_CHARS:,} characters")
        self.files = changed

    def _existing(self, path: str) -> str:
        self._check(path)
        if path not in self.files:
            raise ValueError(
                f"there is no file {path!r}.{nearest(path, self.files)} list_files names them all"
            )
        return self.files[path]

    def _check(self, path: str) -> None:
        if len(path) > _MAX_PATH or not _PATH.fullmatch(path) or path == _RESERVED:
            raise ValueError(
                f"{path[:_MAX_PATH]!r} is no path of a file here; give one from the top of the repository,"
                f" of letters, digits, . _ - and /, and not {_RESERVED}"
            )


def _size(text: str) -> str:
    count = len(text.splitlines())
    return "1 line" if count == 1 else f"{count} lines"
