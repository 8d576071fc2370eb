"""One update is the same however its data are laid out: every loss, aggregation and addition to the loss."""

from __future__ import annotations

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from one_update import ADDITIONS, AGGREGATIONS, LOSSES, TOLERANCE, Update, make_config, models, prepare
from training_cases import VOCABULARY, random_groups, tiny_model, trajectory, turn

from hyperrl.train import scoring
from hyperrl.train.config import AlgorithmConfig, CriticConfig, OptimizerConfig
from hyperrl.train.critic import ValueLearner, ValueModel
from hyperrl.train.models import pack_attention
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
    """Order, padding, packing, microbatches and masked sequences, all changed at once."""
    apart = []
    for seed, addition in enumerate(ADDITIONS):
        rng = np.random.default_rng(seed)
        groups = random_groups(seed + 1, groups=2, size=3)
        config = make_config(loss, aggregation, addition)
        expected = Update(prepare(groups, config), config)
        assert expected.largest > 1e-3
        other = shuffled([*groups, only_read(rng, 9)], rng)
        layout = {"microbatch_tokens": int(rng.integers(1, 25)), "packing": ("padded", "packed")[seed % 2]}
        found = Update(prepare(other, config, **layout), config)
        apart.append(assert_same(found, expected))
    compared = f"update, {loss}", f"itself laid out otherwise, {aggregation}", max(apart), TOLERANCE
    record_property("compared", compared)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(1, 120),
    parts=st.tuples(st.sampled_from(LOSSES), st.sampled_from(AGGREGATIONS), st.sampled_from(list(ADDITIONS))),
    advantage=st.sampled_from(["group", "reinforce_pp", "reinforce_pp_baseline", "return"]),
    packing=st.sampled_from(["padded", "packed"]),
    rows=st.sampled_from([1, 5, 10**6]),
)
@example(143, 1, ("cispo", "token_mean", "behavior"), "reinforce_pp", "padded", 10**6)
def test_any_mixture_of_parts_does_not_depend_on_how_its_data_lie(
    seed, budget, parts, advantage, packing, rows
):
    """Nor on how many rows of logits exist at a time."""
    rng = np.random.default_rng(seed)
    groups = random_groups(seed, groups=int(rng.integers(1, 4)), size=int(rng.integers(2, 5)))
    config = make_config(*parts, advantage=advantage, smallest_group=2)
    batch = prepare(groups, config)
    if not config.needs_scores and not batch.minibatches[0].advantages.any():
        return
    expected = Update(batch, config)
    other = shuffled([*groups, only_read(rng, 9)], rng)
    # a sum in which much cancels shows the float32 inside the model more
    layout = {"microbatch_tokens": budget, "packing": packing}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "OUTPUT_ELEMENTS", rows * VOCABULARY)
        found = Update(prepare(other, config, **layout), config)
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


@pytest.mark.parametrize(("loss", "aggregation"), list(product(LOSSES, AGGREGATIONS)))
def test_what_stands_at_a_masked_position_changes_nothing(loss, aggregation):
    """Hidden states of padding and of what was only read are spoiled behind the last layer."""
    groups = random_groups(2, groups=2, size=3)
    for addition, bad in zip(ADDITIONS, [math.nan, math.inf, -math.inf, math.nan, math.inf], strict=True):
        config = make_config(loss, aggregation, addition)
        batch = prepare(groups, config)
        expected, found = Update(batch, config), spoiled_update(batch, config, bad)
        assert found.loss == expected.loss
        assert all(torch.equal(found.gradient[name], value) for name, value in expected.gradient.items())


def spoiled_update(batch, config, bad):
    """An update in which the last layer says ``bad`` wherever nothing is learned from."""
    (minibatch,) = batch.minibatches
    hooks = [
        model.model.norm.register_forward_hook(lambda *call: spoil(minibatch, call[-1], bad))
        for model in models()
    ]
    try:
        return Update(batch, config)
    finally:
        for hook in hooks:
            hook.remove()


def spoil(minibatch, output, bad):
    """Put ``bad`` wherever no loss token is predicted; there is such a place."""
    (micro,) = [m for m in minibatch.microbatches if m.input_ids.size == output.shape[:2].numel()]
    masked = torch.ones(output.shape[:2].numel(), dtype=torch.bool)
    masked[torch.from_numpy(micro.predictors)] = False
    assert masked.any()
    return output.masked_fill(masked.view(*output.shape[:2], 1), bad)


class ValueUpdate:
    """What one step of a critic sees: the loss, and the gradient by parameter."""

    def __init__(self, batch, bad=None):
        (minibatch,) = batch.minibatches
        ids = minibatch.tokens.token_ids
        minibatch = dataclasses.replace(minibatch, returns=np.cos(ids))
        torch.manual_seed(3)
        model = ValueModel(pack_attention(tiny_model(torch.float64, seed=1)))
        torch.nn.init.normal_(model.head.weight)
        if bad is not None:
            model.backbone.norm.register_forward_hook(lambda *call: spoil(minibatch, call[-1], bad))
        frozen = {"lr": 1e-300, "clip_norm": 1e9}
        critic = ValueLearner(model, CriticConfig(**frozen), OptimizerConfig(**frozen), microbatch_tokens=100)
        self.gradient = {}
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p, name=name: self.gradient.__setitem__(name, p.grad.clone())
            )
        # values before the update that clipping makes something of
        self.loss = critic.update(minibatch, np.sin(3 * ids))["critic/vf_loss"]

    @property
    def largest(self):
        return max(float(value.abs().max()) for value in self.gradient.values())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), budget=st.integers(1, 120), packing=st.sampled_from(["padded", "packed"]))
def test_the_critics_update_does_not_depend_on_how_its_data_lie(seed, budget, packing):
    rng = np.random.default_rng(seed)
    config = AlgorithmConfig(name="ppo", microbatch_tokens=10**6)
    groups = random_groups(seed, groups=int(rng.integers(1, 4)), size=int(rng.integers(1, 5)))
    expected = ValueUpdate(prepare(groups, config))
    other = shuffled([*groups, only_read(rng, 9)], rng)
    found = ValueUpdate(prepare(other, config, microbatch_tokens=budget, packing=packing))
    assert_same(found, expected, tolerance=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_stands_at_a_masked_position_does_not_reach_the_critic(bad):
    batch = prepare(random_groups(2, groups=2, size=3), AlgorithmConfig(name="ppo", microbatch_tokens=10**6))
    expected, found = ValueUpdate(batch), ValueUpdate(batch, bad)
    assert found.loss == expected.loss
    assert all(torch.equal(found.gradient[name], value) for name, value in expected.gradient.items())
