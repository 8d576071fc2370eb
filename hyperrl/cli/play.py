"""``hyperrl rollout``: play with a model directory as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyperrl.cli.display import shown
from hyperrl.cli.options import EnvArguments, Overrides, parse_env_arguments, require_training
from hyperrl.errors import ConfigError

if TYPE_CHECKING:
    from hyperrl.train.config import TrainConfig

__all__ = ["rollout"]

ModelPath = Annotated[
    Path | None, typer.Option("--model", help="Model directory; the default is model.path of the config.")
]


PLAYED_ALONE = {
    "run.name": "rollout",
    "rollout.groups": 1,
    "rollout.group_size": 2,
    "rollout.max_turns": 32,
    "rollout.max_tokens": 1024,
    "rollout.max_episode_tokens": 32_768,
}
"""What is played where no config says so: two episodes of one task, with room for a program."""


def rollout(  # noqa: PLR0913, PLR0917  (one parameter an option)
    config: Annotated[
        Path | None, typer.Argument(help="YAML config; none needs --env and --model.", show_default=False)
    ] = None,
    set_: Overrides = None,
    model: ModelPath = None,
    env: Annotated[str | None, typer.Option(help="Environment; the default is that of the config.")] = None,
    env_arg: EnvArguments = None,
    program: Annotated[
        str | None, typer.Option(help="Agent program: codex, deepseek, or a dotted path to your own.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Keep the trajectories in this folder.")] = None,
    show: Annotated[int, typer.Option(min=0, help="Print this many episodes.")] = 1,
) -> None:
    """Play episodes with a model without training, and print some of them.

    Plays [bold]rollout.groups[/bold] tasks of the training split, [bold]rollout.group_size[/bold] times
    each; one task, twice, where there is no config.

    Example: hyperrl rollout configs/quickstart.yaml --set rollout.groups=2 --out episodes

    Example: hyperrl rollout --program codex --env repo_fix --model path/to/model
    """
    require_training()
    from hyperrl.cli.report import print_episode, print_rollout
    from hyperrl.wiring.saved_model import roll_out

    loaded = _load(config, set_, model=model, env=env, env_arg=env_arg, program=program)
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


def _load(path: Path | None, overrides: list[str] | None, **options: Any) -> TrainConfig:
    """Return a config, or the default one, under the options of the command line."""
    from hyperrl.envs.registration import find_env_id
    from hyperrl.train.config import load_config

    env, arguments = options["env"], parse_env_arguments(options["env_arg"])
    missing = [f"--{name}" for name in ("env", "model") if path is None and options[name] is None]
    if missing:
        raise ConfigError(f"without a config, {' and '.join(missing)} must say what is played")
    chosen = dict(PLAYED_ALONE) if path is None else {}
    values = {"env.program": options["program"], "env.id": None if env is None else find_env_id(env)}
    if options["model"] is not None:
        values["model.path"] = str(options["model"])
    if env is not None:
        values["env.kwargs"] = {}
    values |= {f"env.kwargs.{name}": value for name, value in arguments.items()}
    given = [f"{name}={json.dumps(value)}" for name, value in values.items() if value is not None]
    return load_config(
        path, [*[f"{name}={value}" for name, value in chosen.items()], *(overrides or []), *given]
    )
