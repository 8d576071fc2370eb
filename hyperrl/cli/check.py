"""``hyperrl check``: whether environments hold what they promise."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hyperrl.cli.options import EnvArguments, parse_env_arguments
from hyperrl.errors import ConfigError

if TYPE_CHECKING:
    from hyperrl.envs.checker import CheckReport

__all__ = ["check"]

_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


def check(
    env_id: Annotated[
        str, typer.Argument(metavar="[ENV]", help="An id of hyperrl envs, or its name: countdown.")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Check all of them, a row each.")] = False,
    env_arg: EnvArguments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Check an environment: gymnasium's contract, honest rewards, determinism, splits, prompts.

    The gold must reach the declared score; empty, wrong, random and adversarial answers must stay at or
    under the declared floor. A slow reset is a warning, not a failure. With [bold]--all --json[/bold] the
    last line counts the environments that hold and names what failed. Exit code 1 if a check fails.

    Example: hyperrl check hyperrl/GSM8K-v0 --env-arg mode=calculator
    """
    from hyperrl.envs.registration import find_env_id, load_entry_points

    if bool(env_id) == every:
        raise ConfigError(
            "hyperrl check takes the id of an environment, or --all; hyperrl envs lists the ids"
        )
    if every and env_arg:
        raise ConfigError("--env-arg is for one environment; it cannot go with --all")
    load_entry_points()
    ok = _check_all(as_json) if every else _check_one(find_env_id(env_id), env_arg, as_json)
    if not ok:
        raise typer.Exit(1)


def _check_one(env_id: str, env_arg: list[str] | None, as_json: bool) -> bool:
    from hyperrl.wiring.env_check import check_environment

    report = check_environment(env_id, parse_env_arguments(env_arg))
    if as_json:
        typer.echo(_json_line(report))
    else:
        _print_report(report)
    return report.ok


def _check_all(as_json: bool) -> bool:
    from hyperrl.envs.registration import env_ids
    from hyperrl.wiring.env_check import check_environments

    reports = []
    for report in check_environments(env_ids()):
        reports.append(report)
        if as_json:
            typer.echo(_json_line(report))
    failures = [
        {"env": report.env_id, "check": one.name, "detail": one.detail}
        for report in reports
        for one in report.failures
    ]
    held = sum(report.ok for report in reports)
    if as_json:
        typer.echo(json.dumps({"ok": held, "of": len(reports), "failures": failures}))
    else:
        _print_overview(reports)
        for failure in failures:
            typer.echo("{env}: {check}: {detail}".format(**failure))
    return held == len(reports)


def _json_line(report: CheckReport) -> str:
    line = {
        "env": report.env_id,
        "ok": report.ok,
        "step_us": report.step_us,
        "reset_us": report.reset_us,
        "checks": [dataclasses.asdict(one) for one in report.checks],
    }
    return json.dumps(line)


def _print_report(report: CheckReport) -> None:
    title = f"{report.env_id}, {report.step_us:.0f} us a step, {report.reset_us:.0f} us a reset"
    table = Table(title=title)
    for heading in ("check", "status", "what was seen"):
        table.add_column(heading)
    for one in report.checks:
        table.add_row(one.name, f"[{_STYLES[one.status]}]{one.status}[/]", escape(_printable(one.detail)))
    Console().print(table)


def _print_overview(reports: list[CheckReport]) -> None:
    table = Table(title=f"{sum(report.ok for report in reports)} of {len(reports)} environments hold")
    table.add_column("environment")
    for heading in ("pass", "warn", "fail", "skip", "us a step", "us a reset"):
        table.add_column(heading, justify="right")
    for report in reports:
        found = [one.status for one in report.checks]
        counts = [str(found.count(status)) if status in found else "-" for status in _STYLES]
        table.add_row(report.env_id, *counts, f"{report.step_us:.0f}", f"{report.reset_us:.0f}")
    Console().print(table)
    for report in reports:
        for one in report.checks:
            if one.status in ("warn", "skip"):
                typer.echo(_printable(f"{report.env_id}: {one.name}: {one.status}: {one.detail}"))


def _printable(text: str) -> str:
    """Lone surrogates cannot be written to a terminal."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
