"""Grades programs: a submitted function against unit tests, in a sandbox.

The submission runs in a process that holds neither tests nor expected values, and its answers come
back as plain data (see ``code_judge.py`` and ``plain_values.py``). What a :class:`CallTest` expects
never enters the sandbox: it is compared here.

What comes back says what is known. A :class:`CodeVerdict` is about the submission: also where it hangs,
ends its process or exhausts its limits. ``Unscored`` is about us: of kind ``sandbox_error`` where the
sandbox did not start, ``test_error`` where a test itself cannot be used.
"""

from __future__ import annotations

import functools
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from hyperrl.envs.driving import drive_on_loop
from hyperrl.envs.grading.code_tests import CallTest, CodeTest
from hyperrl.envs.grading.code_text import defines, extract_code, parse_code
from hyperrl.envs.grading.plain_values import decode, encode, same
from hyperrl.envs.rewards import Unscored
from hyperrl.envs.sandbox import MontySandbox, Sandbox, SandboxLimits, SandboxResult, make_sandbox
from hyperrl.errors import ConfigError

__all__ = ["CODE_LIMITS", "CodeCause", "CodeTestResult", "CodeVerdict", "agrade_code", "grade_code"]

CODE_LIMITS = SandboxLimits(wall_s=20.0, cpu_s=20.0, memory_bytes=1 << 30, output_bytes=4 << 20)
"""What all tests of one submission may use together, where no sandbox is given."""

CodeCause = Literal["", "unparsed", "wrong", "error", "timeout"]
"""Why a submission does not pass; empty where it does."""

_Status = Literal["passed", "failed", "error", "timeout", "not_run"]
_SHOWN_CHARS = 80
_FEW_KEYS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTestResult:
    """How one test went.

    Attributes:
        status: ``passed``; ``failed`` (another value, or an assertion); ``error`` (an exception, or its
            process ended); ``timeout``; or ``not_run``.
        message: why, for a person: it may tell what was expected, so never show it to a policy.
    """

    status: _Status
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeVerdict:
    """What a submission is worth.

    Attributes:
        tests: how each test went, in their order; none was run where ``cause`` is ``unparsed``.
        extracted: the program as written in the response; ``None`` if it gives none.
        cause: why it does not pass: what happened to the first test that did not.
        reason: the same for a person; not for a policy.
    """

    tests: tuple[CodeTestResult, ...]
    extracted: str | None
    cause: CodeCause
    reason: str

    @property
    def passed(self) -> bool:
        """Whether it passed every test."""
        return self.cause == ""

    @property
    def share(self) -> float:
        """The share of tests that it passed, in [0, 1]."""
        return sum(test.status == "passed" for test in self.tests) / max(1, len(self.tests))


async def agrade_code(
    response: str,
    tests: Sequence[CallTest | CodeTest],
    *,
    entry_point: str,
    preamble: str = "",
    sandbox: Sandbox | None = None,
    timeout_s: float = 5.0,
) -> CodeVerdict | Unscored:
    """Run tests against the function that a response defines, without blocking the event loop.

    All tests run in one sandbox, one after the other, and the function keeps its state between them. A
    test that ends its process is an error and the next starts anew; after one that overruns, the rest
    is not run. As many sandboxes run at once as docs/sandboxes.md says; further ones wait their turn.

    Args:
        response: the whole text of the policy; see :func:`extract_code` for what is read.
        tests: at least one.
        entry_point: name of the function.
        preamble: code that runs before the submission, in its process: imports that are given.
        sandbox: where it runs, with the limits of all tests together; ``None``: the strongest one that
            is here, with :data:`CODE_LIMITS`.
        timeout_s: seconds that one test may take, the start of the submission included in its first.

    Returns:
        A verdict, or ``Unscored`` if the sandbox failed or a test cannot be used.

    Raises:
        ConfigError: there are no tests, ``entry_point`` is no name, ``timeout_s`` is not above 0, or the
            sandbox cannot run this (Monty has no processes).
    """
    _check(tests, entry_point, timeout_s, sandbox)
    source = extract_code(response, defining=entry_point)
    problem = _why_unparsed(source, entry_point)
    if source is None or problem:
        not_run = (CodeTestResult(status="not_run", message="there is nothing to run"),) * len(tests)
        return CodeVerdict(tests=not_run, extracted=source, cause="unparsed", reason=problem)
    nonce = secrets.token_hex(16)
    job = {
        "nonce": nonce,
        "sources": [preamble, source],
        "entry_point": entry_point,
        "timeout_s": timeout_s,
        "tests": [_as_job(test, entry_point) for test in tests],
    }
    try:
        ran = await (sandbox or _default_sandbox()).run_python(
            _program(), stdin=json.dumps(job), files=_modules()
        )
    except (OSError, RuntimeError) as error:
        return Unscored(error, kind="sandbox_error")
    return _judge(ran, _reports(ran.stdout, nonce), tests, source)


