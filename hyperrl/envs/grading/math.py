r"""Grades mathematics: exactly where :func:`grade_answer` can, else by math-verify in a process of its own.

math-verify (Apache-2.0, extra ``math``) knows algebra, sets, intervals, matrices and equations. It can
also take minutes, or all memory, on an answer of ten characters. So it only ever runs in worker
processes, as many as there are cores; one that overruns is killed, from whatever thread, and the next
question starts another.

What comes back says what is known. ``Verdict(equal=False)`` with a reason that starts ``too large``:
the answer exceeds a limit of :mod:`math_limits` or the memory of a worker, and is wrong. ``Unscored``
of kind ``grader_timeout`` or ``grader_error``: the worker hung or crashed, and nobody knows; a
``@reward`` that returns it leaves its term unscored, never 0.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import re
from functools import lru_cache
from importlib.util import find_spec

from hyperrl.envs.grading.answers import DEFAULT_POLICY, AnswerPolicy, Verdict, grade_answer
from hyperrl.envs.grading.extraction import AnswerStyle, bare_gold
from hyperrl.envs.grading.math_limits import why_too_large
from hyperrl.envs.grading.polynomials import is_polynomial
from hyperrl.envs.grading.reading import Answer, Collection, Named, read_answer
from hyperrl.envs.rewards import Unscored
from hyperrl.envs.tool_process import WorkerPool, shared_pool
from hyperrl.errors import ConfigError, MissingExtraError

__all__ = ["agrade_math", "ask_math_verify", "grade_math"]

_MOST_WORKERS = 16
_REPLY_CHARS = 1_000

_TEXT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox)\s*\{([^{}]*)\}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end|operatorname)\s*\{[^{}]*\}")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_FUNCTIONS = frozenset(
    re.findall(
        r"\w+", "sin cos tan cot sec csc arcsin arccos arctan log exp sqrt frac max min gcd lcm det mod"
    )
)
_NO_ALGEBRA = re.compile(
    r"\d\s*:\s*\d|\d\s*_|\.\.\.|\\[lc]?dots\b|…|\b\d{4}([-/])\d{1,2}\1\d{1,2}\b|\b\d{1,2}([-/.])\d{1,2}\2\d{4}\b"
)
"""Times of day, dates, numbers in other bases, and what goes on: math-verify reads a part, or computes."""
_LETTER = re.compile(r"\s*[^\W\d_]\s*")


def grade_math(
    response: str,
    gold: str,
    *,
    style: AnswerStyle = "boxed",
    deadline_s: float = 2.0,
    policy: AnswerPolicy = DEFAULT_POLICY,
    explain: bool = False,
) -> Verdict | Unscored:
    """Compare the answer of ``response`` with ``gold``, as mathematics where spelling and numbers differ.

    Numbers, and tuples and sets of numbers, are compared exactly and never sent to math-verify; nor are
    words and times of day. May be called from any thread, but blocks it: in a coroutine use
    :func:`agrade_math`.

    Args:
        response: the whole text of the policy; reasoning in ``<think>`` never counts.
        gold: the right answer; of a whole solution, what follows its last ``####`` or stands in its box.
        style: where the answer stands in ``response``.
        deadline_s: seconds that math-verify may take, not counting the wait for a free worker (callers
            are served in order) and, once per worker, the seconds that it takes to start.
        policy: choices about percent signs, order and tolerance of what is compared exactly.
        explain: also say how both sides were read, where math-verify was not asked.

    Returns:
        A verdict, or ``Unscored`` if the worker did not answer in time or crashed.

    Raises:
        ConfigError: ``style`` is unknown or ``deadline_s`` is not above 0.
        MissingExtraError: math-verify is not installed.
    """
    _require_usable(deadline_s)
    gold = bare_gold(gold)
    exact = grade_answer(response, gold, style=style, policy=policy, explain=explain)
    verdict = _grade_without_algebra(exact, gold)
    if not isinstance(verdict, str):
        return verdict
    return _judge(verdict, gold, *_pool().call(_job(verdict, gold), deadline_s))


async def agrade_math(
    response: str,
    gold: str,
    *,
    style: AnswerStyle = "boxed",
    deadline_s: float = 2.0,
    policy: AnswerPolicy = DEFAULT_POLICY,
    explain: bool = False,
) -> Verdict | Unscored:
    """Do what :func:`grade_math` does without blocking the event loop."""
    _require_usable(deadline_s)
    gold = bare_gold(gold)
    exact = grade_answer(response, gold, style=style, policy=policy, explain=explain)
    verdict = _grade_without_algebra(exact, gold)
    if not isinstance(verdict, str):
        return verdict
    pool = _pool()
    loop = asyncio.get_running_loop()
    reply = await loop.run_in_executor(pool.threads, pool.call, _job(verdict, gold), deadline_s)
    return _judge(verdict, gold, *reply)


def ask_math_verify(answer: str, gold: str, *, deadline_s: float = 2.0) -> Verdict | Unscored:
    """Let a worker compare two expressions, without looking at them first. Raises MissingExtraError."""
    _require_math_verify()
    return _judge(answer, gold, *_pool().call(_job(answer, gold), deadline_s))


def _require_usable(deadline_s: float) -> None:
    _require_math_verify()
    if not deadline_s > 0:
        raise ConfigError(f"deadline_s must be above 0 seconds, got {deadline_s}")


def _grade_without_algebra(verdict: Verdict, gold: str) -> Verdict | str:
    """Return the verdict, or the answer as written if only math-verify can tell."""
    answer = verdict.extracted
    if verdict.equal or answer is None:
        return verdict
    for name, text in (("the answer", answer), ("the right answer", gold)):
        if (why := why_too_large(text)) is not None:
            return Verdict(equal=False, extracted=answer, reason=f"too large: {name} has {why}")
    return answer if _needs_algebra(answer, gold) else verdict


def _needs_algebra(answer: str, gold: str) -> bool:
    """Whether one side is an expression that has no exact value, and neither is in words."""
    if any(_NO_ALGEBRA.search(text) or _is_words(text) for text in (answer, gold)):
        return False
    if _LETTER.fullmatch(answer) and _LETTER.fullmatch(gold):  # math-verify takes a for A
        return False
    both = read_answer(answer), read_answer(gold)
    if all(isinstance(one, str) and is_polynomial(one) for one in both):
        return False  # told apart exactly, where math-verify rounds
    return not all(map(_is_exact, both))


def _is_words(text: str) -> bool:
    text = _ENVIRONMENT.sub("", _TEXT.sub(r"\1", text))
    if _LETTERS.fullmatch(text.strip()):
        return True
    return any(word.lower() not in _FUNCTIONS for word in _WORD.findall(text))


def _is_exact(answer: Answer) -> bool:
    if isinstance(answer, Named):
        return _is_exact(answer.answer)
    if isinstance(answer, Collection):
        return all(_is_exact(item) for item in answer.items)
    return not isinstance(answer, str) or answer in {"infinity", "-infinity"}


def _judge(answer: str, gold: str, status: str, reply: str) -> Verdict | Unscored:
    if status != "ok":
        kind = "grader_timeout" if status == "timeout" else "grader_error"
        return Unscored(f"{reply} ({answer[:80]!r} against {gold[:80]!r})", kind=kind)
    reasons = {
        "equal": "equal according to math-verify",
        "different": f"not equal: math-verify says that {answer[:80]!r} is not {gold[:80]!r}",
        "too large": f"too large: {answer[:80]!r} or {gold[:80]!r} exceeds what a worker may use",
    }
    reason = reasons.get(reply, f"not equal: {reply}; {answer[:80]!r} is not spelled as {gold[:80]!r}")
    return Verdict(equal=reply == "equal", extracted=answer, reason=reason)


def _job(answer: str, gold: str) -> bytes:
    arguments = pickle.dumps({"answer": answer, "gold": gold})
    return pickle.dumps(("hyperrl.envs.grading.math_worker", "compare", None, arguments, _REPLY_CHARS))


def _pool() -> WorkerPool:
    size = min(_MOST_WORKERS, os.cpu_count() or 1)
    return shared_pool("the grader", size, first_job=_job("x + 1", "\\frac{x}{2}"))


@lru_cache(maxsize=1)
def _require_math_verify() -> None:
    if find_spec("math_verify") is None:
        raise MissingExtraError("math-verify", "math")
