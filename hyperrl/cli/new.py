"""``hyperrl new``: the first version of an environment package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["new"]


def new(
    name: Annotated[str, typer.Argument(help="Name of the project, such as word-game.")],
    parent: Annotated[Path, typer.Option("--dir", help="Where the project's folder is made.")] = Path(),
    kind: Annotated[str, typer.Option(help="single, tools or multi-turn.")] = "single",
) -> None:
    """Write an environment package that works: environment, entry point, README and tests.

    It passes [bold]hyperrl check[/bold] and its own tests as it is; change it bit by bit into yours.

    Example: hyperrl new word-game --kind multi-turn
    """
    from hyperrl.envs.scaffold import plan_scaffold, write_scaffold

    scaffold = plan_scaffold(name, parent=parent, kind=kind)
    write_scaffold(scaffold)
    for path in scaffold.files:
        typer.echo(f"wrote {scaffold.folder / path}")
    typer.echo(f"\nThe environment is {scaffold.module}/env.py. Next:")
    typer.echo(f"  pip install --editable {scaffold.folder}")
    typer.echo(f"  hyperrl check {scaffold.env_id}")
    typer.echo(f"  hyperrl play {scaffold.env_id}")