def grade_code(
    response: str, tests: Sequence[CallTest | CodeTest], *, entry_point: str, **options: Any
) -> CodeVerdict | Unscored:
    """Do what :func:`agrade_code` does from code that has no event loop; blocks the thread."""
    return drive_on_loop(agrade_code(response, tests, entry_point=entry_point, **options))


def _check(tests: Sequence[object], entry_point: str, timeout_s: float, sandbox: Sandbox | None) -> None:
    if not tests:
        raise ConfigError("there are no tests; without one every submission would pass")
    strange = [test for test in tests if not isinstance(test, (CallTest, CodeTest))]
    if strange:
        raise ConfigError(f"a test is a CallTest or a CodeTest, got {strange[0]!r:.80}")
    if not entry_point.isidentifier():
        raise ConfigError(f"entry_point must be the name of a function, got {entry_point!r}")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise ConfigError(f"timeout_s must be above 0 seconds, got {timeout_s}")
    if isinstance(sandbox, MontySandbox):
        raise ConfigError("code is graded by full CPython; Monty cannot run it. Use make_sandbox()")


def _why_unparsed(source: str | None, entry_point: str) -> str:
    if source is None:
        return "there is no code: no block fenced as Python, and the whole text is not a program"
    tree = parse_code(source)
    if isinstance(tree, str):
        return tree
    return "" if defines(tree, entry_point) else f"the code defines no function {entry_point!r}"


@functools.lru_cache(maxsize=1)
def _default_sandbox() -> Sandbox:
    return make_sandbox(limits=CODE_LIMITS)


@functools.lru_cache(maxsize=1)
def _program() -> str:
    return files(__package__).joinpath("code_judge.py").read_text(encoding="utf-8")


@functools.lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    """The modules of ours that the judge imports, where they stand for it too."""
    folders = ("hyperrl", "hyperrl/envs", "hyperrl/envs/grading", "hyperrl/envs/sandbox")
    found = {f"{name}/__init__.py": "" for name in folders}
    for folder, name in (("grading", "plain_values.py"), ("sandbox", "landlock.py")):
        text = files(f"hyperrl.envs.{folder}").joinpath(name).read_text(encoding="utf-8")
        found[f"hyperrl/envs/{folder}/{name}"] = text
    return found


def _as_job(test: CallTest | CodeTest, entry_point: str) -> dict[str, Any]:
    if isinstance(test, CallTest):  # what it expects stays here
        return {"args": encode(tuple(test.args)), "kwargs": encode(dict(test.kwargs))}
    return {"code": test.source, "setup": test.setup, "entry_point": entry_point}


def _reports(stdout: str, nonce: str) -> list[Any]:
    """Return what the judge said, line by line. Lines without its nonce are not its own."""
    found: list[Any] = []
    for line in stdout.split("\n"):
        if line.startswith(nonce):
            try:
                found.append(json.loads(line.removeprefix(nonce)))
            except (ValueError, RecursionError):  # cut where the output was too long
                found.append({"status": "error", "text": "the answers are too long together"})
    return found


