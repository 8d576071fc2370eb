"""``hyperrl envs``: which environments there are."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["list_envs"]

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
