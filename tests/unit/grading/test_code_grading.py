"""Programs against unit tests: verdicts, causes, and submissions that cheat."""

import asyncio
import time

import pytest
from code_attacks import ATTACKS, HANGS, ISOLATED_ATTACKS, LOOKS_AT_ITS_JUDGE, SECRET, submission

from hyperrl.envs import Unscored
from hyperrl.envs.grading import CallTest, CodeTest, CodeVerdict, agrade_code, grade_code
from hyperrl.envs.grading.code import CODE_LIMITS
from hyperrl.envs.sandbox import (
    BubblewrapSandbox,
    Confinement,
    LocalSandbox,
    MontySandbox,
    SandboxLimits,
    SandboxResult,
    make_sandbox,
)
from hyperrl.envs.sandbox.landlock import SIGNALS_ABI, landlock_abi
from hyperrl.errors import ConfigError, MissingExtraError

ADD = [
    CallTest(args=[1, 2], expected=3),
    CallTest(args=["a", "b"], expected="ab"),
    CallTest(kwargs={"left": 0.1, "right": 0.2}, expected=0.3, tolerance=1e-9),
    CallTest(args=[1, "b"], raises="TypeError"),
    CodeTest(source="assert add([1], [2]) == candidate([1], right=[2]) == [1, 2]"),
]
RIGHT = "def add(left, right):\n    return left + right"
SECRET_TESTS = [
    CallTest(args=[1], expected=f"{SECRET}1"),
    CodeTest(source=f"assert answer(2) == {SECRET!r} + '2'", setup=f"WANTED = '{SECRET}2'"),
    CodeTest(source=f"values = [candidate(n) for n in (3, 4)]\nassert values == ['{SECRET}3', '{SECRET}4']"),
]


@pytest.fixture(params=["best", pytest.param("limited", marks=pytest.mark.slow)])
def sandbox(request):
    return LocalSandbox(CODE_LIMITS) if request.param == "limited" else make_sandbox(limits=CODE_LIMITS)


def isolated_sandbox():
    """A sandbox in namespaces of its own, or none: what runs in it must never run elsewhere."""
    sandbox = make_sandbox(limits=CODE_LIMITS)
    if sandbox.level != "isolated":
        pytest.skip("bubblewrap does not work here")
    assert isinstance(sandbox, BubblewrapSandbox)
    return sandbox


def grade(code, tests=ADD, entry_point="add", **options):
    return grade_code(submission(code), tests, entry_point=entry_point, **options)


def statuses(verdict):
    return [test.status for test in verdict.tests]


# Verdicts


def test_the_right_function_passes_every_test(sandbox):
    verdict = grade(RIGHT, sandbox=sandbox)
    assert (verdict.passed, verdict.share, verdict.cause) == (True, 1.0, "")
    assert verdict.extracted == RIGHT + "\n"
    assert verdict.reason == "passed 5 tests"


def test_each_test_has_its_own_result():
    verdict = grade("def add(left, right):\n    return left - right")
    assert statuses(verdict) == ["failed", "error", "failed", "passed", "error"]
    assert (verdict.passed, verdict.share, verdict.cause) == (False, 0.2, "wrong")
    assert verdict.reason == "test 1 of 5: failed: f(1, 2) gave -1, not 3"
    assert "unsupported operand" in verdict.tests[1].message


def test_a_failed_assertion_is_quoted():
    tests = [
        CodeTest(source="x = add(1, 1)\nassert x == 3"),
        CodeTest(source="assert add(1, 1) == 3, 'too small'"),
    ]
    verdict = grade(RIGHT, tests)
    assert [test.message for test in verdict.tests] == ["assert x == 3", "too small"]
    assert statuses(verdict) == ["failed", "failed"]


def test_exceptions_reach_the_test_by_their_builtin_class():
    code = "class Odd(ValueError): pass\ndef add(left, right):\n    raise Odd('no')"
    caught = """
try:
    add(1, 2)
except ValueError as error:
    assert 'no' in str(error)
else:
    assert False
"""
    tests = [
        CodeTest(source=caught),
        CallTest(raises="ValueError", args=[1, 2]),
        CallTest(raises="Odd", args=[1, 2]),
        CallTest(raises="TypeError", args=[1, 2]),
    ]
    assert statuses(grade(code, tests)) == ["passed", "passed", "passed", "failed"]


