"""``hyperrl eval``: what a policy reaches on an environment, and how sure that is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hyperrl.cli import eval_options as options
from hyperrl.cli.display import shown
from hyperrl.cli.options import EnvArguments, Overrides, require_training
from hyperrl.errors import ConfigError

__all__ = ["evaluate"]


def evaluate(  # noqa: PLR0913, PLR0917  (one parameter an option)
    target: options.Target,
    policy: options.PolicyName = None,
    model: options.ModelName = None,
    endpoint: options.EndpointUrl = None,
    api_key_env: options.ApiKeyEnv = None,
    send_seed: options.SendSeed = False,
    timeout: options.Timeout = None,
    retries: options.Retries = None,
    env_arg: EnvArguments = None,
    split: options.Split = None,
    tasks: options.Tasks = None,
    samples: options.Samples = None,
    k: options.KValues = None,
    success: options.Success = None,
    seed: options.Seed = None,
    temperature: options.Temperature = None,
    max_tokens: options.MaxTokens = None,
    max_turns: options.MaxTurns = None,
    concurrency: options.Concurrency = None,
    set_: Overrides = None,
    out: options.Out = None,
    resume: options.Resume = False,
    as_json: Annotated[bool, typer.Option("--json", help="End with one JSON line.")] = False,
) -> None:
    """Measure what a policy reaches on held-out tasks: pass@k and avg@k with 95 % intervals.

    A scripted player and an endpoint need no torch. Episodes without a reward are counted by their cause,
    never as 0; where none has one, the exit code is 1. A config or a run by itself is evaluated as
    training does it, sampled and greedy.

    Example: hyperrl eval hyperrl/Wordle-v0 --policy baseline --tasks 100 --samples 4 --k 1,4

    Example: hyperrl eval hyperrl/GSM8K-v0 --endpoint http://localhost:8000/v1 --model qwen3 --out runs/eval

    Example: hyperrl eval runs/quickstart
    """
    if found := options.find_run(target):
        target = found[0]
        model = found[1] if policy is endpoint is model is None else model
    given = {
        "env_arg": env_arg,
        "split": split,
        "tasks": tasks,
        "seed": seed,
        "max_tokens": max_tokens,
        "max_turns": max_turns,
        "concurrency": concurrency,
        "success": success,
    }
    special = (policy, endpoint, samples, k, temperature, out, *given.values())
    if options.is_config(target) and not resume and all(value is None for value in special):
        _evaluate_as_training(Path(target), set_, model, as_json)
        return
    if not options.is_config(target) and policy is endpoint is model is None:
        raise ConfigError(
            "say who plays: --policy gold, --policy baseline, --policy module:function, --model DIR, or"
            " --endpoint URL --model NAME"
        )
    config = options.make_eval_config(target, set_, {**given, "model": model}, waits=endpoint is not None)
    remote = {"api_key_env": api_key_env, "timeout_s": timeout, "retries": retries, "send_seed": send_seed}
    choice = options.choose_policy(config, policy=policy, endpoint=endpoint, model=model, **remote)
    _run(
        as_json,
        config=config,
        policy=choice,
        samples=samples or config.evaluation.samples,
        ks=options.read_ks(k, samples or config.evaluation.samples),
        temperature=temperature,
        out=out,
        resume=resume,
    )


def _run(as_json: bool, **values: Any) -> None:
    from hyperrl.cli.report import print_figures
    from hyperrl.wiring.evaluation import EvalSettings, run_evaluation

    settings = EvalSettings(**values)
    out = settings.out
    kept = f"{out} keeps the episodes that ended; --resume goes on"
    with shown(lambda: kept if _has_episodes(out) else "") as display:
        report = run_evaluation(settings, display)
    print_figures(report)
    if out is not None:
        typer.echo(f"{out} holds trajectories/ and summary.json")
    if as_json:
        _print_json(report.summary())
    if not report.figures.scored:
        raise typer.Exit(1)


def _evaluate_as_training(path: Path, overrides: list[str] | None, model: str | None, as_json: bool) -> None:
    """Play the held-out split with a model directory, sampled and greedy."""
    require_training()
    from hyperrl.cli.report import print_evaluation
    from hyperrl.train.config import load_config
    from hyperrl.wiring.saved_model import evaluate_model

    chosen = [f"model.path={json.dumps(model)}"] if model is not None else []
    loaded = load_config(path, [*(overrides or []), *chosen])
    with shown() as display:
        evaluation = evaluate_model(loaded, display)
    print_evaluation(evaluation)
    if as_json:
        _print_json(evaluation.metrics())


def _print_json(values: Mapping[str, Any]) -> None:
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
    typer.echo(json.dumps(finite, allow_nan=False))


def _has_episodes(out: Path | None) -> bool:
    return out is not None and any((out / "trajectories").glob("part-*"))
