r"""Grades short answers exactly: numbers, fractions, roots, tuples, sets, intervals, words.

Nothing here is a float: numbers are fractions and sums of square roots, so ``123456789012345678901``
is not ``123456789012345678902`` and ``1/3`` is not ``0.333``. No answer takes more than a few
milliseconds: what would be too large to compute has no value, and equals only its own spelling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from hyperrl.envs.grading.exact import Exact
from hyperrl.envs.grading.extraction import AnswerStyle, bare_gold, extract_answer
from hyperrl.envs.grading.numbers import Quantity
from hyperrl.envs.grading.plain_latex import plain_latex
from hyperrl.envs.grading.plain_text import plain_text
from hyperrl.envs.grading.polynomials import constant_value, same_polynomial
from hyperrl.envs.grading.reading import (
    MAX_ANSWER_CHARS,
    Answer,
    Collection,
    Named,
    Rounded,
    describe,
    read_answer,
)
from hyperrl.envs.grading.units import is_currency
from hyperrl.envs.rewards import Score
from hyperrl.errors import ConfigError, nearest

__all__ = ["DEFAULT_POLICY", "AnswerPolicy", "Verdict", "grade_answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPolicy:
    """Choices that a task may make differently.

    Attributes:
        percent: what ``25%`` equals: ``value`` 0.25 only, ``number`` 25 only, ``either`` both. Two
            percentages are always compared as they stand.
        ordered_lists: the order of tuples and lists counts. That of sets never does.
        tolerance: largest absolute difference of two rational numbers that are still equal.
        computed: an answer may leave something to compute, as ``2^{10}`` and ``3+4`` do. Where computing
            is the task, say ``False``: then whoever repeats the question has not answered it. Where the right
            answer leaves something to compute itself, nothing is asked.
    """

    percent: Literal["either", "value", "number"] = "either"
    ordered_lists: bool = True
    tolerance: Fraction | int = 0
    computed: bool = True

    def __post_init__(self) -> None:
        known = ("either", "value", "number")
        if self.percent not in known:
            hint = nearest(self.percent, known)
            raise ConfigError(f"percent must be one of {', '.join(known)}, got {self.percent!r}.{hint}")
        if not self.tolerance >= 0:
            raise ConfigError(f"tolerance must be at least 0, got {self.tolerance}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of grading one response.

    Attributes:
        equal: the answer is right.
        extracted: the answer as written in the response; ``None`` if it gives none.
        reason: why, for a person: ``equal``, ``no answer: ...`` or ``not equal: ...``.
        explanation: how both sides were read and by which choices compared; empty unless asked for.
    """

    equal: bool
    extracted: str | None
    reason: str
    explanation: str = ""

    @property
    def score(self) -> Score:
        """What a ``@reward`` returns for it: 1 or 0, which says so where no answer could be read."""
        return Score(float(self.equal), cause=None if self.extracted is not None else "unparsed")


DEFAULT_POLICY = AnswerPolicy()
"""What :class:`AnswerPolicy` chooses by itself."""

_INTEGER = re.compile(r"-?(?:[0-9]{1,300}|[1-9][0-9]{0,2}(?:,[0-9]{3}){1,30})")
_SCIENTIFIC = re.compile(
    r"\s*(?:[*xX×]|\\times|\\cdot|\\ast)\s*\{?10\}?\s*(?:\^|\*\*)\s*\{?\s*[-+]?\d+\s*\}?\}?"
)
_OPERATION = re.compile(
    r"(?<=[\d)}\]])\s*(?:!|(?:\*\*|[-+*/^]|\\(?:cdot|times|div|ast)(?![A-Za-z]))\s*(?=[-+\d(.{$]|\\[a-zA-Z]))"
    r"|\\(?:[dt]?binom|sqrt|choose)|(?<=[\d)}])\s*\("
)
_FRACTION = re.compile(r"\d[\d,]*(?:\s+\d+)?\s*/\s*\d+")
_CHOICE = re.compile(r"(?:\(([A-Z])\)|([A-Z])[.):])(?![A-Z]$)(?!.*(?:\([A-Z]\)|\b[A-Z][.):])).+")
_RUN_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_RUN = re.compile(r"\W{0,4}\d+(?:\.\d+)?(?:\s*[-‐-―−]\s*\d+(?:\.\d+)?)+\s*[^\W\d]*\W{0,4}")
_DEGREE_OR_SPACE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\[,;:! ]")