def test_the_function_keeps_its_state_between_tests():
    code = "seen = []\ndef add(left, right):\n    seen.append(left)\n    return len(seen)"
    assert statuses(grade(code, [CallTest(args=[0, 0], expected=n) for n in (1, 2, 3)])) == ["passed"] * 3


def test_a_test_that_ends_the_process_leaves_the_others():
    code = "import os\ndef add(left, right):\n    return left + right if left else os._exit(0)"
    tests = [CallTest(args=[n, 1], expected=n + 1) for n in (1, 0, 2)]
    verdict = grade(code, tests)
    assert statuses(verdict) == ["passed", "error", "passed"]
    assert verdict.cause == "error"


def test_after_an_overrun_the_rest_is_not_run():
    code = "def add(left, right):\n    while left == 0: pass\n    return left + right"
    tests = [CallTest(args=[n, 1], expected=n + 1) for n in (1, 0, 2, 3)]
    verdict = grade(code, tests, timeout_s=1.0)
    assert statuses(verdict) == ["passed", "timeout", "not_run", "not_run"]
    assert (verdict.cause, verdict.share) == ("timeout", 0.25)


def test_the_limits_of_the_sandbox_hold_for_all_tests_together():
    code = "import time\ndef add(left, right):\n    time.sleep(0.8)\n    return left + right"
    tests = [CallTest(args=[n, 1], expected=n + 1) for n in range(8)]
    verdict = grade(code, tests, sandbox=make_sandbox(limits=SandboxLimits(wall_s=3.0)))
    assert verdict.cause == "timeout"
    assert statuses(verdict)[-1] == "not_run"
    assert "more than 3 s" in verdict.reason


def test_code_that_does_not_run_says_why():
    verdict = grade("import no_such_thing\n" + RIGHT)
    assert statuses(verdict) == ["error"] + ["not_run"] * 4
    assert "No module named 'no_such_thing'" in verdict.reason


def test_a_preamble_is_there_before_the_submission():
    code = "def add(left: Number, right: Number) -> Number:\n    return left + right"
    assert grade(code).cause == "error"
    assert grade(code, preamble="from typing import Any as Number").passed
    assert grade(f"from __future__ import annotations\n{RIGHT}", preamble="import math").passed


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("I do not know.", "there is no code"),
        ("", "there is no code"),
        ("```python\ndef add(a, b:\n```", "not Python"),
        ("```python\ndef plus(a, b): return a + b\n```", "defines no function 'add'"),
        ("```json\n{}\n```", "there is no code"),
        ("```python\n" + "#" * 60_000 + "\ndef add(a, b): pass\n```", "at most 50000"),
        ("<think>```python\n" + RIGHT + "\n```</think> No.", "there is no code"),
        ("```python\nx\x00y\n```", "not Python"),
    ],
)
def test_what_holds_no_function_never_reaches_a_sandbox(response, reason):
    class NoSandbox:
        level = "limited"

        async def run_python(self, code, *, stdin="", files=None):
            raise AssertionError

    verdict = grade_code(response, ADD, entry_point="add", sandbox=NoSandbox())
    assert (verdict.cause, verdict.share, verdict.passed) == ("unparsed", 0.0, False)
    assert reason in verdict.reason


# Submissions that cheat


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_submission_that_cheats_scores_nothing(attack, sandbox):
    verdict = grade(ATTACKS[attack], SECRET_TESTS, "answer", sandbox=sandbox, timeout_s=1.5)
    assert isinstance(verdict, CodeVerdict)
    assert (verdict.share, verdict.passed) == (0.0, False)
    assert verdict.cause in ("wrong", "error", "timeout")
    assert verdict.reason


@pytest.mark.parametrize("attack", HANGS)
def test_a_submission_that_hangs_is_ended(attack):
    limits = SandboxLimits(wall_s=4.0)
    before = time.monotonic()
    verdict = grade(HANGS[attack], SECRET_TESTS, "answer", sandbox=make_sandbox(limits=limits), timeout_s=0.5)
    assert verdict.cause in ("timeout", "error")
    assert verdict.share == 0
    assert time.monotonic() - before < 60


