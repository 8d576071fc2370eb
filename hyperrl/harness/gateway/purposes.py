"""What a request is for: the task itself, or something beside it that is not learned from by default.

Programs mark some of their side requests in headers. Others are told by their form: a title is asked for
without tools, by a system prompt about titles of conversations; a compaction by a last message of a known
kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

from hyperrl.harness.gateway.exchange import ModelRequest

__all__ = ["Purpose", "Purposes", "thread_of"]

Purpose = Literal["task", "title", "compaction", "subagent"]

TITLE = re.compile(r"\b(?:title|topic)\b", re.IGNORECASE)
TITLED = re.compile(r"\b(?:session|conversation|thread|chat)\b", re.IGNORECASE)
COMPACTION = re.compile(
    r"context checkpoint compaction|compaction engine"
    r"|summar(?:y|ize|ise)\b.{0,80}\b(?:conversation|session|history)\b.{0,200}\b(?:context|continue|resume)",
    re.IGNORECASE | re.DOTALL,
)
HEAD = 600
"""How many characters of a message are looked at."""

THREAD_HEADERS = (
    "x-deepseek-harness-session-id",
    "x-claude-code-session-id",
    "x-session-id",
    "session_id",  # DeepSeek Harness over Responses
)
"""Headers that name a thread and have another value for a child."""


class Purposes:
    """Tells the purposes of the requests of one session."""

    def __init__(self) -> None:
        self._main_thread = ""

    def tell(self, request: ModelRequest, headers: Mapping[str, str], *, begun: bool) -> Purpose:
        """Return what a request is for.

        Args:
            request: the request.
            headers: those it came with, names in lower case.
            begun: a turn of the task was recorded before.
        """
        marked = _marked(headers)
        if marked is not None:
            return marked
        if self._is_title(request):
            return "title"
        thread = thread_of(headers)
        if thread and self._main_thread and thread != self._main_thread:
            return "subagent"
        last = request.messages[-1]
        if begun and last["role"] == "user" and COMPACTION.search(last["content"][-4 * HEAD :]):
            return "compaction"
        self._main_thread = self._main_thread or thread
        return "task"

    def _is_title(self, request: ModelRequest) -> bool:
        """Whether this is a request without tools, by a system prompt about titles, for one answer."""
        first, rest = request.messages[0], request.messages[1:]
        head = first["content"][:HEAD]
        if request.tools.schemas or first["role"] != "system" or not TITLE.search(head):
            return False
        return bool(TITLED.search(head)) and all(message["role"] == "user" for message in rest)


def thread_of(headers: Mapping[str, str]) -> str:
    """Return the thread that a request says it comes from; empty if it says none."""
    return next((headers[name] for name in THREAD_HEADERS if headers.get(name)), "")


def _marked(headers: Mapping[str, str]) -> Purpose | None:
    """Return the purpose that a program states."""
    if headers.get("x-deepseek-harness-compact"):
        return "compaction"
    stated = _turn_metadata(headers.get("x-codex-turn-metadata", ""))
    if stated.get("request_kind") == "compaction":
        return "compaction"
    if headers.get("x-openai-subagent") == "compact":
        return "compaction"
    child = stated.get("thread_source") == "subagent" or headers.get("x-codex-parent-thread-id")
    if headers.get("x-openai-subagent") or child:
        return "subagent"
    return None


def _turn_metadata(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