def grade_answer(
    response: str,
    gold: str,
    *,
    style: AnswerStyle = "boxed",
    policy: AnswerPolicy = DEFAULT_POLICY,
    explain: bool = False,
) -> Verdict:
    """Compare the answer of ``response`` with ``gold``.

    A unit or a name (``x = 5``) on one side only is passed over, except a gold unit of a single
    letter, which may be a variable. Where both sides have one, they must be the same.

    Args:
        response: the whole text of the policy; reasoning in ``<think>`` never counts.
        gold: the right answer; of a whole solution, what follows its last ``####`` or stands in its box.
        style: where the answer stands in ``response``.
        policy: choices about percent signs, order, tolerance and what is left to compute.
        explain: also say how both sides were read, in ``Verdict.explanation``.

    Raises:
        ConfigError: ``style`` is unknown, or the response or the gold is no text.
    """
    _check_text("response", response)
    _check_text("gold", gold)
    extracted, gold = extract_answer(response, style), bare_gold(gold)
    if extracted is None:
        return Verdict(equal=False, extracted=None, reason=f"no answer: nothing found in style {style!r}")
    if not policy.computed and _leaves_to_compute(extracted) and not _leaves_to_compute(gold):
        equal = False
    elif _INTEGER.fullmatch(extracted) and _INTEGER.fullmatch(gold):
        apart = int(extracted.replace(",", "")) - int(gold.replace(",", ""))
        equal = abs(apart) <= policy.tolerance
    else:
        same = _equal(read_answer(extracted), read_answer(gold), policy)
        equal = same and not _are_other_runs(extracted, gold)
    reason = "equal" if equal else f"not equal: {extracted[:80]!r} is not {gold[:80]!r}"
    explanation = _explain(extracted, gold, policy) if explain else ""
    return Verdict(equal=equal, extracted=extracted, reason=reason, explanation=explanation)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"the {name} must be a str, got {value!r:.80} ({type(value).__name__})")


def _are_other_runs(answer: str, gold: str) -> bool:
    """Whether both are ranges, scores or codes such as ``5-10`` that differ, whatever their differences."""
    if _RUN.fullmatch(gold) is None or _RUN.fullmatch(answer) is None:
        return False
    one, other = [[Fraction(number) for number in _RUN_NUMBER.findall(text)] for text in (answer, gold)]
    return one != other


def _leaves_to_compute(answer: str) -> bool:
    """Whether an answer holds an operation, other than the one of a fraction or of ``1.2 * 10^3``."""
    if _INTEGER.fullmatch(answer) or len(answer) > MAX_ANSWER_CHARS:
        return False
    text = _DEGREE_OR_SPACE.sub("", _SCIENTIFIC.sub("", plain_latex(plain_text(answer))))
    return _OPERATION.search(_FRACTION.sub("0", text)) is not None


def _explain(extracted: str, gold: str, policy: AnswerPolicy) -> str:
    read = [f"{text[:80]!r} is read as {describe(read_answer(text))}" for text in (extracted, gold)]
    order = "counts" if policy.ordered_lists else "does not count"
    return (
        f"answer {read[0]}; gold {read[1]}; "
        f"percent: {policy.percent}, order of lists {order}, tolerance {policy.tolerance}"
    )


