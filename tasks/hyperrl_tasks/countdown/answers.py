"""What an answer to a Countdown puzzle is worth: exact, bounded, and with a reason."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hyperrl_tasks.arithmetic import Expression, ExpressionError, read_expression

__all__ = ["MAX_ANSWER_CHARS", "Judgement", "judge"]

MAX_ANSWER_CHARS = 400
"""A longer answer line is refused unread."""

_TAGGED = re.compile(r"<answer>([^<]*)</answer>")
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")
_FENCE = re.compile(r"\n\s*```\s*$")
_TIMES = re.compile(r"(?<=[\d)])\s*[xX]\s*(?=[\d(])")
_LABEL = re.compile(r"^(?:final )?answer\s*:\s*", re.IGNORECASE)
_COMMANDS = (("\\times", "*"), ("\\cdot", "*"), ("\\div", "/"), ("\\left", ""), ("\\right", ""))
_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "∗": "*", "•": "*", "÷": "/", "∕": "/", "−": "-", "–": "-", "—": "-"}
)
_ARITHMETIC = re.compile(r"[0-9+\-*/%^().,= ]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What an answer is worth.

    Attributes:
        parsed: it is an expression.
        valid: it is an expression that keeps the rules, whatever its value is.
        reached: it is valid and its value is the target.
        reason: what is wrong with it, for a person; empty if it reached the target.
    """

    parsed: bool
    valid: bool
    reached: bool
    reason: str


def judge(
    answer: str, *, numbers: Sequence[int], target: int, operators: Collection[str], use_all: bool
) -> Judgement:
    r"""Judge an answer; never raises.

    The expression is what the last ``<answer>...</answer>`` or else the last ``\boxed{...}`` holds or,
    without one, the last line that is not blank. Behind an expression ``= N`` may stand, if ``N`` is its
    value.

    Args:
        answer: the text of the last action, without reasoning.
        numbers: the given numbers; each may be used once.
        target: the value to reach.
        operators: those that may be used; a sign counts as ``+`` or ``-``.
        use_all: every number must be used.
    """
    parsed = False
    try:
        expression = _read(_answer_line(answer))
        parsed = True
        _check_rules(expression, numbers, frozenset(operators), use_all=use_all)
    except ExpressionError as error:
        return Judgement(parsed=parsed, valid=False, reached=False, reason=str(error))
    reached = expression.value == target
    reason = "" if reached else f"the value is {expression.value!s:.40}, not {target}"
    return Judgement(parsed=True, valid=True, reached=reached, reason=reason)


def _answer_line(answer: str) -> str:
    marked: list[str] = _TAGGED.findall(answer) or _BOXED.findall(answer)
    line = marked[-1] if marked else _FENCE.sub("", answer.strip()).rpartition("\n")[2]
    line = line.strip().strip("*_`$ ")
    if len(line) > MAX_ANSWER_CHARS:
        raise ExpressionError(f"the answer line has {len(line)} characters; at most {MAX_ANSWER_CHARS} count")
    line = unicodedata.normalize("NFKC", _LABEL.sub("", line)).translate(_SIGNS)
    for command, sign in _COMMANDS:
        line = line.replace(command, sign)
    line = _TIMES.sub("*", " ".join(line.strip().strip("`$").split()))
    if not _ARITHMETIC.fullmatch(line):
        raise ExpressionError(f"{line!r} is not arithmetic alone")
    return line


def _read(line: str) -> Expression:
    text, equals, claimed = line.partition("=")
    expression = read_expression(text)
    if equals and read_expression(claimed).value != expression.value:
        raise ExpressionError(f"{text.strip()!r} is not equal to {claimed.strip()!r}")
    return expression


def _check_rules(
    expression: Expression, numbers: Sequence[int], operators: frozenset[str], *, use_all: bool
) -> None:
    strange = sorted(expression.operators - operators)
    if strange:
        raise ExpressionError(
            f"the operator {strange[0]!r} may not be used, only {' '.join(sorted(operators))}"
        )
    left = Counter(numbers)
    for number in expression.numbers:
        if not left[int(number)] or number.denominator != 1:
            raise ExpressionError(
                f"{number} is not among the numbers, or is used more often than it is there"
            )
        left[int(number)] -= 1
    if use_all and left.total():
        raise ExpressionError(f"not every number is used: {sorted(left.elements())} are left")
