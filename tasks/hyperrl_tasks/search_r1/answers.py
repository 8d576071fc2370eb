"""Where an answer stands in what a policy says."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["AnswerFormat", "read_answer"]

AnswerFormat = Literal["tag", "line"]
"""``tag``: in the last ``<answer>...</answer>``; ``line``: there, or without it on the last line."""

_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_LABEL = re.compile(r"^(?:final )?answer\s*:\s*", re.IGNORECASE)
_MAX_CHARS = 10_000
_MAX_ANSWER_CHARS = 1_000


def read_answer(text: str, where: AnswerFormat) -> str | None:
    """Return the answer as written; ``None`` if there is none, or one of more than 1,000 characters.

    Args:
        text: the last action, without reasoning and tool calls; its last 10,000 characters count.
        where: where the answer stands.
    """
    tail = text[-_MAX_CHARS:]
    tagged: list[str] = _TAGGED.findall(tail)
    if not tagged and where == "tag":
        return None
    answer = (tagged[-1] if tagged else _LABEL.sub("", tail.strip().rpartition("\n")[2].strip())).strip()
    return answer if 0 < len(answer) <= _MAX_ANSWER_CHARS else None
