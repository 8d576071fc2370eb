"""CPU time of graders: plain numbers, programs, and what math-verify takes in its worker process.

    python benchmarks/bench_grading.py [--json]

No answer is asked twice, so nothing is served from a cache. The figures of math-verify are those of the
worker and of us who ask it, for one worker; starting it is left out. ``plain`` sends numbers that the
exact grader would never let through to it. Programs run in the strongest sandbox that is here. The last
line is JSON with ``--json``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable

from hyperrl.envs.grading import (
    CallTest,
    CodeVerdict,
    Verdict,
    grade_answer,
    grade_code,
    grade_math,
    grade_qa,
)
from hyperrl.envs.grading.math import ask_math_verify
from hyperrl.envs.tool_process import shared_pool

PLAIN = 20_000
ASKED_PLAIN = 600
ROUNDS = 25
PROGRAMS = 20

MIXED = (
    ("x+{i}", "{i}+x"),
    ("\\frac{{x}}{{{i}}}", "x/{i}"),
    ("(x+{i})^2", "x^2+2 \\cdot {i} x+{i}^2"),
    ("\\sqrt{{{i}x}}", "\\sqrt{{{i}}} \\sqrt{{x}}"),
    ("y={i}x+1", "y=1+{i}x"),
    ("\\{{x, {i}\\}}", "\\{{{i}, x\\}}"),
    ("(-\\infty, {i}\\pi)", "(-\\infty, \\pi \\cdot {i})"),
    ("\\begin{{pmatrix}}1&{i}\\\\3&x\\end{{pmatrix}}", "\\begin{{pmatrix}}1&{i}\\\\3&x\\end{{pmatrix}}"),
    ("{i}e^{{2x}}", "{i} e^{{x}} e^{{x}}"),
    ("x > {i}", "{i} < x"),
    ("\\ln {i} + \\ln 3", "\\ln(3 \\cdot {i})"),
    ("{i}x", "{i}y"),
    ("x^{{{i}}}", "x^{{{i}}}+1"),
    ("\\sin({i}x)", "\\cos({i}x)"),
)


def us_each(check: Callable[[int], object], count: int) -> float:
    """Return CPU microseconds per call of this process."""
    began = time.process_time()
    for i in range(count):
        check(i)
    return (time.process_time() - began) / count * 1e6


def asked_rate(questions: Iterable[tuple[str, str]]) -> float:
    """Return checks per CPU second of worker and parent, less those of a worker that is only started."""
    start = cpu_of([("x", "x+y")])
    asked = list(questions)
    return len(asked) / (cpu_of(asked) - start)


def cpu_of(questions: list[tuple[str, str]]) -> float:
    """Return CPU seconds, ours and a fresh worker's, of asking the questions one after the other."""
    pool = shared_pool("the grader", 1)
    pool.close()
    began = time.process_time() + children_cpu()
    for answer, gold in questions:
        verdict = ask_math_verify(answer, gold, deadline_s=60.0)
        if not isinstance(verdict, Verdict):
            raise SystemExit(f"unscored: {answer!r} against {gold!r}: {verdict.reason}")
    pool.close()
    return time.process_time() + children_cpu() - began


def program_ms(tests: int) -> float:
    """Return CPU milliseconds, ours and the sandbox's, of grading a program by some tests."""
    cases = [CallTest(args=[i, 2], expected=i + 2) for i in range(tests)]
    began = time.process_time() + children_cpu()
    for _ in range(PROGRAMS):
        verdict = grade_code("def add(a, b):\n    return a + b", cases, entry_point="add")
        if not isinstance(verdict, CodeVerdict) or not verdict.passed:
            raise SystemExit(f"not passed: {verdict.reason}")
    return (time.process_time() + children_cpu() - began) / PROGRAMS * 1e3


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    boxed = [f"Some words, then \\boxed{{{i * 7}}}." for i in range(PLAIN)]
    hashes = [f"Some words\n#### {i * 7:,}.00" for i in range(PLAIN)]
    plain = [(f"{i}.5", f"{2 * i + 1}/2" if i % 2 else f"{i}.25") for i in range(ASKED_PLAIN)]
    mixed = [(a.format(i=i), g.format(i=i)) for i in range(2, ROUNDS + 2) for a, g in MIXED]
    figures = {
        "answer_us": us_each(lambda i: grade_answer(boxed[i], str(i * 7)), PLAIN),
        "answer_money_us": us_each(lambda i: grade_answer(hashes[i], str(i * 7), style="gsm8k"), PLAIN),
        "math_fast_path_us": us_each(lambda i: grade_math(boxed[i], str(i * 7)), PLAIN),
        "qa_us": us_each(lambda i: grade_qa(f"The answer {i}, of course.", [f"answer {i}", "none"]), PLAIN),
        "program_1_test_ms": program_ms(1),
        "program_100_tests_ms": program_ms(100),
        "math_verify_plain_per_s": asked_rate(plain),
        "math_verify_mixed_per_s": asked_rate(mixed),
    }
    for name, value in figures.items():
        print(f"{name:26} {value:10.1f}")
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
