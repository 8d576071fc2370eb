"""How much of the demanded answer format a text keeps: a dense term for policies that solve nothing yet."""

from __future__ import annotations

import re

from hyperrl.envs.grading import extract_answer, is_number

__all__ = ["FULL_LENGTH_CHARS", "format_share"]

FULL_LENGTH_CHARS = 400
"""A longer answer keeps only this many characters' share of the part for length."""

_MARK = "####"
_LAST_NUMBER = re.compile(r"\d[\d,.]*\W{0,3}$")
_UNFINISHED_CALL = "<tool_call>"


def format_share(answer: str, *, complete: bool = True) -> float:
    """Return the share of the answer format that is right, in [0, 1]; 0 for an empty answer.

    It is the mean of seven parts, none of which looks at whether the number is right:

    1. a digit appears;
    2. the last line ends with a number;
    3. the mark: the longest run of ``#`` up to four, as a share of four;
    4. the mark appears exactly once;
    5. a readable number follows it;
    6. its line is the last one;
    7. length: 1 up to :data:`FULL_LENGTH_CHARS` characters, then inversely proportional; 0 if the
       answer was cut off or holds an unfinished tool call.

    Args:
        answer: the text of the last action, without reasoning and tool calls.
        complete: the policy ended the answer itself.
    """
    text = answer.strip()
    if not text:
        return 0.0
    last_line = text.rpartition("\n")[2]
    marked = extract_answer(text, "gsm8k")
    longest_run = max((len(run) for run in re.findall(r"#+", text)), default=0)
    finished = complete and _UNFINISHED_CALL not in text
    parts = (
        float(any(char.isdigit() for char in text)),
        float(bool(_LAST_NUMBER.search(last_line[-40:]))),
        min(longest_run, len(_MARK)) / len(_MARK),
        float(text.count(_MARK) == 1),
        float(marked is not None and is_number(marked)),
        float(_MARK in last_line),
        min(1.0, FULL_LENGTH_CHARS / len(text)) if finished else 0.0,
    )
    return sum(parts) / len(parts)
