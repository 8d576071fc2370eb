"""The commands of ``hyperrl``."""

from __future__ import annotations

from typing import Annotated

import typer

from hyperrl import __version__
from hyperrl.cli import (
    check,
    envs,
    evaluate,
    gateway,
    grade,
    models,
    new,
    person,
    play,
    programs,
    replay,
    template,
    training,
)

__all__ = ["app"]

app = typer.Typer(
    help="Train LLM agents with reinforcement learning: environments, rollouts, training.",
    epilog="Exit codes: 0 done; 1 the job failed; 2 the input is refused; 130 Ctrl-C; 143 SIGTERM.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hyperrl {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[  # its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("envs")(envs.list_envs)
app.command("check")(check.check)
app.command("new")(new.new)
app.command("play")(person.play_env)
app.command("template")(template.template)
app.command("grade")(grade.grade)
app.command("rollout")(play.rollout)
app.command("gateway")(gateway.gateway)
app.command("eval")(evaluate.evaluate)
app.command("sft")(training.sft)
app.command("train")(training.train)
app.command("replay")(replay.replay)
app.add_typer(models.app, name="models")
app.add_typer(programs.app, name="programs")
