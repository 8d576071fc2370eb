"""One update is the same however its data are laid out: every loss, aggregation and addition to the loss."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from one_update import ADDITIONS, AGGREGATIONS, LOSSES, TOLERANCE, Update, make_config, models, prepare
from training_cases import random_groups, trajectory, turn

from hyperrl.trajectory import Group


def assert_same(found, expected, tolerance=TOLERANCE):
    """Assert that two updates agree; return how far their gradients are apart, over the largest entry."""
    assert found.loss == pytest.approx(expected.loss, rel=tolerance, abs=1e-6)  # it may cancel to 0
    scale = max(expected.largest, 1e-6)  # where every token is clipped, the gradient is 0
    apart = {n: float((found.gradient[n] - value).abs().max()) for n, value in expected.gradient.items()}
    assert max(apart.values()) <= tolerance * scale, max(apart, key=apart.__getitem__)
    return max(apart.values()) / scale


def only_read(rng, place):
    """A group whose episodes were scored, but hold no token that was sampled, however long they are."""
    context = rng.integers(0, 23, 40).tolist()
    return Group(
        (0, place),
        tuple(
            trajectory([turn(context, [3, 4], sampled=False)], reward=1.0, group=(0, place), sample=i)
            for i in range(2)
        ),
    )


def shuffled(groups, rng):
    mixed = [Group(g.group_id, tuple(g.trajectories[i] for i in rng.permutation(len(g)))) for g in groups]
    return [mixed[i] for i in rng.permutation(len(mixed))]


@pytest.mark.parametrize(("loss", "aggregation"), list(product(LOSSES, AGGREGATIONS)))
def test_an_update_does_not_depend_on_how_its_data_lie(loss, aggregation, record_property):
    """Order, padding, microbatches and masked sequences, all changed at once."""
    apart = []
    for seed, addition in enumerate(ADDITIONS):
        rng = np.random.default_rng(seed)
        groups = random_groups(seed + 1, groups=2, size=3)
        config = make_config(loss, aggregation, addition)
        expected = Update(prepare(groups, config), config)
        assert expected.largest > 1e-3
        other = shuffled([*groups, only_read(rng, 9)], rng)
        found = Update(prepare(other, config, microbatch_tokens=int(rng.integers(1, 25))), config)
        apart.append(assert_same(found, expected))
    compared = f"update, {loss}", f"itself laid out otherwise, {aggregation}", max(apart), TOLERANCE
    record_property("compared", compared)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(1, 120),
    parts=st.tuples(st.sampled_from(LOSSES), st.sampled_from(AGGREGATIONS), st.sampled_from(list(ADDITIONS))),
    advantage=st.sampled_from(["group", "reinforce_pp", "reinforce_pp_baseline", "return"]),
)
@example(seed=143, budget=1, parts=("cispo", "token_mean", "behavior"), advantage="reinforce_pp")
def test_any_mixture_of_parts_does_not_depend_on_how_its_data_lie(seed, budget, parts, advantage):
    rng = np.random.default_rng(seed)
    groups = random_groups(seed, groups=int(rng.integers(1, 4)), size=int(rng.integers(2, 5)))
    config = make_config(*parts, advantage=advantage, smallest_group=2)
    batch = prepare(groups, config)
    if not config.needs_scores and not batch.minibatches[0].advantages.any():
        return
    expected = Update(batch, config)
    other = shuffled([*groups, only_read(rng, 9)], rng)
    # a sum in which much cancels shows the float32 inside the model more
    found = Update(prepare(other, config, microbatch_tokens=budget), config)
    assert_same(found, expected, tolerance=1e-5)


@pytest.mark.parametrize("aggregation", [mode for mode in AGGREGATIONS if mode != "group_mean"])
@pytest.mark.parametrize("loss", LOSSES)
def test_minibatches_share_the_gradient_of_the_whole_batch(loss, aggregation):
    """Weighted with their share of tokens or of episodes, the updates of one pass are that of the whole."""
    config = make_config(loss, aggregation, "kl and entropy", minibatches=3)
    batch = prepare(random_groups(7, groups=3, size=3), config)
    whole = prepare(random_groups(7, groups=3, size=3), config, minibatches=1)
    expected = Update(whole, config)

    def count(tokens):
        return len(tokens) if aggregation == "token_mean" else len(np.unique(tokens.trajectory))

    total = count(whole.minibatches[0].tokens)
    sums: dict[str, torch.Tensor] = {}
    loss_sum = 0.0
    for minibatch in batch.minibatches:
        share = count(minibatch.tokens) / total
        one = Update(dataclasses.replace(batch, minibatches=(minibatch,)), config)
        loss_sum += share * one.loss
        for name, value in one.gradient.items():
            sums[name] = sums.get(name, 0) + share * value
    assert len(batch.minibatches) == 3
    assert loss_sum == pytest.approx(expected.loss, rel=TOLERANCE, abs=1e-6)
    for name, value in expected.gradient.items():
        assert float((sums[name] - value).abs().max()) <= TOLERANCE * expected.largest, name


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("addition", ADDITIONS)
def test_what_stands_at_a_masked_position_changes_nothing(addition, bad):
    """Hidden states of padding and of what was only read are spoiled behind the last layer."""
    groups = random_groups(2, groups=2, size=3)
    config = make_config("clipped", "seq_mean_token_mean", addition)
    batch = prepare(groups, config)
    expected = Update(batch, config)
    (minibatch,) = batch.minibatches
    spoiled = []

    def spoil(module, args, output):
        (micro,) = [m for m in minibatch.microbatches if m.input_ids.size == output.shape[:2].numel()]
        masked = torch.ones(output.shape[0] * output.shape[1], dtype=torch.bool)
        masked[torch.from_numpy(micro.predictors)] = False
        spoiled.append(int(masked.sum()))
        return output.masked_fill(masked.view(*output.shape[:2], 1), bad)

    hooks = [model.model.norm.register_forward_hook(spoil) for model in models()]
    try:
        found = Update(batch, config)
    finally:
        for hook in hooks:
            hook.remove()
    assert min(spoiled) > 0
    assert found.loss == expected.loss
    assert all(torch.equal(found.gradient[name], value) for name, value in expected.gradient.items())
