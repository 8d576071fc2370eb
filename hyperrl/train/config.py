"""The config of a training run: strict, typed, every leaf with a default and a unit.

A config is a YAML file; ``--set a.b=c`` overrides single leaves. Unknown keys are refused with the
nearest known name, and everything that can be known to be wrong is refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard

import yaml
from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator

from hyperrl.errors import ConfigError, nearest
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.config_types import (
    Count,
    Decay,
    Fraction,
    NotNegative,
    Number,
    Positive,
    Real,
    Section,
    UserPath,
    Whole,
)
from hyperrl.train.sft_config import SftConfig

__all__ = [
    "AlgorithmConfig",
    "ConsistencyConfig",
    "CriticConfig",
    "EnvConfig",
    "EvaluationConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ReferenceConfig",
    "RequireConfig",
    "RolloutConfig",
    "RunConfig",
    "SamplerConfig",
    "Section",
    "SftConfig",
    "TrainConfig",
    "dump_config",
    "load_config",
    "make_config",
    "option_names",
]


class RunConfig(Section):
    """Where a run lives and what it can be repeated from."""

    name: str = "run"
    """Name of the run; part of every trajectory."""
    dir: UserPath = Path("runs/run")
    """Folder of the run: config, metrics, trajectories, plots, final model."""
    seed: Whole = 0
    """Seed of everything that is drawn: weights, data order, episodes, tokens."""
    overwrite: bool = False
    """Replace what an earlier, ended run left in ``dir``."""
    profile: list[Count] = Field(default_factory=list)
    """Iterations of which PyTorch's profiler writes a trace, ``profile/iteration-<n>.json``; from 1."""


class ModelConfig(Section):
    """The policy's starting point."""

    path: UserPath = Path("models/policy")
    """Model directory in the Hugging Face layout (config.json, safetensors, tokenizer.json)."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Type of weights and activations; losses, logprobs, gradient sums and the optimizer are float32 or
    wider."""
    attention: Literal["eager", "sdpa"] = "eager"
    """Attention implementation, the same for learner and sampler."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of layers for the backward pass, and compute the rest again: less memory, about a
    third more time."""
    device: str = "auto"
    """``auto`` takes the accelerator if there is one, else the CPU."""
    threads: Whole = 1
    """CPU threads of one tensor operation; 0 leaves the choice to PyTorch."""


