"""Updates that are not finite: left out, named, and after too many the run stops."""

from __future__ import annotations

import dataclasses
import json
import logging
import math

import numpy as np
import pytest
import torch
from training_cases import make_learner, random_groups, tiny_model

from hyperrl.errors import NonFiniteError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig, CriticConfig, OptimizerConfig
from hyperrl.train.critic import ValueLearner, ValueModel
from hyperrl.train.learner import Auxiliary, Learner
from hyperrl.train.nonfinite import SkippedUpdate, find_culprits


def spoil(batch, episodes, value):
    """The batch with an advantage that no sum survives, for every token of some episodes."""
    (minibatch,) = batch.minibatches
    advantages = minibatch.advantages.copy()
    advantages[np.isin(minibatch.tokens.trajectory, episodes)] = value
    return dataclasses.replace(batch, minibatches=(dataclasses.replace(minibatch, advantages=advantages),))


def prepare(seed=1, **algorithm):
    return Algorithm(AlgorithmConfig.model_validate(algorithm)).prepare(random_groups(seed))


@pytest.mark.parametrize("budget", [30, 10_000])
@pytest.mark.parametrize("value", [1e38, math.inf, math.nan])
def test_the_episodes_behind_a_skipped_update_are_named(caplog, value, budget):
    model = tiny_model()
    learner = make_learner(model)
    batch = spoil(prepare(microbatch_tokens=budget), [2, 7], value)
    before = [p.clone() for p in model.parameters()]
    with caplog.at_level(logging.WARNING):
        metrics = learner.step(batch, version=0)
    assert metrics["actor/updates_skipped"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    (record,) = caplog.records
    named = [f"group {batch.episodes[i].group_id}, sample {batch.episodes[i].sample_index}" for i in (2, 7)]
    assert f"caused by {named[0]}; {named[1]}" in record.getMessage()


def test_an_overflow_that_nobody_causes_alone_names_the_largest():
    (minibatch,) = prepare(microbatch_tokens=30).minibatches
    norms = {}

    def probe(row):
        episode = int(minibatch.tokens.trajectory[row.tokens[0]])
        return norms.setdefault(episode, 1e38 if episode == 3 else 1.0)

    assert find_culprits(minibatch.microbatches, minibatch.tokens, probe) == (3,)
    assert sorted(norms) == np.unique(minibatch.tokens.trajectory).tolist()


def test_weights_that_are_not_finite_are_named_instead_of_episodes(caplog):
    model = tiny_model()
    learner = make_learner(model)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = math.inf
    with caplog.at_level(logging.WARNING):
        learner.step(prepare(), version=0)
    assert "the weights themselves are not finite: model.layers.1.mlp.down_proj.weight" in caplog.text


def test_too_many_in_a_row_stop_the_run_with_evidence():
    learner = make_learner(tiny_model(), skip_limit=3)
    good, bad = prepare(), spoil(prepare(), [4], math.nan)
    learner.step(bad, version=0)
    learner.step(bad, version=0)
    assert learner.step(good, version=0)["actor/updates_applied"] == 1  # the row has ended
    learner.step(bad, version=0)
    learner.step(bad, version=0)
    with pytest.raises(NonFiniteError, match=r"3 updates in a row .* group \(0, 1\), sample 0") as caught:
        learner.step(bad, version=0)
    evidence = json.loads(json.dumps(caught.value.evidence, allow_nan=False))
    assert [one["loss"] for one in evidence] == ["nan"] * 3
    assert evidence[0]["episodes"] == [{"group_id": [0, 1], "sample_index": 0}]
    assert evidence[0]["model"] == "policy"


def test_a_critic_that_is_not_finite_stops_the_run_too():
    config = AlgorithmConfig(name="ppo", skip_limit=1)
    plain = make_learner(tiny_model())
    critic = ValueLearner(
        ValueModel(tiny_model(seed=1)), CriticConfig(), OptimizerConfig(), microbatch_tokens=10_000
    )
    learner = Learner(
        tiny_model(),
        algorithm=config,
        optimizer=OptimizerConfig(),
        gate=plain.gate,
        auxiliary=Auxiliary(critic=critic),
    )
    batch = Algorithm(config).prepare(random_groups(2))
    (minibatch,) = batch.minibatches
    rewards = minibatch.token_rewards.copy()
    rewards[minibatch.tokens.trajectory == 5] = 1e30  # its square is more than float32 holds
    spoiled = dataclasses.replace(batch, minibatches=(dataclasses.replace(minibatch, token_rewards=rewards),))
    with pytest.raises(NonFiniteError, match=r"update of the critic .* group \(0, 1\), sample 1"):
        learner.step(spoiled, version=0)


def test_a_long_list_of_culprits_is_cut_in_the_message_only():
    skipped = SkippedUpdate(
        model="policy",
        version=1,
        minibatch=0,
        loss=math.nan,
        grad_norm=1.0,
        episodes=prepare().episodes[:8],
    )
    assert str(skipped).endswith("and 3 more")
    assert len(skipped.as_json()["episodes"]) == 8
