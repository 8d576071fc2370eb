"""What a request is for: the task itself, or something beside it that is not learned from by default.

Programs mark some of their side requests in headers. Others are told by their form: a title is asked for
without tools, by a system prompt that wants one for a conversation; a compaction by a last message of a known
kind; a sub-agent by the parent that its first message names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

from hyperrl.harness.gateway.exchange import ModelRequest

__all__ = ["Purpose", "Purposes", "thread_of"]

Purpose = Literal["task", "title", "compaction", "subagent"]

TITLE = re.compile(
    r"\btitle generator\b|\bnew conversation topic\b"
    r"|\b(?:create|generate|write|suggest|propose|come up with|give)\b[^.]{0,60}"
    r"\btitle\b(?! of an? | of the (?!session|conversation|thread|chat))[^.]{0,80}"
    r"\b(?:session|conversation|thread|chat)\b",
    re.IGNORECASE,
)
COMPACTION = re.compile(
    r"context checkpoint compaction|compaction engine|<state_snapshot>"
    r"|\bprompt for continuing (?:the|our|this) (?:conversation|session)\b"
    r"|\bsummar(?:y of|i[sz]e|i[sz]ing) (?:the|our|this) (?:\w+ )?(?:conversation|session|chat|history)"
    r"(?: history)?(?:,? (?:so far|above|up to (?:now|this point|here))\b"
    r"|(?! between| notes| of)[^.]{0,80}\b(?:context|continue|resume)\b)",
    re.IGNORECASE,
)
COMPACTOR = re.compile(
    r"\btasked with summari[sz]ing conversations\b|\bsummari[sz]es internal chat history\b", re.IGNORECASE
)
"""How some programs introduce the system prompt of the request that compacts their history."""

CHILD = re.compile(r"\bYour parent agent id is \"")
"""What stands in the first message of a sub-agent of DeepSeek Harness, also where no header tells."""

HEAD = 600
"""How many characters of a message are looked at; of one that may end in an instruction, both ends."""

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
        if _is_title(request):
            return "title"
        thread = thread_of(headers)
        if (thread and self._main_thread and thread != self._main_thread) or _is_child(request):
            return "subagent"
        if begun and _is_compaction(request):
            return "compaction"
        self._main_thread = self._main_thread or thread
        return "task"


def _is_title(request: ModelRequest) -> bool:
    """Whether this is a request without tools, by a system prompt about titles, for one answer."""
    first, rest = request.messages[0], request.messages[1:]
    if request.tools.schemas or first["role"] != "system":
        return False
    return TITLE.search(first["content"][:HEAD]) is not None and all(m["role"] == "user" for m in rest)


def _is_child(request: ModelRequest) -> bool:
    """Whether the first user message says that it comes from another agent."""
    first = next((m for m in request.messages[:2] if m["role"] == "user"), None)
    return first is not None and CHILD.search(first["content"]) is not None


def _is_compaction(request: ModelRequest) -> bool:
    """Whether the last message, or the system prompt, asks for a summary of what was said before."""
    first, last = request.messages[0], request.messages[-1]
    if last["role"] != "user":
        return False
    text = last["content"]
    asked = COMPACTION.search(text[: 2 * HEAD]) or COMPACTION.search(text[-4 * HEAD :])
    return asked is not None or (
        first["role"] == "system" and bool(COMPACTOR.search(first["content"][:HEAD]))
    )


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
