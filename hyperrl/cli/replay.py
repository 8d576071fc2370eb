"""``hyperrl replay``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from hyperrl.cli.display import shown
from hyperrl.cli.options import Overrides, require_training

if TYPE_CHECKING:
    from hyperrl.wiring.replay import Number, Replay

__all__ = ["replay"]

_SHOWN = (
    "critic/rewards/mean",
    "actor/loss",
    "actor/pg_loss",
    "actor/grad_norm",
    "actor/entropy",
    "critic/vf_loss",
    "consistency/logprob_diff_max",
    "policy/version",
)
"""Metrics that are shown although they are equal."""


def replay(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    iteration: Annotated[
        int, typer.Option("--iteration", min=1, help="Which iteration's update.", show_default=False)
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            help="Begin with these weights, those that played the iteration, and a fresh optimizer,"
            " instead of repeating the updates before it."
        ),
    ] = None,
    set_: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Write the model after the update here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all metrics as JSON.")] = False,
) -> None:
    """Repeat an update of a run from its stored episodes, without sampling, and compare the numbers.

    Begins at the run's starting point and repeats every update up to the iteration, which gives the same
    metrics and weights bit for bit on the same machine. Ends with exit code 1 where it does not, unless
    [bold]--set[/bold] or [bold]--model[/bold] changed what was repeated.

    Example: hyperrl replay runs/quickstart --iteration 3

    Example: hyperrl replay runs/quickstart --iteration 1 --set algorithm.microbatch_tokens=2048
    """
    require_training()
    from hyperrl.wiring.replay import ReplayJob, run_replay

    job = ReplayJob(run_dir=run_dir, iteration=iteration, model=model, overrides=set_ or [], out=out)
    with shown() as display:
        replayed = run_replay(job, display)
    if as_json:
        typer.echo(json.dumps(_as_json(replayed), indent=2, allow_nan=False))
    else:
        _print(replayed)
    if replayed.faithful and (replayed.differences or replayed.weights_equal is False):
        raise typer.Exit(1)


def _as_json(replayed: Replay) -> dict[str, object]:
    return {
        "iteration": replayed.iteration,
        "metrics": dict(replayed.metrics),
        "recorded": None if replayed.recorded is None else dict(replayed.recorded),
        "different": sorted(replayed.differences),
        "weights_equal": replayed.weights_equal,
    }


def _print(replayed: Replay) -> None:
    recorded, different = replayed.recorded or {}, replayed.differences
    table = Table(title=f"iteration {replayed.iteration}")
    for heading in ("metric", "run", "replay", ""):
        table.add_column(heading, justify="right" if heading in ("run", "replay") else "left")
    for name in dict.fromkeys((*_SHOWN, *different)):
        if name in replayed.metrics or name in recorded:
            verdict = "" if replayed.recorded is None else "differs" if name in different else "equal"
            table.add_row(name, _text(recorded.get(name)), _text(replayed.metrics.get(name)), verdict)
    console = Console()
    console.print(table)
    console.print(_verdict(replayed), highlight=False, soft_wrap=True)


def _text(value: Number) -> str:
    return "-" if value is None else f"{value:.9g}"


def _verdict(replayed: Replay) -> str:
    if replayed.recorded is None:
        return "The run logged no metrics of this iteration; nothing can be compared."
    count, different = len(replayed.recorded), len(replayed.differences)
    text = f"{count} metrics, all equal bit for bit" if not different else f"{different} metrics differ"
    if replayed.weights_equal is not None:
        text += f"; the weights are {'those' if replayed.weights_equal else 'not those'} of the run's model"
    return f"{text}." if replayed.faithful else f"{text}; the replay was changed by --set or --model."