class EnvConfig(Section):
    """The environment that is played."""

    id: str = "hyperrl/SortDigits-v0"
    """A registered environment id (``hyperrl envs`` lists them)."""
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of ``gym.make``; ``split`` is set by training and evaluation."""
    train_split: str = "train"
    """Split that training draws tasks from."""
    program: str = "turn_loop"
    """Agent program that plays: a registered name or a dotted path to your own."""
    learn_from: list[Literal["title", "compaction", "subagent"]] = Field(default_factory=list)
    """Side requests of a served program that are learned from like the task; none by default."""
    scorers: list[str] = Field(default_factory=list)
    """Dotted paths to what scores after the episode: functions with ``@reward``, judges, reward models."""
    scorer_timeout_s: Positive = 300.0
    """Seconds that one scorer may take for one group; then its term is unscored."""


class RolloutConfig(Section):
    """How many episodes an iteration plays, and their limits."""

    groups: Count = 32
    """Tasks an iteration (groups of episodes)."""
    group_size: Count = 8
    """Episodes of one task, compared with each other."""
    max_turns: Count = 8
    """Policy calls of one episode; the environment's own limit holds if it is lower."""
    max_tokens: Count = 256
    """Sampled tokens of one turn."""
    max_episode_tokens: Count = 4096
    """Tokens of one episode, read and sampled."""
    wall_clock_s: Positive = 600.0
    """Seconds that one episode may take."""
    max_concurrent: Whole = 0
    """Episodes played at the same time; 0 plays all of an iteration together."""
    temperature: Positive = 1.0
    """Logits are divided by it, in the sampler and in the learner."""
    top_p: Annotated[float, Number, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling; below 1 needs ``allow_truncated_sampling``."""
    top_k: Whole = 0
    """Sample among the k most likely tokens; above 0 needs ``allow_truncated_sampling``."""
    allow_truncated_sampling: bool = False
    """Train on truncated sampling although its renormalised mass is missing from every ratio."""


class SamplerConfig(Section):
    """The in-process sampler."""

    max_batch: Count = 256
    """Sequences decoded together."""
    max_staleness: Whole = 0
    """Versions that a trajectory may be behind the learner. Only 0 (synchronous) is built."""
    bucket_bytes: Annotated[int, Number, Field(ge=1024)] = 64 * 2**20
    """Bytes of one bucket of a publication."""


class ReferenceConfig(Section):
    """The frozen policy that a KL is measured to (``algorithm.kl``)."""

    path: UserPath | None = None
    """Model directory; none takes the policy's starting point, ``model.path``."""


class CriticConfig(Section):
    """The value function of ``algorithm.advantage: gae`` (PPO)."""

    path: UserPath | None = None
    """Model directory of its backbone; none takes the policy's starting point, ``model.path``."""
    lr: Positive = 1e-5
    """Learning rate; AdamW's other settings are those of ``optimizer``."""
    clip: NotNegative = 0.5
    """How far a value may move in one iteration before its loss is clipped; 0 is no limit."""
    clip_norm: Positive = 1.0
    """Largest gradient norm; larger gradients are scaled down."""
    warmup: Whole = 0
    """Iterations in which only the critic learns."""


class OptimizerConfig(Section):
    """AdamW and its schedule."""

    lr: Positive = 1e-6
    """Learning rate after the warm-up."""
    beta1: Decay = 0.9
    """AdamW's decay of the first moment."""
    beta2: Decay = 0.999
    """AdamW's decay of the second moment."""
    eps: Positive = 1e-8
    """AdamW's epsilon."""
    weight_decay: Annotated[float, Number, Field(ge=0)] = 0.0
    """Decoupled weight decay of matrices; norms and biases are left alone."""
    clip_norm: Positive = 1.0
    """Largest gradient norm; larger gradients are scaled down."""
    warmup_steps: Whole = 0
    """Optimizer steps over which the learning rate rises linearly from 0."""
    decay_steps: Whole = 0
    """Optimizer steps, counted from the first, at whose end the rate has fallen linearly to
    ``lr * final_lr_fraction``; 0 keeps it."""
    final_lr_fraction: Fraction = 0.1
    """What is left of the learning rate after ``decay_steps``."""


class ConsistencyConfig(Section):
    """The gate between sampler and learner: the same version must give the same logprobs."""

    mode: Literal["exact", "tolerance", "off"] = "tolerance"
    """``tolerance`` stops the run where a logprob differs by more than ``limit``; ``exact`` where it
    differs at all (for float64 weights and sdpa attention)."""
    limit: Annotated[float, Number, Field(ge=0)] = 0.0
    """Largest difference in nats; 0 takes the limit of the dtype."""


class EvaluationConfig(Section):
    """Held-out evaluation before, during and after training."""

    every: Whole = 0
    """Iterations between evaluations; 0 evaluates only before and after."""
    episodes: Count = 256
    """Held-out tasks, each played ``samples`` times sampled and once greedy."""
    samples: Count = 1
    """Sampled episodes of each task, K: the figures are avg@K, pass@1 and pass@K."""
    split: str = "test"
    """Split that is never trained on."""
    temperature: Positive | None = None
    """Temperature of the sampled evaluation; none takes ``rollout.temperature``."""
    top_p: Annotated[float, Number, Field(gt=0, le=1)] | None = None
    """Nucleus sampling of the sampled evaluation; none takes ``rollout.top_p``."""
    top_k: Whole | None = None
    """The sampled evaluation draws among the k most likely tokens; none takes ``rollout.top_k``."""
    max_tokens: Count | None = None
    """Sampled tokens of one turn of an evaluation; none takes ``rollout.max_tokens``."""
    success: Real = 1.0
    """Reward from which an episode counts as a success."""


class RequireConfig(Section):
    """What a run must show. Else it ends with an error that says what was missing; its files stay."""

    finite_gradients: bool = False
    """No update may be left out because its loss or gradient is not finite; the run stops at the first."""
    nonzero_gradients: bool = False
    """The run stops after ``patience`` iterations in a row without an update whose gradient is above 0."""
    reward_differences: bool = False
    """The run stops after ``patience`` iterations in a row in which all rewards within a group are equal."""
    patience: Count = 10
    """Iterations in a row that may pass without gradient or differences."""
    signal_fraction: Fraction | None = None
    """Least share of all groups played whose rewards differ."""
    success: Fraction | None = None
    """Least sampled held-out success after the last iteration."""
    gain: Real | None = None
    """Least gain in sampled held-out success over that before the first iteration: the mean over tasks."""
    gain_low: Real | None = None
    """Least lower end of the gain's 95 % interval, task by task; 0 demands that it is no chance."""


class TrainConfig(Section):
    """A whole training run."""

    run: RunConfig = Field(default_factory=RunConfig)
    """Where the run lives."""
    model: ModelConfig = Field(default_factory=ModelConfig)
    """The policy's starting point."""
    env: EnvConfig = Field(default_factory=EnvConfig)
    """The environment."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """Episodes of an iteration."""
    sampler: SamplerConfig = Field(default_factory=SamplerConfig)
    """The sampler."""
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    """The update."""
    reference: ReferenceConfig = Field(default_factory=ReferenceConfig)
    """The frozen reference policy."""
    critic: CriticConfig = Field(default_factory=CriticConfig)
    """The value function."""
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    """The optimizer."""
    consistency: ConsistencyConfig = Field(default_factory=ConsistencyConfig)
    """The gate between sampler and learner."""
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    """Held-out evaluation."""
    require: RequireConfig = Field(default_factory=RequireConfig)
    """What the run must show."""
    sft: SftConfig = Field(default_factory=SftConfig)
    """Supervised learning before the run."""
    iterations: Count = 10
    """Iterations: one batch of groups, its updates, one publication each."""

    @model_validator(mode="after")
    def _check_profile(self) -> Self:
        if beyond := [number for number in self.run.profile if number > self.iterations]:
            raise ValueError(f"run.profile asks for iteration {beyond[0]} of {self.iterations}")
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rollout.group_size < self.algorithm.smallest_group:
            raise ValueError(
                f"rollout.group_size is {self.rollout.group_size}, but {self.algorithm.name} compares the"
                f" episodes of a group; give it at least {self.algorithm.smallest_group}"
                " (algorithm.smallest_group)"
            )
        if "split" in self.env.kwargs:
            raise ValueError(
                "env.kwargs.split would be overwritten; set env.train_split and evaluation.split instead"
            )
        if self.sampler.max_staleness:
            raise ValueError(
                f"sampler.max_staleness is {self.sampler.max_staleness}; only 0 (synchronous) is built"
            )
        truncates = self.rollout.top_p < 1 or self.rollout.top_k > 0
        if truncates and not self.rollout.allow_truncated_sampling:
            raise ValueError(
                "rollout.top_p/top_k rule tokens out, whose mass would leak into every ratio;"
                " leave them at 1 and 0, or set rollout.allow_truncated_sampling"
            )
        if self.algorithm.overlong.buffer > self.rollout.max_tokens:
            raise ValueError(
                f"algorithm.overlong.buffer is {self.algorithm.overlong.buffer}, more than the"
                f" {self.rollout.max_tokens} of rollout.max_tokens: the shortest answer would be penalised"
            )
        if self.algorithm.minibatches > self.rollout.groups * self.rollout.group_size:
            raise ValueError(
                f"algorithm.minibatches is {self.algorithm.minibatches}, more than the"
                f" {self.rollout.groups * self.rollout.group_size} episodes of an iteration"
            )
        return self


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a YAML config and apply ``a.b=c`` overrides; without a file, they are applied to the defaults.

    Raises:
        ConfigError: the file is missing or not YAML, or a key or value is not acceptable.
    """
    data = {} if path is None else _read_sections(path)
    for override in overrides:
        _apply(data, override)
    return make_config(data, source=str(path or "config"))


def _read_sections(path: Path) -> dict[str, Any]:
    try:
        data = _read_yaml(path)
    except OSError as error:
        raise ConfigError(f"config {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {path} is not YAML: {error}") from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"config {path} must be a mapping of sections, got {type(data).__name__}")
    for name in _section_names():
        if name in data and data[name] is None:  # a heading whose options are all commented out
            data[name] = {}
    return data


