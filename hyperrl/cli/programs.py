"""``hyperrl programs``: agent programs of others, and whether the installed ones work."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from hyperrl.harness.adapters.installed import Installed
    from hyperrl.harness.self_test import SelfTest

__all__ = ["app", "check", "overview"]

_STYLES = {"pass": "green", "fail": "bold red", "skip": "dim"}
app = typer.Typer(help="Agent programs: Codex, DeepSeek Harness, your own.", no_args_is_help=True)


@app.callback()
def overview() -> None:
    """Agent programs: Codex, DeepSeek Harness, your own."""


@app.command("check")
def check(
    name: Annotated[
        str, typer.Argument(help="codex, deepseek, deepseek_shared, or a dotted path to your own program.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find a program and have it play a small episode against a scripted policy; no model is needed.

    It is offered a tool of the environment and has to call it, read its result and answer. What the gateway
    recorded must be one conversation whose prompts extend each other, without requests beside the task;
    with strace installed, every connection must stay on this machine. Exit code 1 if a check fails, 2 if the
    program is not installed: the message says how to.

    Example: hyperrl programs check codex
    """
    from hyperrl.agents.base import load_program
    from hyperrl.harness.adapters.installed import Installable
    from hyperrl.harness.self_test import run_self_test

    program, installed = load_program(name), None
    source = getattr(program, "adapter", program)
    if isinstance(source, Installable):
        installed = asyncio.run(source.known.find(source.given))
        program = source.trial(installed.path)
    tested = asyncio.run(run_self_test(program))
    if as_json:
        found = {} if installed is None else dataclasses.asdict(installed)
        checks = [dataclasses.asdict(one) for one in tested.checks]
        typer.echo(json.dumps({"program": name, **found, "ok": not tested.failed, "checks": checks}))
    else:
        _print_tested(name, installed, tested)
    if tested.failed:
        raise typer.Exit(1)


def _print_tested(name: str, installed: Installed | None, tested: SelfTest) -> None:
    if installed is not None:
        known = "" if installed.known else ", which this is not"
        typer.echo(
            f"{installed.path} has version {installed.version}; hyperrl knows {installed.range}{known}"
        )
    table = Table(title=f"self-test of {name}")
    for heading in ("check", "status", "what was seen"):
        table.add_column(heading)
    for one in tested.checks:
        table.add_row(one.name, f"[{_STYLES[one.status]}]{one.status}[/]", escape(one.detail))
    Console().print(table)