def _judge(
    ran: SandboxResult, reports: list[Any], tests: Sequence[CallTest | CodeTest], source: str
) -> CodeVerdict | Unscored:
    if not reports or reports[0] != "ready":
        said = ran.stderr.strip()[-300:] or f"exit code {ran.exit_code}"
        return Unscored(f"the sandbox did not start the tests: {said}", kind="sandbox_error")
    results: list[CodeTestResult] = []
    for test, report in zip(tests, reports[1:], strict=False):
        status, text = str(report.get("status", "")), str(report.get("text", ""))
        if status == "unusable":
            return Unscored(f"test {len(results) + 1} cannot be used: {text}", kind="test_error")
        if status == "not_loaded":
            results.append(CodeTestResult(status="error", message=f"the code does not run: {text}"))
        else:
            results.append(_compare(test, report, text) if "status" not in report else _told(status, text))
    results += _missing(ran, len(tests) - len(results), ended=_has_ended(reports[-1]))
    return _verdict(tuple(results), source)


def _told(status: str, text: str) -> CodeTestResult:
    known: dict[str, _Status] = {"passed": "passed", "failed": "failed", "timeout": "timeout"}
    return CodeTestResult(status=known.get(status, "error"), message=text)


def _compare(test: CallTest | CodeTest, report: Mapping[str, Any], text: str) -> CodeTestResult:
    """Compare what a call gave with what it should."""
    assert isinstance(test, CallTest)
    if test.raises is not None:
        if test.raises in report.get("raised", ()):
            return CodeTestResult(status="passed")
        gave = text or "no exception"
        return CodeTestResult(status="failed", message=f"{_call(test)} gave {gave}, not {test.raises}")
    if "value" not in report:
        return CodeTestResult(status="error", message=f"{_call(test)} raised {text}")
    try:
        value = decode(report["value"], most_keys=max(_FEW_KEYS, _size(test.expected)))
        equal = same(value, test.expected, test.tolerance)
    except (ValueError, RecursionError) as error:
        return CodeTestResult(status="error", message=f"{_call(test)} gave no plain value: {error}")
    if equal:
        return CodeTestResult(status="passed")
    message = f"{_call(test)} gave {_shown(value)}, not {_shown(test.expected)}"
    return CodeTestResult(status="failed", message=message)


def _size(value: Any) -> int:
    """How many values a plain value holds."""
    if isinstance(value, dict):
        return len(value) + sum(map(_size, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return len(value) + sum(map(_size, value))
    return 0


def _call(test: CallTest) -> str:
    words = [*map(_shown, test.args), *(f"{name}={_shown(value)}" for name, value in test.kwargs.items())]
    return f"f({', '.join(words):.{2 * _SHOWN_CHARS}})"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a very large number"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _has_ended(report: Any) -> bool:
    """Whether the judge ended the run by itself after this report."""
    return isinstance(report, dict) and report.get("status") in ("timeout", "not_loaded")


def _missing(ran: SandboxResult, left: int, *, ended: bool) -> list[CodeTestResult]:
    """The tests that nothing was reported about: the one that ended the run, and the rest."""
    rest = CodeTestResult(status="not_run", message="an earlier test ended the run")
    if ended or not left:
        return [rest] * left
    said = ran.stderr.strip().rpartition("\n")[2] or f"exit code {ran.exit_code}"
    status: _Status = "timeout" if ran.timed_out else "error"
    return [CodeTestResult(status=status, message=f"it ended the run: {said}"), *[rest] * (left - 1)]


def _verdict(results: tuple[CodeTestResult, ...], source: str) -> CodeVerdict:
    causes: dict[str, CodeCause] = {"failed": "wrong", "timeout": "timeout"}
    for number, result in enumerate(results, start=1):
        if result.status != "passed":
            cause = causes.get(result.status, "error")
            reason = f"test {number} of {len(results)}: {result.status}: {result.message}"
            return CodeVerdict(tests=results, extracted=source, cause=cause, reason=reason)
    reason = f"passed {len(results)} tests"
    return CodeVerdict(tests=results, extracted=source, cause="", reason=reason)
