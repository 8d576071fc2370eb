"""``hyperrl envs`` and ``hyperrl check``: which environments there are, and whether they hold."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hyperrl.cli.options import EnvArguments, parse_env_arguments

__all__ = ["check", "list_envs"]

JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def list_envs(as_json: JsonOutput = False) -> None:
    """List the registered environments, those of installed packages too.

    Example: hyperrl envs
    """
    from hyperrl.envs.registration import env_ids, load_entry_points, make_env

    load_entry_points()
    rows = []
    for env_id in env_ids():
        env = make_env(env_id)
        about = (type(env).__doc__ or "").strip().split("\n")[0]
        rows.append({"id": env_id, "version": env.version, "splits": list(env.splits), "about": about})
        env.close()
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    table = Table()
    for heading in ("id", "version", "splits", "about"):
        table.add_column(heading)
    for row in rows:
        table.add_row(str(row["id"]), str(row["version"]), ", ".join(row["splits"]), str(row["about"]))
    Console().print(table)


def check(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="A registered id (hyperrl envs).")],
    env_arg: EnvArguments = None,
    as_json: JsonOutput = False,
) -> None:
    """Check an environment: gymnasium's contract, gold and empty answers, odd input, determinism.

    Exit code 1 if a check fails.

    Example: hyperrl check hyperrl/GSM8K-v0 --env-arg mode=calculator
    """
    from hyperrl.envs.checker import check_env_contract
    from hyperrl.envs.registration import load_entry_points

    load_entry_points()
    report = check_env_contract(env_id, **parse_env_arguments(env_arg))
    if as_json:
        checks = [dataclasses.asdict(one) for one in report.checks]
        typer.echo(json.dumps({"env": env_id, "ok": report.ok, "step_us": report.step_us, "checks": checks}))
    else:
        table = Table(title=f"{env_id}, {report.step_us:.0f} us a step")
        for heading in ("check", "status", "what was seen"):
            table.add_column(heading)
        for one in report.checks:
            table.add_row(one.name, one.status, one.detail)
        Console().print(table)
    if not report.ok:
        raise typer.Exit(1)
