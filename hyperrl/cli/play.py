"""``hyperrl rollout``: play with a model directory as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hyperrl.cli.display import shown
from hyperrl.cli.options import ConfigPath, Overrides, require_training

if TYPE_CHECKING:
    from hyperrl.train.config import TrainConfig

__all__ = ["rollout"]

ModelPath = Annotated[
    Path | None, typer.Option("--model", help="Model directory; the default is model.path of the config.")
]


def rollout(
    config: ConfigPath,
    set_: Overrides = None,
    model: ModelPath = None,
    out: Annotated[Path | None, typer.Option(help="Keep the trajectories in this folder.")] = None,
    show: Annotated[int, typer.Option(min=0, help="Print this many episodes.")] = 1,
) -> None:
    """Play episodes with a model without training, and print some of them.

    Plays [bold]rollout.groups[/bold] tasks of the training split, [bold]rollout.group_size[/bold] times
    each.

    Example: hyperrl rollout configs/quickstart.yaml --set rollout.groups=2 --out episodes
    """
    require_training()
    from hyperrl.cli.report import print_episode, print_rollout
    from hyperrl.wiring.saved_model import roll_out

    loaded = _load(config, set_, model)
    earlier = _parts(out)
    with shown(lambda: f"{out} keeps the episodes that ended" if _parts(out) != earlier else "") as display:
        groups = roll_out(loaded, display, out=out)
    trajectories = [trajectory for group in groups for trajectory in group]
    for trajectory in trajectories[:show]:
        print_episode(trajectory)
    print_rollout(trajectories, success=loaded.evaluation.success)
    if out is not None:
        typer.echo(f"wrote {len(trajectories)} trajectories to {out}")


def _parts(out: Path | None) -> list[Path]:
    return sorted(out.glob("part-*")) if out is not None else []


def _load(path: Path, overrides: list[str] | None, model: Path | None) -> TrainConfig:
    from hyperrl.train.config import load_config

    chosen = [f"model.path={json.dumps(str(model))}"] if model is not None else []
    return load_config(path, [*(overrides or []), *chosen])