def make_config(data: Mapping[str, Any], *, source: str = "config") -> TrainConfig:
    """Build a config from plain data.

    Raises:
        ConfigError: lists every key or value that is not acceptable.
    """
    try:
        return TrainConfig.model_validate(dict(data))
    except ValidationError as error:
        known = set(option_names())
        problems = [_explain(problem, known) for problem in error.errors()]
        raise ConfigError(f"{source}: " + "; ".join(problems)) from None


def dump_config(config: TrainConfig) -> str:
    """Return the resolved config as YAML, defaults included."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def option_names() -> list[str]:
    """Return the dotted name of every option, in the order of the sections."""
    return [name for name, _ in _leaves(TrainConfig, "")]


def _section_names() -> list[str]:
    return [name for name, field in TrainConfig.model_fields.items() if _is_section(field.annotation)]


def _is_section(kind: object) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


def _leaves(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if _is_section(kind):
            yield from _leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _read_yaml(path: Path) -> Any:
    """Read one YAML document in which no key stands twice: the last would silently win.

    Raises:
        ConfigError: a key stands twice.
    """
    loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_duplicates(root, path, set())
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _refuse_duplicates(node: yaml.Node, path: Path, visited: set[int]) -> None:
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item, path, visited)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                line = key.start_mark.line + 1
                raise ConfigError(f"config {path}: {key.value!r} stands twice, again in line {line}")
            keys.add(str(key.value))
            _refuse_duplicates(value, path, visited)


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {override!r} must look like section.name=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"override {override!r}: the value is not YAML; text with YAML's own characters needs quotes,"
            f" as in '{key}=\"...\"'. {error}"
        ) from error
    *sections, leaf = key.strip().split(".")
    for section in sections:
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {section} is not a section")
        data = inner
    data[leaf] = value


def _explain(problem: Any, known: set[str]) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        if name in known:
            section, _, leaf = name.rpartition(".")
            return f"{name!r} is a key of its own here; nest it: '{section}: {{{leaf}: ...}}'"
        return f"unknown key {name!r}.{nearest(name, known)}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not name:
        return message
    if problem["type"] == "model_type":
        message = "expected a section, a mapping of options"
    elif problem["type"] == "string_type":
        message += ", and YAML reads this as something else; put it into quotes"
    return f"{name} = {problem['input']!r}: {message}"
