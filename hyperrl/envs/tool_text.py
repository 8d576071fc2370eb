"""What a tool's outcome looks like as text that a policy reads."""

from __future__ import annotations

import json

__all__ = ["describe_error", "result_text", "shorten"]

_NOTICE_ROOM = 80


def result_text(value: object) -> str:
    """Return a tool's result as text: a ``str`` as it is, anything else as JSON."""
    if isinstance(value, str):
        return str(value)
    if value is None:
        return "(no result)"
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError):
        return str(value)


def _plain(value: object) -> object:
    """What JSON does not know: pydantic models, numpy values, anything with a text."""
    for name in ("model_dump", "tolist"):
        convert = getattr(value, name, None)
        if callable(convert):
            return convert()
    return str(value)


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