@pytest.mark.parametrize("attack", ISOLATED_ATTACKS)
def test_nothing_in_reach_of_an_isolated_submission_helps(attack):
    sandbox = isolated_sandbox()
    searches = attack in ("searches for what is expected", "reads other processes")
    limit_s = 20.0 if searches else 1.0
    verdict = grade(ISOLATED_ATTACKS[attack], SECRET_TESTS, "answer", sandbox=sandbox, timeout_s=limit_s)
    assert (verdict.share, verdict.passed) == (0.0, False)
    assert verdict.reason
    if searches:
        assert verdict.tests[0].message == f"f(1) gave 'nothing', not '{SECRET}1'"


@pytest.mark.skipif(landlock_abi() < SIGNALS_ABI, reason="this kernel's Landlock cannot hold signals")
@pytest.mark.parametrize("capabilities", ["none", "kept"])
def test_a_limited_submission_cannot_look_at_its_judge(capabilities):
    """Also where it is root with all capabilities: the runner is in a domain of its own."""
    held = LocalSandbox(CODE_LIMITS, confinement=Confinement(capabilities=capabilities))
    verdict = grade(LOOKS_AT_ITS_JUDGE, SECRET_TESTS, "answer", sandbox=held)
    assert not verdict.passed
    errors = " ".join(["Permis"] * 5)
    assert verdict.tests[0].message == f"f(1) gave 'zq7secret {errors}', not '{SECRET}1'"


# What is not the submission's fault


class Broken:
    """A sandbox that fails as it is told."""

    level = "limited"

    def __init__(self, outcome):
        self.outcome = outcome

    async def run_python(self, code, *, stdin="", files=None):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    "outcome",
    [
        OSError("no space left"),
        RuntimeError("cannot start a thread"),
        SandboxResult(stdout="", stderr="bwrap: no user namespaces", exit_code=1),
        SandboxResult(stdout='0 "ready"\n', stderr="", exit_code=0),
    ],
)
def test_a_failing_sandbox_leaves_unscored(outcome):
    verdict = grade(RIGHT, sandbox=Broken(outcome))
    assert isinstance(verdict, Unscored)
    assert verdict.kind == "sandbox_error"


def test_a_test_that_cannot_be_used_leaves_unscored():
    verdict = grade(RIGHT, [CodeTest(source="assert add(len, 1) is None")])
    assert isinstance(verdict, Unscored)
    assert verdict.kind == "test_error"
    assert "builtin_function" in verdict.reason


def test_bad_arguments_are_refused():
    with pytest.raises(ConfigError, match="no tests"):
        grade(RIGHT, [])
    with pytest.raises(ConfigError, match="name of a function"):
        grade(RIGHT, entry_point="add it")
    with pytest.raises(ConfigError, match="timeout_s"):
        grade(RIGHT, timeout_s=0)
    with pytest.raises(ConfigError, match="plain data"):
        CallTest(args=[object()])
    with pytest.raises(ConfigError, match="tolerance"):
        CallTest(tolerance=-1)
    with pytest.raises(ConfigError, match="not Python"):
        CodeTest(source="assert")
    try:
        monty = MontySandbox()
    except MissingExtraError:
        return
    with pytest.raises(ConfigError, match="Monty"):
        grade(RIGHT, sandbox=monty)


# Beside other work


def test_a_hanging_submission_stalls_no_other_episode():
    async def play():
        ticks, hang = 0, submission("def add(left, right):\n    while True: pass")
        job = asyncio.create_task(agrade_code(hang, ADD, entry_point="add", timeout_s=1.0))
        while not job.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks, await job

    ticks, verdict = asyncio.run(play())
    assert verdict.cause == "timeout"
    assert ticks > 20


def test_many_at_once_wait_their_turn():
    async def play():
        one = submission(RIGHT)
        return await asyncio.gather(*(agrade_code(one, ADD, entry_point="add") for _ in range(20)))

    assert all(verdict.passed for verdict in asyncio.run(play()))
