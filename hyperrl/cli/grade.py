"""``hyperrl grade``: whether the grader of short answers says what a file of cases expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["grade"]


def grade(
    file: Annotated[Path, typer.Argument(help="JSON list of rows: id, response, gold, expected, family.")],
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the reason of every row, and how both sides were read.")
    ] = False,
    algebra: Annotated[
        bool, typer.Option("--math", help="Compare expressions too, with math-verify.")
    ] = False,
) -> None:
    """Grade the responses of a file and print the rows where the verdict is not the expected one.

    The family of a row says where its answer stands: boxed, gsm8k, last_number or whole. The last line
    is JSON: how many rows came out as expected, of how many. Exit code 1 if some did not. An answer that
    math-verify gives no verdict of in time is never as expected.

    Example: hyperrl grade cases.json --explain
    """
    from hyperrl.envs.grading import Verdict, grade_answer, grade_math
    from hyperrl.envs.grading.case_file import load_cases

    cases = load_cases(file)
    right = 0
    for case in cases:
        grader = grade_math if algebra else grade_answer
        verdict = grader(case.response, case.gold, style=case.style, explain=explain)
        as_expected = isinstance(verdict, Verdict) and verdict.equal == case.expected
        right += as_expected
        if explain or not as_expected:
            mark = "ok     " if as_expected else "differs"
            wanted = "equal" if case.expected else "not equal"
            reason = verdict.reason if isinstance(verdict, Verdict) else f"unscored: {verdict.reason}"
            typer.echo(f"{mark} {json.dumps(case.case_id)}: expected {wanted}; {reason}")
        if isinstance(verdict, Verdict) and verdict.explanation:
            typer.echo(f"        {verdict.explanation}")
    typer.echo(json.dumps({"ok": right, "of": len(cases)}))
    if right < len(cases):
        raise typer.Exit(1)
