"""Weights for the mismatch of sampler and learner: denominators, bounds, diagnostics."""

from __future__ import annotations

import numpy as np
import pytest
from training_cases import make_learner, random_groups, tiny_model

from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig
from hyperrl.train.correction import compute_correction, describe_mismatch
from hyperrl.train.losses import token_weights


def correct(ratios, sequence, **config):
    correction = AlgorithmConfig(correction=config).correction
    weights, _ = compute_correction(
        np.log(ratios), np.zeros(len(ratios)), np.array(sequence, np.int64), correction
    )
    return weights


def test_a_masked_token_still_counts_in_the_mean():
    # slime PR 657: the mean over the two tokens that are kept is 1.23, over all five 0.49
    weights = correct([1.11, 0.22, 2.23, 5e-5, 1.35], [0] * 5, mode="mask", floor=0.5, cap=2.0)
    assert weights.tolist() == pytest.approx([1.11, 0, 0, 0, 1.35])
    assert (token_weights(np.zeros(5, np.int64), "token_mean") * weights).sum() == pytest.approx(0.492)


def test_a_sequence_has_the_product_of_its_tokens():
    found = correct([2.0, 0.5, 2.0, 1.5], [0, 1, 0, 1], mode="truncate", level="sequence", cap=3.0)
    assert found.tolist() == pytest.approx([3.0, 0.75, 3.0, 0.75])


def test_extremes_stay_finite():
    values, drawn = np.array([-1000.0, 0.0]), np.array([0.0, -1000.0])
    config = AlgorithmConfig(correction={"mode": "truncate"}).correction
    weights, metrics = compute_correction(values, drawn, np.zeros(2, np.int64), config)
    assert weights.tolist() == pytest.approx([0, 2], abs=1e-8)
    metrics |= describe_mismatch(values, drawn, np.zeros(2, np.int64))
    assert np.isfinite(list(metrics.values())).all()


def test_the_same_logprobs_differ_in_nothing():
    values = np.log(np.array([0.5, 0.25, 0.1]))
    found = describe_mismatch(values, values, np.array([0, 0, 1]))
    one = {"rollout_corr/training_ppl", "rollout_corr/rollout_ppl"}
    for name, value in found.items():
        if name not in one:
            assert value == pytest.approx(float(name.endswith("pearson_corr"))), name


def test_weights_scale_the_gradient_of_the_policy_loss_alone():
    # behaviour logprobs of -1 are far from the model's, so that every weight is away from 1
    losses = []
    for mode in ("off", "truncate"):
        algorithm = {"correction": {"mode": mode, "cap": 0.25}}
        batch = Algorithm(AlgorithmConfig.model_validate(algorithm)).prepare(random_groups(1))
        metrics = make_learner(tiny_model(), **algorithm).step(batch, version=0)
        losses.append(metrics)
    assert losses[0]["actor/pg_loss"] != losses[1]["actor/pg_loss"]
    assert losses[1]["actor/grad_norm"] < losses[0]["actor/grad_norm"]
    assert losses[1]["rollout_corr/rollout_is_mean"] <= 0.25
    assert losses[1]["actor/ppo_kl"] == losses[0]["actor/ppo_kl"] == 0  # the first ratio is exactly 1 still
