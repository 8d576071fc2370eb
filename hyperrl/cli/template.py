"""``hyperrl template``: what a model's chat template does to a conversation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hyperrl.cli.options import parse_pairs

if TYPE_CHECKING:
    from hyperrl.agents.rendering.inspection import Difference, TemplateReport

__all__ = ["template"]


def template(
    model_dir: Annotated[
        Path, typer.Argument(metavar="MODEL_DIR", help="Directory with tokenizer.json and a chat template.")
    ],
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Variable of the template; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a chat template does: what can be trained with it, what it strips, where the policy speaks.

    Patterns of roles that can follow an action are proved on the model's own tokenizer; one that is
    refused is shown with the failing example. Exit code 1 if the model cannot be trained at all.

    Example: hyperrl template models/qwen3 --option enable_thinking=false
    """
    from hyperrl.agents.rendering.inspection import inspect_template

    report = inspect_template(model_dir, template_options=parse_pairs(option, "--option"))
    if as_json:
        typer.echo(json.dumps(_as_json(report)))
    else:
        _print_report(report)
    if not report.usable:
        raise typer.Exit(1)


def _as_json(report: TemplateReport) -> dict[str, object]:
    return {
        "model": report.origin,
        "usable": report.usable,
        "usable_with_tools": report.usable_with_tools,
        "bridged": [list(pattern) for pattern in report.bridged],
        "refused": [{"pattern": list(p), "reason": why} for p, why in report.refused.items()],
        "stop_tokens": [{"id": i, "text": text} for i, text in report.stop_tokens.items()],
        "generation_suffix": report.generation_suffix,
        "opens_reasoning": report.opens_reasoning,
        "prefix_preserving": report.prefix_preserving,
        "prefix_breaks": [dataclasses.asdict(one) for one in report.prefix_breaks],
        "rewrites": [dataclasses.asdict(one) for one in report.rewrites],
        "strips": list(report.strips),
        "adds": list(report.adds),
        "tools": report.tools,
        "calls_readable": report.calls_readable,
        "refuses": list(report.refuses),
    }


def _print_report(report: TemplateReport) -> None:
    table = Table(title=escape(report.origin), show_lines=True)
    table.add_column("what")
    table.add_column("finding", overflow="fold")
    for what, finding in _rows(report):
        table.add_row(what, escape(finding))
    Console().print(table)


def _rows(report: TemplateReport) -> list[tuple[str, str]]:
    stops = ", ".join(f"{text!r} ({i})" for i, text in report.stop_tokens.items())
    suffix = repr(report.generation_suffix)
    tools = {
        "template": "shown by the template",
        "hyperrl": "ignored; hyperrl writes them into the system message",
    }
    calls = "" if report.calls_readable else "; calls are written in a form that cannot be read"
    rows = [
        ("can be trained", _usable(report)),
        ("proved after an action", ", ".join(map(_roles, report.bridged)) or "nothing"),
        *((f"refused: {_roles(pattern)}", why) for pattern, why in report.refused.items()),
        ("an action ends with", stops),
        ("the policy speaks after", suffix + (", inside <think>" if report.opens_reasoning else "")),
        (
            "prefix-preserving",
            _differing(report.prefix_breaks, "before", "later") or "yes, wherever it was tried",
        ),
        (
            "keeps what was sampled",
            _differing(report.rewrites, "sampled", "rendered") or "yes, wherever it was tried",
        ),
        ("strips", "\n".join(report.strips) or "nothing that was tried"),
        ("adds", "\n".join(report.adds) or "nothing"),
        ("tools", tools[report.tools] + calls),
    ]
    return [*rows, *(("refuses", one) for one in report.refuses)]


def _differing(differences: tuple[Difference, ...], first: str, second: str) -> str:
    lines = ["no"] if differences else []
    for one in differences:
        lines += [f"{one.conversation}:", f"  {first}: {one.before!r}", f"  {second}: {one.after!r}"]
    return "\n".join(lines)


def _usable(report: TemplateReport) -> str:
    if report.usable_with_tools:
        return "yes, with tools"
    return "yes, without tools" if report.usable else "no"


def _roles(pattern: tuple[str, ...]) -> str:
    return "[" + ", ".join(pattern) + "]"
