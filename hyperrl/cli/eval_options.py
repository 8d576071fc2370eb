"""The options of ``hyperrl eval``, and what they mean together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hyperrl.cli.options import parse_env_arguments, require_training
from hyperrl.errors import ConfigError

if TYPE_CHECKING:
    from hyperrl.train.config import TrainConfig
    from hyperrl.wiring.eval_policies import PolicyChoice

__all__ = [
    "ApiKeyEnv",
    "Concurrency",
    "EndpointUrl",
    "KValues",
    "MaxTokens",
    "MaxTurns",
    "ModelName",
    "Out",
    "PolicyName",
    "Resume",
    "Retries",
    "Samples",
    "Seed",
    "SendSeed",
    "Split",
    "Success",
    "Target",
    "Tasks",
    "Temperature",
    "Timeout",
    "choose_policy",
    "find_run",
    "is_config",
    "make_eval_config",
    "read_ks",
]

MOST_TURNS = 32
"""Turn limit where neither the environment nor ``--max-turns`` gives one."""
ANSWER_TOKENS = 1024
"""Token limit of a turn where neither a config nor ``--max-tokens`` gives one."""
EPISODE_TOKENS = 2**20
SCRIPTED_EPISODES, ENDPOINT_EPISODES = 256, 32
"""Episodes played at the same time where nothing else is said."""

_WHO, _WHAT, _HOW, _RESULT = "Who plays", "What is played", "How it is played", "What is left"

Target = Annotated[
    str,
    typer.Argument(
        metavar="ENV|CONFIG|RUN", help="An environment (hyperrl envs), a YAML config, or the folder of a run."
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Scripted player: gold, baseline (the environment's own) or module:function.",
        rich_help_panel=_WHO,
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|NAME",
        help="Model directory; with --endpoint the name that the model is served under.",
        rich_help_panel=_WHO,
    ),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="OpenAI-compatible endpoint, such as http://localhost:8000/v1.",
        rich_help_panel=_WHO,
    ),
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        metavar="VARIABLE", help="Environment variable with the endpoint's key.", rich_help_panel=_WHO
    ),
]
SendSeed = Annotated[
    bool, typer.Option("--send-seed", help="Send a seed with every request.", rich_help_panel=_WHO)
]
Timeout = Annotated[
    float | None, typer.Option(min=0.001, help="Seconds for one try of a request.", rich_help_panel=_WHO)
]
Retries = Annotated[
    int | None, typer.Option(min=0, help="Tries of a request after the first.", rich_help_panel=_WHO)
]
Split = Annotated[
    str | None, typer.Option(help="Split; test where the environment has one.", rich_help_panel=_WHAT)
]
Tasks = Annotated[
    int | None,
    typer.Option(
        "--tasks", "--episodes", min=1, help="Tasks; all if there are fewer.", rich_help_panel=_WHAT
    ),
]
Samples = Annotated[int | None, typer.Option(min=1, help="Episodes of each task, K.", rich_help_panel=_WHAT)]
KValues = Annotated[
    str | None,
    typer.Option("--k", metavar="1,4,8", help="For which k pass@k is estimated.", rich_help_panel=_WHAT),
]
Success = Annotated[
    float | None,
    typer.Option(
        help="Reward from which an episode is a success; 1 if no config says.", rich_help_panel=_WHAT
    ),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of everything drawn here.", rich_help_panel=_WHAT)
]
Temperature = Annotated[
    float | None, typer.Option(min=0.0, help="0 takes the likeliest token.", rich_help_panel=_HOW)
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Sampled tokens of one turn.", rich_help_panel=_HOW)
]
MaxTurns = Annotated[
    int | None, typer.Option(min=1, help="Policy calls of one episode.", rich_help_panel=_HOW)
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Episodes played at the same time.", rich_help_panel=_HOW)
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for trajectories and summary.json.", rich_help_panel=_RESULT)
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Play what --out lacks; same options.", rich_help_panel=_RESULT)
]


def find_run(target: str) -> tuple[str, str] | None:
    """Return the config and the model of a run's folder; ``None`` where ``target`` is something else.

    Raises:
        ConfigError: the run has not left a model.
    """
    folder = Path(target)
    if not (folder / "config.yaml").is_file():
        return None
    if not (folder / "model").is_dir():
        raise ConfigError(f"the run in {target} has left no model/; it was ended before, or still goes on")
    return str(folder / "config.yaml"), str(folder / "model")


def is_config(target: str) -> bool:
    """Whether ``target`` names a config file rather than an environment."""
    return Path(target).suffix in (".yaml", ".yml") or Path(target).is_file()


def make_eval_config(
    target: str, overrides: list[str] | None, options: dict[str, Any], *, waits: bool
) -> TrainConfig:
    """Return the config of an evaluation: a file's, or that of an environment, under the options given.

    Args:
        target: config file or environment id.
        overrides: ``--set`` of a config file.
        options: ``env_arg``, ``split``, ``tasks``, ``seed``, ``model``, ``max_tokens``, ``max_turns``,
            ``success`` and ``concurrency``; ``None`` where the command line does not say.
        waits: the policy is asked over a network.

    Raises:
        ConfigError: the file, an override, an argument or the environment is not acceptable.
    """
    from hyperrl.train.config import load_config, make_config

    arguments = parse_env_arguments(options["env_arg"])
    if is_config(target):
        data = load_config(Path(target), overrides or []).model_dump(mode="json")
        data["env"]["kwargs"] |= arguments
    elif overrides:
        raise ConfigError("--set overrides options of a config; an environment's arguments are --env-arg")
    else:
        data = _env_defaults(target, arguments)
    rollout, evaluation = data["rollout"], data["evaluation"]
    rollout["max_concurrent"] = rollout.get("max_concurrent") or (
        ENDPOINT_EPISODES if waits else 0 if options["model"] else SCRIPTED_EPISODES
    )
    places = {
        "split": (evaluation, "split"),
        "tasks": (evaluation, "episodes"),
        "seed": (data["run"], "seed"),
        "success": (evaluation, "success"),
        "max_tokens": (evaluation, "max_tokens"),
        "max_turns": (rollout, "max_turns"),
        "concurrency": (rollout, "max_concurrent"),
    }
    for name, (section, key) in places.items():
        if options[name] is not None:
            section[key] = options[name]
    if options["model"] is not None and not waits:
        data["model"]["path"] = options["model"]
    return make_config(data, source="hyperrl eval")


def _env_defaults(env_id: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of a config for one environment, with the limits that it has itself."""
    from hyperrl.envs.registration import find_env_id, make_env

    env_id = find_env_id(env_id)
    env = make_env(env_id, **kwargs)
    try:
        split = "test" if "test" in env.splits else env.splits[0]
        turns = env.max_episode_steps or MOST_TURNS
    finally:
        env.close()
    return {
        "run": {"name": "eval"},
        "model": {},
        "env": {"id": env_id, "kwargs": kwargs},
        "rollout": {
            "max_turns": turns,
            "max_tokens": ANSWER_TOKENS,
            "max_episode_tokens": EPISODE_TOKENS,
        },
        "evaluation": {"split": split},
    }


