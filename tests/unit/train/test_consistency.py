"""The gate between sampler and learner."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from training_cases import make_learner, random_groups, tiny_model, trajectory, turn

from hyperrl.errors import ConfigError, InvariantError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig, ConsistencyConfig
from hyperrl.train.consistency import DTYPE_LIMITS, ConsistencyGate
from hyperrl.trajectory import Group


def prepare(groups):
    return Algorithm(AlgorithmConfig(microbatch_tokens=50)).prepare(groups)


def gate(mode="tolerance", limit=0.0, dtype=torch.float32):
    return ConsistencyGate(ConsistencyConfig.model_validate({"mode": mode, "limit": limit}), dtype=dtype)


def shifted(groups, token, by):
    """Move the behaviour logprob of one token of the first episode."""
    (first, *others), *rest = groups
    logprobs = first.turns[0].behavior_logprobs.copy()
    logprobs[token] += by
    old = first.turns[0]
    turns = [turn(old.context_ids, old.action_ids, logprobs=logprobs.tolist()), *first.turns[1:]]
    moved = trajectory(turns, reward=first.reward, group=first.group_id)
    return [Group(first.group_id, (moved, *others)), *rest]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_policys_own_logprobs_pass(dtype):
    model = tiny_model(dtype)
    batch = prepare(random_groups(0, model=model))
    metrics = make_learner(model, gate="tolerance").step(batch, version=0)
    assert metrics["consistency/tokens"] == len(batch.minibatches[0].tokens)
    assert metrics["consistency/over_limit"] == 0
    assert metrics["consistency/logprob_diff_max"] <= 5e-6
    assert metrics["training/rollout_probs_diff_max"] <= 5e-6


def test_a_difference_stops_the_run_before_the_update_and_names_the_token():
    model = tiny_model()
    groups = shifted(random_groups(0, model=model), 0, -0.01)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(InvariantError) as caught:
        make_learner(model, gate="tolerance").step(prepare(groups), version=0)
    first = groups[0].trajectories[0].turns[0]
    message = str(caught.value)
    place = f"token {first.action_ids[0]} at position {len(first.context_ids)}"
    assert f"{place} of group (0, 0), sample 0" in message
    assert f"sampler {float(first.behavior_logprobs[0]):.9g}" in message
    assert "1 of" in message
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_limit_can_be_widened_or_the_gate_opened():
    model = tiny_model()
    batch = prepare(shifted(random_groups(0, model=model), 0, -0.01))
    metrics = make_learner(model, gate="tolerance", limit=0.02).step(batch, version=0)
    assert metrics["consistency/logprob_diff_max"] == pytest.approx(0.01, abs=1e-4)
    model = tiny_model()
    assert make_learner(model, gate="off").step(batch, version=0)["consistency/over_limit"] == 1


def test_weights_of_another_version_are_noticed():
    model = tiny_model()
    batch = prepare(random_groups(1, model=model))
    learner = make_learner(model, gate="tolerance", lr=1e-3)
    learner.step(batch, version=0)
    with pytest.raises(InvariantError, match="version 0"):
        learner.step(batch, version=0)


def test_only_the_learners_version_is_compared():
    model = tiny_model()
    batch = prepare(random_groups(1, version=2, model=model))
    learner = make_learner(model, gate="tolerance", max_staleness=1)
    learner.step(batch, version=2)
    assert learner.step(batch, version=3)["consistency/tokens"] == 0


def test_a_learner_that_says_nan_is_over_any_limit():
    batch = prepare(random_groups(2))
    logprobs = [torch.full((len(m.tokens),), math.nan) for m in batch.minibatches]
    with pytest.raises(InvariantError, match="learner nan"):
        gate(limit=1e6).check(batch, logprobs, version=0)


def test_exact_allows_one_unit_in_the_last_place_of_float32():
    batch = prepare(random_groups(2))
    tokens = batch.minibatches[0].tokens
    near = torch.from_numpy(np.nextafter(tokens.behavior_logprobs, np.float32(-2)))
    assert gate("exact", dtype=torch.float64).check(batch, [near], version=0)["consistency/over_limit"] == 0
    with pytest.raises(InvariantError):
        gate("exact", dtype=torch.float64).check(batch, [near * (1 + 3e-7)], version=0)


@pytest.mark.parametrize(
    ("dtype", "attention"), [("float64", "sdpa"), ("float64", "eager"), ("float32", "eager")]
)
def test_decoding_with_a_cache_is_within_the_limit(dtype, attention):
    model = tiny_model(getattr(torch, dtype))
    model.set_attn_implementation(attention)
    episodes = tuple(
        trajectory([_decoded(model, [1, 2, 3 + i], seed=i)], reward=float(i % 2), sample=i) for i in range(8)
    )
    batch = prepare([Group((0, 0), episodes)])
    mode = "exact" if attention == "sdpa" else "tolerance"
    metrics = make_learner(model, gate=mode).step(batch, version=0)
    assert metrics["consistency/tokens"] == 160


@torch.no_grad()
def _decoded(model, prompt, *, seed, length=20):
    """A turn drawn token by token over cached keys and values."""
    generator = torch.Generator().manual_seed(seed)
    output = model(torch.tensor([prompt]), use_cache=True)
    action, logprobs = [], []
    for _ in range(length):
        distribution = torch.log_softmax(output.logits[0, -1].to(torch.float64), -1)
        action.append(int(torch.multinomial(distribution.exp(), 1, generator=generator)))
        logprobs.append(float(distribution[action[-1]]))
        output = model(torch.tensor([action[-1:]]), past_key_values=output.past_key_values, use_cache=True)
    return turn(prompt, action, logprobs=logprobs)


def test_every_offered_dtype_has_a_limit():
    assert set(DTYPE_LIMITS) == {torch.float32, torch.float64, torch.bfloat16}
    with pytest.raises(ConfigError, match=r"consistency\.limit"):
        gate(dtype=torch.float16)
    assert gate(limit=0.1, dtype=torch.float16).limit == 0.1
