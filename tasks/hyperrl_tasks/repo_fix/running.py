"""Running the tests of a repository in a sandbox, and a verdict that the tested code cannot write.

A hidden test is an expression. The sandbox computes it and hands back the text of its value; what the
value should be never enters the sandbox, and is compared outside. So code that ends early, prints, replaces
parts of the runner or forges its whole report has still to know the right values.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyperrl.envs.sandbox import Sandbox
from hyperrl_tasks.repo_fix.repository import Repository, is_test

__all__ = ["RepositoryVerdict", "judge_repository", "run_visible_tests", "to_be_judged"]

_TEST_LIMIT_S = 2.0
_VALUE_CHARS = 2_000
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

_RUNNER = f"""
import sys
here = sys.path.pop(0)  # files of the repository must not stand in for modules of Python
import ast, contextlib, importlib.util, io, json, os, signal, traceback
sys.path.insert(0, here)
sys.dont_write_bytecode = True


def overrun(*_):
    raise TimeoutError("more than {_TEST_LIMIT_S:g} s")


def bounded(work):
    signal.signal(signal.SIGALRM, overrun)
    signal.setitimer(signal.ITIMER_REAL, {_TEST_LIMIT_S})
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def value_of(source):
    *statements, last = ast.parse(source).body
    scope = {{}}
    exec(compile(ast.Module(statements, []), "<case>", "exec"), scope)
    return repr(eval(compile(ast.Expression(last.value), "<case>", "eval"), scope))[:{_VALUE_CHARS}]


def case(source):
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return bounded(lambda: value_of(source))
    except BaseException as error:
        return "raises " + type(error).__name__


def load(path):
    name = path.removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [(key, value) for key, value in vars(module).items() if key.startswith("test_")]


def shown(error):
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames, limit=-4))


def attempt(name, work, told):
    try:
        result = bounded(work)
    except BaseException as error:
        told.append("FAIL " + name + "\\n" + shown(error))
        return None
    return result


def visible(paths):
    passed, failed, told = 0, 0, []
    for path in paths:
        tests = attempt(path, lambda: load(path), told)
        failed += tests is None
        for name, test in tests or []:
            fine = attempt(path + "::" + name, lambda: test() or True, told)
            passed, failed = passed + bool(fine), failed + (not fine)
    told.append(str(passed) + " passed, " + str(failed) + " failed")
    return passed, failed, "\\n".join(told)


job = json.loads(sys.stdin.read())
values = [case(source) for source in job["cases"]]
passed, failed, told = visible(job["tests"])
report = {{"values": values, "passed": passed, "failed": failed, "told": told}}
sys.stdout.flush()
os.write(1, ("\\n" + job["mark"] + json.dumps(report) + "\\n").encode())
os._exit(0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryVerdict:
    """How a repository did.

    Attributes:
        right: hidden cases whose value is as it should be.
        cases: how many there are.
        visible_pass: every visible test passed, as far as the tested code can be trusted.
    """

    right: int
    cases: int
    visible_pass: bool

    @property
    def fixed(self) -> bool:
        """Whether all tests pass."""
        return self.visible_pass and self.right == self.cases


async def run_visible_tests(sandbox: Sandbox, files: Mapping[str, str]) -> str:
    """Run the tests that a workspace holds; return what a developer reads of it."""
    report, said = await _run(sandbox, files, [])
    if report is None:
        return f"the tests did not come to an end\n{said}".rstrip()
    return _ADDRESS.sub(" at 0x...", str(report.get("told")))


async def judge_repository(
    sandbox: Sandbox, repository: Repository, files: Mapping[str, str]
) -> RepositoryVerdict:
    """Judge the files of a workspace: the visible tests as they were at first, and the hidden ones."""
    sources = [f"{repository.setup}\n{case.source}" for case in repository.cases]
    report, _ = await _run(sandbox, to_be_judged(repository, files), sources)
    values = (report or {}).get("values")
    told = values if isinstance(values, list) else []
    right = sum(case.expected == value for case, value in zip(repository.cases, told, strict=False))
    passed = report is not None and report.get("failed") == 0
    return RepositoryVerdict(
        right=right,
        cases=len(repository.cases),
        visible_pass=passed and (report or {}).get("passed") == repository.visible_tests,
    )


def to_be_judged(repository: Repository, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files to judge: all tests are the original ones, and only these."""
    kept = {path: text for path, text in files.items() if not is_test(path) and not is_test(f"{path}/")}
    return kept | {path: text for path, text in repository.files.items() if is_test(path)}


async def _run(
    sandbox: Sandbox, files: Mapping[str, str], cases: list[str]
) -> tuple[dict[str, Any] | None, str]:
    """Run cases and tests; return the report, None where there is not exactly one, and the output."""
    mark = f"report {secrets.token_hex(16)} "
    tests = sorted(path for path in files if re.fullmatch(r"tests/test_\w+\.py", path))
    job = json.dumps({"mark": mark, "cases": cases, "tests": tests})
    result = await sandbox.run_python(_RUNNER, stdin=job, files=files)
    before, found, line = result.stdout.partition(f"\n{mark}")
    said = f"{before}\n{result.stderr}".strip()
    if not found or mark in line:
        return None, said
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None, said
    return (report if isinstance(report, dict) else None), said
