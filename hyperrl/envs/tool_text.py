"""What a tool's outcome looks like as text that a policy reads."""

from __future__ import annotations

import dataclasses
import enum
import json
import re

__all__ = ["describe_error", "result_text", "shorten"]

_NOTICE_ROOM = 80
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>$")
"""How Python ends the text of an object that has none."""


def result_text(value: object) -> str:
    """Return a tool's result as text: a ``str`` as it is, anything else as JSON.

    Sets become sorted lists, dataclasses and pydantic models objects, members of an enum their values.

    Raises:
        TypeError: an object of which only its place in memory could be told, such as a generator.
    """
    if isinstance(value, str):
        return str(value)
    if value is None:
        return "(no result)"
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except _NoTextError as error:
        raise TypeError(str(error)) from None
    except (TypeError, ValueError):
        return str(value)


class _NoTextError(Exception):
    """A value that says nothing of itself."""


def _plain(value: object) -> object:
    """What JSON does not know: sets, models, numpy values, anything with a text."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)  # the order of a set differs between processes
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for name in ("model_dump", "tolist"):
        convert = getattr(value, name, None)
        if callable(convert):
            return convert()
    text = str(value)
    if _ADDRESS.search(text):
        raise _NoTextError(f"the tool returned a {type(value).__name__}; it must return a text or plain data")
    return text


def describe_error(error: BaseException) -> str:
    """Return the kind and the message of an exception, without where it was raised."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a stranger's exception that cannot even say what it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shorten(text: str, limit: int) -> str:
    """Return at most ``limit`` characters: head and tail, and between them how many are left out."""
    if len(text) <= limit:
        return text
    kept = max(limit - _NOTICE_ROOM, 0)
    head = (kept + 1) // 2
    notice = f"\n[... {len(text) - kept:,} of {len(text):,} characters left out ...]\n"
    return f"{text[:head]}{notice}{text[len(text) - (kept - head) :]}"
