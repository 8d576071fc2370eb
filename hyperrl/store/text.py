"""Text that every file format takes: lone surrogates are escaped, and come back exactly.

A Python ``str`` may hold surrogate code points (a broken tokenizer output, a file name, half an emoji)
that UTF-8 cannot. Each one becomes U+FDD0, a code point that Unicode reserves for such internal use,
followed by four hexadecimal digits; U+FDD0 itself is doubled. All other text is stored as it is.
"""

from __future__ import annotations

import re

__all__ = ["escape", "restore"]

_MARK = "\ufdd0"
_UNSAFE = re.compile("[\ud800-\udfff\ufdd0]")
_ESCAPED = re.compile("\ufdd0(\ufdd0|[0-9a-f]{4})")


def escape(text: str) -> str:
    """Return text that encodes to UTF-8 and that :func:`restore` turns back into ``text``."""
    if text.isascii() or _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda found: _escaped(found[0]), text)


def restore(text: str) -> str:
    """Undo :func:`escape`."""
    return _ESCAPED.sub(lambda found: _restored(found[1]), text) if _MARK in text else text


def _escaped(character: str) -> str:
    return _MARK + (_MARK if character == _MARK else f"{ord(character):04x}")


def _restored(code: str) -> str:
    return _MARK if code == _MARK else chr(int(code, 16))
