"""The training config: strict keys, clear errors, a frozen list of options."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from hyperrl.errors import ConfigError
from hyperrl.train.config import TrainConfig, dump_config, load_config, make_config, option_names

OPTIONS = """
run.name
run.dir
run.seed
run.overwrite
run.profile
model.path
model.dtype
model.attention
model.gradient_checkpointing
model.device
model.threads
env.id
env.kwargs
env.train_split
env.program
env.learn_from
env.scorers
env.scorer_timeout_s
rollout.groups
rollout.group_size
rollout.max_turns
rollout.max_tokens
rollout.max_episode_tokens
rollout.wall_clock_s
rollout.max_concurrent
rollout.temperature
rollout.top_p
rollout.top_k
rollout.allow_truncated_sampling
sampler.max_batch
sampler.max_staleness
sampler.bucket_bytes
algorithm.name
algorithm.advantage
algorithm.loss
algorithm.scale
algorithm.leave_one_out
algorithm.critic
algorithm.options
algorithm.whiten
algorithm.gamma
algorithm.lam
algorithm.clip_low
algorithm.clip_high
algorithm.dual_clip
algorithm.aggregation
algorithm.horizon
algorithm.entropy_coef
algorithm.kl.place
algorithm.kl.estimator
algorithm.kl.coef
algorithm.correction.mode
algorithm.correction.level
algorithm.correction.cap
algorithm.correction.floor
algorithm.overlong.buffer
algorithm.overlong.penalty
algorithm.dynamic_sampling
algorithm.smallest_group
algorithm.branches
algorithm.old_logprobs
algorithm.epochs
algorithm.minibatches
algorithm.microbatch_tokens
algorithm.packing
algorithm.skip_limit
reference.path
critic.path
critic.lr
critic.clip
critic.clip_norm
critic.warmup
optimizer.lr
optimizer.beta1
optimizer.beta2
optimizer.eps
optimizer.weight_decay
optimizer.clip_norm
optimizer.warmup_steps
optimizer.decay_steps
optimizer.final_lr_fraction
consistency.mode
consistency.limit
evaluation.every
evaluation.episodes
evaluation.samples
evaluation.split
evaluation.temperature
evaluation.top_p
evaluation.top_k
evaluation.max_tokens
evaluation.success
require.finite_gradients
require.nonzero_gradients
require.reward_differences
require.patience
require.signal_fraction
require.success
require.gain
require.gain_low
sft.data
sft.messages_key
sft.tools_key
sft.enable_thinking_key
sft.history
sft.from_store
sft.select
sft.min_reward
sft.max_length
sft.validation
sft.validation_every
sft.examples
sft.epochs
sft.steps
sft.batch_size
sft.lr
sft.clip_norm
sft.start
iterations
"""


def write(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def sections(section, prefix=""):
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}", field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation, f"{prefix}{name}.")


def test_the_options_are_frozen():
    # an option is a promise: whoever adds or takes one away changes this list and the changelog
    assert option_names() == OPTIONS.split()


def test_every_option_has_a_default_and_a_text():
    for name, field in sections(TrainConfig):
        assert not field.is_required(), name
        assert field.description, name
        assert field.description.rstrip().endswith("."), name


def test_an_empty_file_is_the_defaults(tmp_path):
    assert load_config(write(tmp_path, "")) == TrainConfig()


def test_a_dumped_config_loads_as_itself(tmp_path):
    config = make_config({"run": {"name": "Übung"}, "optimizer": {"lr": 1e-4}})
    assert load_config(write(tmp_path, dump_config(config))) == config


def test_overrides_reach_single_leaves(tmp_path):
    path = write(tmp_path, "optimizer: {lr: 0.1}\nrollout: {groups: 2}\n")
    config = load_config(path, ["optimizer.lr=1.0e-3", "env.kwargs={digits: 4}", "run.name=second"])
    assert config.optimizer.lr == 1e-3
    assert config.rollout.groups == 2
    assert config.env.kwargs == {"digits": 4}
    assert config.run.name == "second"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr", "section.name=value"),
        ("=3", "section.name=value"),
        ("iterations.x=3", "not a section"),
        ("optimizer.lr=[", "not YAML"),
        ("optimizer.learning_rate=1", "unknown key 'optimizer.learning_rate'"),
    ],
)
def test_bad_overrides(tmp_path, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, "iterations: 2"), [override])


def test_an_unknown_key_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"'rollout\.group_sise'.* Did you mean 'rollout\.group_size'"):
        make_config({"rollout": {"group_sise": 4}})


def test_every_problem_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        make_config({"optimizer": {"lr": -1}, "rollout": {"groups": 0}, "colour": "red"}, source="my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml: ")
    for part in ("optimizer.lr = -1", "rollout.groups = 0", "unknown key 'colour'"):
        assert part in message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rollout": {"group_size": 1}}, "at least 2"),
        ({"sampler": {"max_staleness": 1}}, "only 0"),
        ({"rollout": {"top_p": 0.9}}, "allow_truncated_sampling"),
        ({"rollout": {"top_k": 5}}, "allow_truncated_sampling"),
        ({"rollout": {"groups": 2, "group_size": 2}, "algorithm": {"minibatches": 5}}, "more than the 4"),
        ({"optimizer": {"lr": float("inf")}}, "finite"),
        ({"algorithm": {"aggregation": "mean"}}, "token_mean"),
        ({"env": {"kwargs": {"split": "test"}}}, r"env\.train_split"),
        ({"env": {"kwargs": {"since": datetime.date(2024, 1, 1)}}}, "JSON"),
        ({"env": {"kwargs": {"rate": float("nan")}}}, "finite"),
        ({"run": {"seed": True}}, "not true or false"),
        ({"optimizer": {"lr": True}}, "not true or false"),
        ({"optimizer": {"beta1": 1.0}}, "less than 1"),
        ({"run": 5}, "expected a section"),
        ({"run": {"name": 7}}, "quotes"),
        ({"sft": {"data": "a.jsonl", "from_store": "b"}}, "one after the other"),
        ({"sft": {"validation": 1.0}}, "less than 1"),
        ({"run.seed": 3}, r"nest it: 'run: \{seed: \.\.\.\}'"),
    ],
)
def test_values_that_cannot_work_are_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        make_config(data)


def test_truncated_sampling_can_be_asked_for_by_name():
    data = {"rollout": {"top_p": 0.9, "allow_truncated_sampling": True}}
    assert make_config(data).rollout.top_p == 0.9


def test_a_file_that_cannot_be_used(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="not YAML"):
        load_config(write(tmp_path, "a: [1"))
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_config(write(tmp_path, "- 1"))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not YAML"):
        load_config(binary)


@pytest.mark.parametrize("text", ["", "# nothing", "~", "run:\nmodel:\n"])
def test_what_is_left_empty_takes_its_defaults(tmp_path, text):
    assert load_config(write(tmp_path, text)) == TrainConfig()
    assert load_config(write(tmp_path, text), ["run.seed=3"]).run.seed == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iterations: 1\niterations: 2\n", "'iterations' stands twice, again in line 2"),
        ("run: {seed: 1, dir: x, seed: 2}\n", "'seed' stands twice"),
        ("run: {seed: 1}\nmodel: {}\nrun: {dir: x}\n", "again in line 3"),
        ("false", "must be a mapping of sections, got bool"),
        ("run:\n\tseed: 1", "not YAML"),
        ("iterations: 1\n---\niterations: 2", "not YAML"),
        ("env: {kwargs: &k {a: *k}}", "cyclic"),
    ],
)
def test_yaml_that_does_not_say_one_thing_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, text))


def test_anchors_may_be_used(tmp_path):
    text = "env: {kwargs: {first: &x {a: 1}, second: *x, third: {<<: *x, a: 2}}}"
    assert load_config(write(tmp_path, text)).env.kwargs["third"] == {"a": 2}


def test_a_tilde_is_the_home_folder(tmp_path):
    config = load_config(write(tmp_path, ""), ["run.dir=~/x", "model.path=~/y", "sft.start=~/z"])
    assert [config.run.dir, config.model.path, config.sft.start] == [Path.home() / name for name in "xyz"]


def test_a_config_does_not_change():
    with pytest.raises(Exception, match="frozen"):
        TrainConfig().iterations = 3