def _equal(answer: Answer, gold: Answer, policy: AnswerPolicy) -> bool:
    if isinstance(answer, Named) and isinstance(gold, Named):
        return answer.name == gold.name and _equal(answer.answer, gold.answer, policy)
    answer = answer.answer if isinstance(answer, Named) else answer
    gold = gold.answer if isinstance(gold, Named) else gold
    if isinstance(answer, Rounded):
        return _equal(answer.exact, gold, policy) or _equal(answer.decimal, gold, policy)
    if isinstance(gold, Rounded):
        return _equal(answer, gold.exact, policy) or _equal(answer, gold.decimal, policy)
    if isinstance(answer, Quantity) and isinstance(gold, Quantity):
        if {answer.unit, gold.unit} == {"$", "¢"}:
            answer, gold = _in_dollars(answer), _in_dollars(gold)
        if answer.percent != gold.percent and (gold.unit if answer.percent else answer.unit):
            return False
        return _same_unit(answer.unit, gold.unit) and _equal_quantities(answer, gold, policy)
    if isinstance(answer, Collection) and isinstance(gold, Collection):
        return _equal_collections(answer, gold, policy)
    if isinstance(answer, str) and isinstance(gold, str):
        return answer == gold or _chosen(answer) == gold or same_polynomial(answer, gold)
    return policy.computed and (_equal_to_text(answer, gold) or _equal_to_text(gold, answer))


def _equal_to_text(quantity: Answer, text: Answer) -> bool:
    if not isinstance(quantity, Quantity) or not isinstance(text, str) or quantity.unit or quantity.percent:
        return False
    value = constant_value(text)
    return value is not None and value.terms == quantity.value.terms


def _chosen(answer: str) -> str | None:
    """Return the letter of ``(A) 5`` and ``A. Paris``; ``None`` where none or several are chosen."""
    choice = _CHOICE.fullmatch(answer)
    return (choice[1] or choice[2]) if choice is not None else None


def _in_dollars(money: Quantity) -> Quantity:
    cent = Exact.of(Fraction(1, 100))
    return Quantity(value=money.value * cent, unit="$") if money.unit == "¢" else money


def _same_unit(answer: str, gold: str) -> bool:
    if answer and gold:
        money, period = answer.partition("/")[0], "/" in answer
        if period != ("/" in gold) and is_currency(money):  # only one side says per what
            return money == gold.partition("/")[0]
        return answer == gold
    return not (len(gold) == 1 and gold.isalpha())


def _equal_quantities(answer: Quantity, gold: Quantity, policy: AnswerPolicy) -> bool:
    if answer.percent == gold.percent or policy.percent == "number":
        return _close(answer, gold, 1, policy)
    factor = Fraction(1, 100) if answer.percent else Fraction(100)
    if policy.percent == "either" and _close(answer, gold, 1, policy):
        return True
    return _close(answer, gold, factor, policy)


def _close(answer: Quantity, gold: Quantity, factor: Fraction | int, policy: AnswerPolicy) -> bool:
    value, target = answer.value.rational, gold.value.rational
    if value is not None and target is not None:
        value = value if factor == 1 else value * factor
        return value == target or (bool(policy.tolerance) and abs(value - target) <= policy.tolerance)
    return {key: term * factor for key, term in answer.value.terms.items()} == gold.value.terms


def _equal_collections(answer: Collection, gold: Collection, policy: AnswerPolicy) -> bool:
    if answer.is_inequality is not gold.is_inequality:  # x > 2 and (2, \infty)
        answer = (answer.as_interval() or answer) if answer.is_inequality else answer
        gold = (gold.as_interval() or gold) if gold.is_inequality else gold
    brackets = {answer.brackets, gold.brackets}
    if len(answer.items) != len(gold.items) or not (len(brackets) == 1 or brackets == {"", "{}"}):
        return False
    ordered = policy.ordered_lists or answer.is_inequality
    if ordered and not brackets & {"{}", "\\cup"}:
        return all(_equal(a, b, policy) for a, b in zip(answer.items, gold.items, strict=True))
    unmatched = list(gold.items)
    for item in answer.items:
        match = next((i for i, other in enumerate(unmatched) if _equal(item, other, policy)), None)
        if match is None:
            return False
        del unmatched[match]
    return True
