"""Grades answers in words as SQuAD does: exact match and F1 over words, best over all right answers.

The formulas are those of the evaluation of SQuAD v1.1 (Rajpurkar et al. 2016): case, punctuation,
the articles a, an, the and white space do not count. Two additions: beyond ASCII, compatible
characters count as one (NFKC), and their punctuation and what cannot be seen are passed over too; and an
answer of which nothing would remain, such as ``A`` or ``C++`` against ``The``, is compared with what was
taken away, so that an empty response never matches it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from string import punctuation

from hyperrl.envs.grading.extraction import AnswerStyle, extract_answer
from hyperrl.errors import ConfigError

__all__ = ["QaVerdict", "grade_qa", "normalize_words"]

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ASCII_PUNCTUATION = str.maketrans("", "", punctuation)


@dataclass(frozen=True, slots=True, kw_only=True)
class QaVerdict:
    """How well a response matches the best of the right answers.

    Attributes:
        exact: it is one of them after normalisation.
        f1: harmonic mean of precision and recall over words, from 0 to 1; the best over the answers.
        extracted: the answer as written in the response; ``None`` if it gives none.
        closest: the right answer that gave ``f1``.
        reason: why, for a person.
    """

    exact: bool
    f1: float
    extracted: str | None
    closest: str
    reason: str


def grade_qa(response: str, golds: str | Sequence[str], *, style: AnswerStyle = "whole") -> QaVerdict:
    """Compare the answer of ``response`` with a right answer and its aliases.

    Args:
        response: the whole text of the policy; reasoning in ``<think>`` never counts.
        golds: the right answer, or several spellings of which any is right.
        style: where the answer stands in ``response``.

    Raises:
        ConfigError: there is no right answer, one of them is blank, or ``style`` is unknown.
    """
    answers: tuple[object, ...] = (golds,) if isinstance(golds, str) else tuple(golds or ())
    usable = [answer for answer in answers if isinstance(answer, str) and answer.strip()]
    if not usable or len(usable) < len(answers):
        raise ConfigError(f"golds must hold at least one answer and no blank one, got {golds!r:.200}")
    extracted = extract_answer(response, style)
    if extracted is None:
        reason = f"no answer: nothing found in style {style!r}"
        return QaVerdict(exact=False, f1=0.0, extracted=None, closest=usable[0], reason=reason)
    scored = [(_score(extracted, gold), gold) for gold in usable]
    (exact, f1), closest = max(scored, key=lambda one: one[0])
    reason = "equal" if exact else f"not equal: {extracted[:80]!r} has F1 {f1:.3f} with {closest[:80]!r}"
    return QaVerdict(exact=exact, f1=f1, extracted=extracted, closest=closest, reason=reason)


def normalize_words(text: str) -> str:
    """Return ``text`` without case, punctuation, articles and superfluous white space.

    Punctuation is removed without a space in its place, as SQuAD does: ``well-known`` is ``wellknown``.
    """
    text = unicodedata.normalize("NFKC", text).casefold().translate(_ASCII_PUNCTUATION)
    if not text.isascii():
        text = "".join(char for char in text if not _is_passed_over(char))
    return " ".join(_ARTICLES.sub(" ", text).split())


def _is_passed_over(char: str) -> bool:
    """Whether it is punctuation, which the minus sign of mathematics is here too, or cannot be seen."""
    return char == "−" or unicodedata.category(char).startswith(("P", "Cf"))


def _score(answer: str, gold: str) -> tuple[bool, float]:
    words, wanted = normalize_words(answer), normalize_words(gold)
    if not words or not wanted:
        same = _spelling(answer) == _spelling(gold)
        return same, float(same)
    return words == wanted, _f1(words.split(), wanted.split())


def _spelling(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _f1(words: Sequence[str], wanted: Sequence[str]) -> float:
    """Compute F1 = 2 P R / (P + R) = 2 |common| / (|answer| + |gold|), counting repeated words."""
    common = (Counter(words) & Counter(wanted)).total()
    return 2 * common / (len(words) + len(wanted))
