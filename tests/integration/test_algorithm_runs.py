"""Every algorithm trains: a whole run by name alone, and what its parts leave in the metrics."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from hyperrl.errors import ConfigError, NonFiniteError
from hyperrl.store import read_trajectories
from hyperrl.train.models import load_model
from hyperrl.wiring import training
from hyperrl.wiring.display import Silent
from hyperrl.wiring.training import run_training


def iterations(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "actor/updates_applied" in line or "groups/played" in line]


def weights(folder):
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", ["dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce", "reinforce_pp"])
def test_an_algorithm_trains_by_its_name_alone(make_run, tiny_model, name):
    config = make_run(algorithm={"name": name}, iterations=1)
    run_training(config, Silent())
    (line,) = iterations(config.run.dir)
    assert line["actor/updates_applied"] == 1
    assert line["actor/grad_norm"] > 0
    assert math.isfinite(line["actor/loss"])
    before, after = weights(tiny_model), weights(config.run.dir / "model")
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_ppo_changes_actor_and_critic_and_leaves_the_reference_alone(make_run, tiny_model, monkeypatch):
    learners = []
    make = training.make_learner
    monkeypatch.setattr(training, "make_learner", lambda config: learners.append(make(config)) or learners[0])
    kl = {"place": "loss", "coef": 0.1}
    config = make_run(algorithm={"name": "ppo", "kl": kl}, critic={"lr": 1e-3}, iterations=2)
    run_training(config, Silent())
    (learner,) = learners
    start = load_model(tiny_model, dtype=torch.float32, device=torch.device("cpu")).state_dict()
    assert all(torch.equal(start[name], value) for name, value in learner.reference.state_dict().items())
    assert any(not torch.equal(start[name], value) for name, value in learner.model.state_dict().items())
    critic = learner.critic.model
    assert critic.head.weight.abs().sum() > 0
    backbone = {f"model.{name}": value for name, value in critic.backbone.state_dict().items()}
    assert any(not torch.equal(start[name], value) for name, value in backbone.items())
    first, second = iterations(config.run.dir)
    assert first["critic/vf_explained_var"] == pytest.approx(0, abs=0.01)  # a zero head explains nothing
    assert first["critic/updates_applied"] == first["actor/updates_applied"] == 2
    assert first["critic/grad_norm"] > 0
    assert first["critic/values/mean"] == 0  # before the update, as in verl
    assert first["critic/vpred_mean"] != 0  # the second update sees what the first has made of it
    assert second["critic/values/mean"] != 0
    assert min(first[f"timing_s/{stage}"] for stage in ("ref", "values", "update_critic")) > 0


def test_a_warm_up_of_the_critic_leaves_the_policy_alone(make_run, tiny_model):
    config = make_run(algorithm={"name": "ppo"}, critic={"lr": 1e-3, "warmup": 2}, iterations=2)
    run_training(config, Silent())
    for line in iterations(config.run.dir):
        assert line["policy/version"] == 0  # nothing changed, so nothing was published
        assert line["critic/updates_applied"] == 2
    before, after = weights(tiny_model), weights(config.run.dir / "model")
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_a_kl_to_the_starting_point_begins_at_zero_and_grows(make_run, place):
    config = make_run(algorithm={"kl": {"place": place, "coef": 0.1}}, iterations=2)
    run_training(config, Silent())
    name = {"loss": "actor/kl_loss", "reward": "actor/reward_kl_penalty"}[place]
    first, second = (line[name] for line in iterations(config.run.dir))
    assert first == 0
    assert second != 0


def test_an_entropy_bonus_is_part_of_the_loss(make_run):
    config = make_run(algorithm={"entropy_coef": 0.01}, iterations=1)
    run_training(config, Silent())
    (line,) = iterations(config.run.dir)
    assert line["actor/entropy_loss"] == pytest.approx(line["actor/entropy"], rel=1e-4)
    assert line["actor/loss"] == pytest.approx(line["actor/pg_loss"] - 0.01 * line["actor/entropy_loss"])


def test_several_epochs_are_several_updates(make_run):
    config = make_run(algorithm={"epochs": 2, "minibatches": 2}, iterations=1)
    run_training(config, Silent())
    (line,) = iterations(config.run.dir)
    assert line["actor/updates_applied"] + line.get("actor/updates_without_signal", 0) == 4


def test_dynamic_sampling_plays_on_until_enough_groups_have_signal(make_run):
    # a group of two is often equal, so that further batches are needed; all of them are stored
    config = make_run(
        rollout={"group_size": 2, "groups": 4},
        algorithm={"name": "dapo", "dynamic_sampling": 6},
        iterations=1,
    )
    run_training(config, Silent())
    (line,) = iterations(config.run.dir)
    stored = list(read_trajectories(config.run.dir / "trajectories"))
    assert len(stored) == 2 * line["groups/played"]
    rewards = {}
    for trajectory in stored:
        rewards.setdefault(trajectory.group_id, set()).add(trajectory.reward)
    with_signal = [group for group, values in rewards.items() if len(values) > 1]
    assert line["groups/kept"] == min(4, len(with_signal))
    assert line["groups/played"] > 4
    assert line["groups/zero_std_fraction"] == 0
    assert line["groups/without_signal"] + len(with_signal) == line["groups/played"]
    # what is described is all that was played, not only what is learned from
    tokens = sum(len(t.context_ids) + len(t.action_ids) for e in stored for t in e.turns)
    assert line["perf/total_num_tokens"] == tokens


def test_unknown_parts_are_refused_before_anything_starts(make_run):
    config = make_run(algorithm={"advantage": "groupp"})
    with pytest.raises(ConfigError, match=r"unknown advantage 'groupp'.*'group'"):
        run_training(config, Silent())
    assert not config.run.dir.exists()
    config = make_run(algorithm={"loss": "no_such_module:loss"})
    with pytest.raises(ConfigError, match="cannot be imported"):
        run_training(config, Silent())


def test_a_run_whose_updates_are_never_finite_ends_with_evidence(make_run):
    config = make_run(algorithm={"loss": "broken_loss:infinite", "skip_limit": 2}, iterations=5)
    with pytest.raises(NonFiniteError, match=r"2 updates in a row .*nonfinite\.json"):
        run_training(config, Silent())
    evidence = json.loads((config.run.dir / "nonfinite.json").read_text(encoding="utf-8"))
    assert len(evidence) == 2
    stored = {(t.group_id, t.sample_index) for t in read_trajectories(config.run.dir / "trajectories")}
    culprits = {(tuple(e["group_id"]), e["sample_index"]) for one in evidence for e in one["episodes"]}
    assert culprits
    assert culprits <= stored
    (line,) = iterations(config.run.dir)
    assert line["actor/updates_skipped"] == 1
    assert line["policy/version"] == 0


def test_a_run_over_packed_episodes_is_that_over_padded_ones(make_run):
    lines = []
    for packing in ("padded", "packed"):
        config = make_run(
            packing,
            model={"dtype": "float64", "attention": "sdpa"},
            algorithm={"packing": packing, "name": "ppo", "kl": {"place": "reward", "coef": 0.1}},
        )
        run_training(config, Silent())
        lines.append(iterations(config.run.dir))
    for padded, packed in zip(*lines, strict=True):
        for name in ("actor/loss", "actor/grad_norm", "critic/vf_loss", "critic/rewards/mean"):
            assert packed[name] == pytest.approx(padded[name], rel=1e-6), name


@pytest.mark.parametrize(
    "model", [{"gradient_checkpointing": True}, {"dtype": "bfloat16", "attention": "sdpa"}]
)
def test_a_run_with_less_memory_learns_within_the_gate(make_run, tiny_model, model):
    config = make_run(model=model, algorithm={"name": "ppo"}, iterations=2)
    run_training(config, Silent())
    for line in iterations(config.run.dir):
        assert line["actor/updates_applied"] == line["critic/updates_applied"] == 2
        assert math.isfinite(line["actor/loss"])
        assert line["consistency/over_limit"] == 0
    before, after = weights(tiny_model), weights(config.run.dir / "model")
    assert any(not np.array_equal(before[name], after[name]) for name in before)


def test_a_run_leaves_traces_of_the_iterations_that_were_chosen(make_run):
    config = make_run()
    config = config.model_copy(update={"run": config.run.model_copy(update={"profile": [2]})})
    run_training(config, Silent())
    (file,) = (config.run.dir / "profile").iterdir()
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    stages = {
        event["name"]: event["tid"] for event in events if str(event.get("name")).startswith("hyperrl/")
    }
    assert set(stages) == {
        f"hyperrl/{stage}"
        for stage in ("gen", "store", "adv", "old_log_prob", "update_actor", "update_weights")
    }
    sampled = {event["tid"] for event in events if event.get("name") == "aten::multinomial"}
    assert not sampled or sampled != {stages["hyperrl/gen"]}
    threads = {event["tid"] for event in events if str(event.get("name")).startswith("aten::")}
    assert len(threads) > 1  # the sampler computes in a thread of its own