def choose_policy(
    config: TrainConfig, *, policy: str | None, endpoint: str | None, model: str | None, **remote: Any
) -> PolicyChoice:
    """Return who plays.

    Args:
        config: names the model directory where no option does.
        policy: ``--policy``.
        endpoint: ``--endpoint``.
        model: ``--model``.
        **remote: fields of :class:`EndpointChoice`; ``None`` leaves its default.

    Raises:
        ConfigError: the options name nobody, or two.
        MissingExtraError: a model directory needs the extra ``train``.
    """
    from hyperrl.wiring.eval_policies import EndpointChoice, ModelChoice, ScriptedChoice

    given = {name: value for name, value in remote.items() if value is not None}
    if policy is not None:
        if endpoint is not None or model is not None:
            raise ConfigError("--policy plays by itself; leave out --model and --endpoint, or --policy")
        return ScriptedChoice(policy)
    if endpoint is not None:
        if model is None:
            raise ConfigError("--endpoint needs --model: the name that the model is served under")
        return EndpointChoice(base_url=endpoint, model=model, **given)
    if any(given.values()):
        raise ConfigError(f"{', '.join(sorted(given))}: these belong to --endpoint URL --model NAME")
    require_training()
    return ModelChoice(config.model.path, config.model.dtype)


def read_ks(text: str | None, samples: int) -> tuple[int, ...]:
    """Read ``1,4,8``; by default 1 and ``samples``.

    Raises:
        ConfigError: it is no list of whole numbers.
    """
    if text is None:
        return tuple(sorted({1, samples}))
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise ConfigError(
            f"--k must be whole numbers with commas between, such as 1,4,8; got {text!r}"
        ) from error
