"""``hyperrl sft`` and ``hyperrl train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyperrl.cli.display import shown
from hyperrl.cli.options import ConfigPath, Overrides, require_training

__all__ = ["sft", "train"]


def sft(config: ConfigPath, set_: Overrides = None) -> None:
    """Teach a model from conversations, from played episodes, or from an environment's gold answers.

    Reads the model directory [bold]sft.start[/bold] and writes [bold]model.path[/bold], from which
    [bold]hyperrl train[/bold] goes on, with sft-metrics.jsonl and sft-summary.json in it. Only what the
    assistant says is learned.

    Example: hyperrl sft configs/quickstart.yaml --set sft.steps=50

    Example: hyperrl sft run.yaml --set sft.data=chats.jsonl --set sft.epochs=2 --set sft.validation=0.05

    Example: hyperrl sft run.yaml --set sft.from_store=runs/first --set sft.min_reward=1.0
    """
    require_training()
    from hyperrl.train.config import load_config
    from hyperrl.wiring.sft import run_warm_start

    loaded = load_config(config, set_ or [])
    with shown() as display:
        output = run_warm_start(loaded, display)
    typer.echo(f"wrote {output}")


def train(
    config: ConfigPath,
    set_: Overrides = None,
    check_only: Annotated[
        bool, typer.Option("--check", help="Check config, model, tokenizer and data, then stop.")
    ] = False,
) -> None:
    """Train a policy: play groups of episodes, learn from them, publish, repeat.

    Writes into [bold]run.dir[/bold]: config.yaml, metrics.jsonl, trajectories/, evaluations/,
    reward_curve.png, model/ and summary.json. Ctrl-C ends cleanly and says what is there.

    Example: hyperrl train configs/quickstart.yaml --set run.seed=1 --set run.dir=runs/seed1
    """
    require_training()
    from hyperrl.cli.report import print_summary
    from hyperrl.train.config import load_config
    from hyperrl.wiring.preflight import check_run
    from hyperrl.wiring.training import run_training

    loaded = load_config(config, set_ or [])
    if check_only:
        check_run(loaded)
        typer.echo(f"{config}: ready to train")
        return
    with shown(lambda: _kept(loaded.run.dir)) as display:
        result = run_training(loaded, display)
    print_summary(result)


def _kept(folder: Path) -> str:
    from hyperrl.wiring.run_directory import kept_files

    names = kept_files(folder)
    return f"{folder} keeps {', '.join(names)}" if names else ""
