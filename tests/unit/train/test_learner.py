"""The learner: exact accumulation, promises that are checked, updates that are left out."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import make_learner, policy_logprobs, random_groups, tiny_model, trajectory, turn

from hyperrl.errors import InvariantError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig, OptimizerConfig
from hyperrl.train.optimization import Optimizer
from hyperrl.train.policy_pass import PolicyUpdate, run_pass
from hyperrl.trajectory import Group

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def prepare(groups, seed=0, **algorithm):
    return Algorithm(AlgorithmConfig.model_validate(algorithm), seed=seed).prepare(groups)


def gradients(model, batch, old_shift=0.0, **algorithm):
    """The accumulated gradient of a batch's first minibatch, without any optimizer."""
    learner = make_learner(model, **algorithm)
    minibatch = batch.minibatches[0]
    old = learner.compute_logprobs(minibatch) + old_shift
    update = PolicyUpdate(minibatch=minibatch, old=old, advantages=minibatch.advantages)
    for micro in minibatch.microbatches:
        run_pass(model, update, micro, learner.algorithm)
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def assert_close(found, expected, tolerance):
    scale = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) <= tolerance * scale, name


def reference_gradient(model, groups, aggregation, *, old_shift):
    """GRPO written plainly: one forward for each episode, masks from the turns, nothing shared.

    Only for chains of turns, which is what ``random_groups`` makes.
    """
    lengths = [sum(len(t.action_ids) for t in e.turns) for g in groups for e in g]
    total = torch.zeros((), dtype=next(model.parameters()).dtype)
    for group in groups:
        rewards = torch.tensor([e.reward for e in group], dtype=torch.float64)
        equal = bool((rewards == rewards[0]).all())
        advantages = (
            torch.zeros_like(rewards) if equal else (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        )
        for episode, advantage in zip(group, advantages.tolist(), strict=True):
            ids, mask = [], []
            for one in episode.turns:
                ids += [*one.context_ids.tolist(), *one.action_ids.tolist()]
                mask += [0] * len(one.context_ids) + [1] * len(one.action_ids)
            logits = model(torch.tensor([ids])).logits[0, :-1]
            logprobs = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
            kept = logprobs[torch.tensor(mask[1:], dtype=torch.bool)]
            ratio = (kept - kept.detach() - old_shift).exp()
            losses = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
            weight = {
                "token_mean": 1 / sum(lengths),
                "seq_mean_token_mean": 1 / len(kept) / len(lengths),
                "seq_mean_token_sum": 1 / len(lengths),
            }[aggregation]
            total = total + weight * losses.sum()
    total.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"])
@pytest.mark.parametrize("old_shift", [0.0, 0.3, -0.4])
def test_the_gradient_is_that_of_a_plain_reference(aggregation, old_shift):
    model = tiny_model(torch.float64)
    groups = random_groups(1)
    batch = prepare(groups, aggregation=aggregation, microbatch_tokens=30)
    found = gradients(model, batch, old_shift, aggregation=aggregation, **CLIP)
    expected = reference_gradient(model, groups, aggregation, old_shift=old_shift)
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3
    # eager attention takes its softmax in float32 even for float64 weights
    assert_close(found, expected, 1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100), budget=st.integers(1, 200), dtype=st.sampled_from(["float32", "float64"]))
def test_the_gradient_does_not_depend_on_the_split_into_microbatches(seed, budget, dtype):
    model = tiny_model(getattr(torch, dtype))
    groups = random_groups(seed)
    whole = gradients(model, prepare(groups, microbatch_tokens=10**6))
    split = gradients(model, prepare(groups, microbatch_tokens=budget))
    assert_close(split, whole, 2e-5 if dtype == "float32" else 1e-6)


@settings(max_examples=10, deadline=None)
@given(data=st.data(), seed=st.integers(0, 100))
def test_the_gradient_does_not_depend_on_the_order_of_groups_and_episodes(data, seed):
    model = tiny_model(torch.float64)
    groups = random_groups(seed)
    shuffled = [
        Group(group.group_id, tuple(data.draw(st.permutations(group.trajectories))))
        for group in data.draw(st.permutations(groups))
    ]
    assert_close(gradients(model, prepare(shuffled)), gradients(model, prepare(groups)), 1e-6)


def test_episodes_that_are_only_read_change_nothing():
    # an episode without sampled tokens: no weight, no share in any denominator (miles 2796)
    model = tiny_model(torch.float64)
    groups = random_groups(3, groups=2)
    silent = [trajectory([turn([1, 2], [3], sampled=False)], group=(0, 9), sample=i) for i in range(2)]
    for aggregation in ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum"):
        alone = prepare(groups, aggregation=aggregation)
        joined = prepare([*groups, Group((0, 9), tuple(silent))], aggregation=aggregation)
        assert np.array_equal(alone.minibatches[0].weights, joined.minibatches[0].weights)
        found, expected = (gradients(model, batch) for batch in (joined, alone))
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_longer_neighbour_only_adds_padding():
    model = tiny_model()
    groups = random_groups(4, groups=1)
    long = Group((0, 5), tuple(trajectory([turn([1] * 60, [2])], group=(0, 5), sample=i) for i in range(2)))
    batch = prepare([*groups, long], aggregation="seq_mean_token_sum")
    alone = prepare(groups, aggregation="seq_mean_token_sum")
    share = len(groups[0]) / (len(groups[0]) + 2)
    expected = {name: value * share for name, value in gradients(model, alone).items()}
    assert_close(gradients(model, batch), expected, 2e-6)


def test_the_first_ratio_is_exactly_one():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model = tiny_model(dtype)
        metrics = make_learner(model).step(prepare(random_groups(5), microbatch_tokens=40), version=0)
        assert metrics["actor/updates_applied"] == 1
        assert metrics["actor/ppo_kl"] == 0
        assert metrics["actor/ppo_kl_k3"] == 0
        assert metrics["actor/pg_clipfrac"] == 0


def test_a_first_ratio_that_is_not_one_stops_the_run():
    # dropout is one way in which scoring and updating can differ
    model = tiny_model()
    learner = make_learner(model)
    model.model.layers[0].mlp.register_forward_hook(lambda *call: torch.nn.functional.dropout(call[2], 0.5))
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(InvariantError, match="exactly 1"):
        learner.step(prepare(random_groups(5)), version=0)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("options", [{}, {"minibatches": 3}, {"epochs": 2}, {"entropy_coef": 0.1}])
def test_a_first_minibatch_that_is_scored_while_it_is_learned_from_gives_the_same_update(options):
    # groups of equal rewards too: their tokens are scored without being learned from
    equal = Group((0, 8), tuple(trajectory([turn([1], [2])], group=(0, 8), sample=i) for i in range(3)))
    batches = [
        prepare([*random_groups(seed, version=seed), *([equal] if seed == 0 else [])], **options)
        for seed in range(2)
    ]
    batches.append(prepare([*random_groups(2), equal], microbatch_tokens=40, **options))
    results = []
    for apart in (False, True):
        model = tiny_model()
        learner = make_learner(model, lr=1e-2, **options)
        metrics = []
        for batch, version in zip(batches, (0, 1, 0), strict=True):
            if apart:
                learner._batches = 0  # as at the start of a run
            assert learner._scores_while_learning(batch) is (not apart and bool(metrics))
            found = learner.step(batch, version=version)
            metrics.append(
                {name: x for name, x in found.items() if not name.startswith(("timing_s", "perf/"))}
            )
        results.append((metrics, [p.clone() for p in model.parameters()]))
    (together, weights), (alone, expected) = results
    assert together == alone
    assert all(torch.equal(a, b) for a, b in zip(weights, expected, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"old_logprobs": "behavior"},
        {"kl": {"place": "reward"}},
        {"kl": {"place": "loss"}},
        {"correction": {"mode": "mask"}},
        {"name": "ppo"},
    ],
)
def test_what_needs_the_scores_of_the_batch_is_scored_before_it_is_learned_from(options):
    assert not AlgorithmConfig.model_validate(options).learns_from_tokens_alone


def test_the_gate_stands_before_the_first_update_even_where_it_is_scored_by_it():
    model = tiny_model()
    groups = random_groups(5, model=model)
    learner = make_learner(model, gate="tolerance", lr=1e-2)
    learner.step(prepare(groups, minibatches=2), version=0)  # the weights have moved, the logprobs have not
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(InvariantError, match="disagree"):
        learner.step(prepare(groups, minibatches=2), version=0)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_several_minibatches_keep_the_ratio_to_the_policy_before_all_of_them():
    learner = make_learner(tiny_model(), lr=1e-2)
    metrics = learner.step(prepare(random_groups(6), minibatches=3), version=0)
    assert learner.applied_steps == 3
    assert metrics["actor/updates_applied"] == 3
    assert metrics["actor/ppo_kl_k3"] > 0


def test_behavior_logprobs_can_be_the_denominator():
    model = tiny_model()
    groups = random_groups(7)
    metrics = make_learner(model, old_logprobs="behavior").step(prepare(groups), version=0)
    assert metrics["actor/ppo_kl_k3"] > 0
    assert "actor/entropy" not in metrics
    drawn = random_groups(7, model=model)
    metrics = make_learner(model, old_logprobs="behavior").step(prepare(drawn), version=0)
    assert abs(metrics["actor/ppo_kl_k3"]) < 1e-6


def test_one_step_is_adamw_on_the_reference_gradient():
    model, twin = tiny_model(torch.float64), tiny_model(torch.float64)
    groups = random_groups(8)
    metrics = make_learner(model, lr=1e-3, weight_decay=0.1).step(prepare(groups), version=0)
    expected = reference_gradient(twin, groups, "token_mean", old_shift=0.0)
    norm = math.sqrt(sum(float((value**2).sum()) for value in expected.values()))
    assert metrics["actor/grad_norm"] == pytest.approx(norm, rel=1e-6)
    for (name, new), old in zip(model.named_parameters(), twin.parameters(), strict=True):
        gradient = expected[name]
        decay = 0.1 if old.ndim >= 2 else 0.0
        moved = old * (1 - 1e-3 * decay) - 1e-3 * gradient / (gradient.abs() + 1e-8)
        significant = gradient.abs() > 1e-5
        assert torch.allclose(new[significant], moved[significant], atol=1e-6)


def test_the_learning_rate_warms_up_linearly():
    learner = make_learner(tiny_model(), lr=1.0e-3, warmup_steps=4)
    batch = prepare(random_groups(9))
    rates = [learner.step(batch, version=0)["actor/lr"] for _ in range(6)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])


def test_the_learning_rate_decays_linearly_to_its_last_fraction():
    model = tiny_model()
    config = OptimizerConfig(lr=1.0e-3, warmup_steps=2, decay_steps=6, final_lr_fraction=0.2)
    optimizer = Optimizer(model, config)
    rates = []
    for _ in range(8):
        for parameter in optimizer.parameters:
            parameter.grad = torch.ones_like(parameter)
        rates.append(optimizer.step(0.0).lr)
    assert rates == pytest.approx([0.5e-3, 1e-3, 0.8e-3, 0.6e-3, 0.4e-3, 0.2e-3, 0.2e-3, 0.2e-3])


def test_an_update_that_is_not_finite_is_skipped_and_the_schedule_waits():
    model = tiny_model()
    learner = make_learner(model, warmup_steps=10)
    batch = prepare(random_groups(10))
    first = learner.step(batch, version=0)["actor/lr"]
    with torch.no_grad():
        kept = model.model.norm.weight[0].clone()
        model.model.norm.weight[0] = math.inf
    before = [p.clone() for p in model.parameters()]
    metrics = learner.step(batch, version=0)
    assert metrics["actor/updates_skipped"] == 1
    assert metrics["actor/updates_applied"] == 0
    assert learner.applied_steps == 1
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with torch.no_grad():
        model.model.norm.weight[0] = kept
    assert learner.step(batch, version=0)["actor/lr"] == pytest.approx(2 * first)


def test_equal_rewards_everywhere_change_nothing():
    # with moments from an earlier step, even a zero gradient would move the weights
    model = tiny_model()
    learner = make_learner(model, lr=1e-2)
    learner.step(prepare(random_groups(11)), version=0)
    before = [p.clone() for p in model.parameters()]
    equal = Group((0, 0), tuple(trajectory([turn([1], [2, i])], reward=10000.1, sample=i) for i in range(6)))
    metrics = learner.step(prepare([equal]), version=0)
    assert metrics["actor/updates_without_signal"] == 1
    assert metrics["groups/zero_std_fraction"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_groups_without_signal_count_in_the_denominator_but_cost_no_update():
    model = tiny_model(torch.float64)
    groups = random_groups(12, groups=2)
    equal = Group((0, 7), tuple(trajectory([turn([1], [2])], group=(0, 7), sample=i) for i in range(3)))
    batch = prepare([*groups, equal])
    (minibatch,) = batch.minibatches
    kinds = [minibatch.advantages[micro.tokens].any() for micro in minibatch.microbatches]
    assert kinds == [True, False]
    assert minibatch.weights[0] == 1 / len(minibatch.tokens)
    expected = reference_gradient(model, [*groups, equal], "token_mean", old_shift=0.0)
    assert_close(gradients(model, batch), expected, 1e-6)


def test_a_batch_without_usable_groups_is_no_update():
    learner = make_learner(tiny_model())
    metrics = learner.step(prepare([]), version=0)
    assert learner.applied_steps == 0
    assert metrics["episodes/used"] == 0


@pytest.mark.parametrize(("version", "staleness"), [(1, 0), (3, 1)])
def test_tokens_that_are_too_old_are_refused(version, staleness):
    learner = make_learner(tiny_model(), max_staleness=staleness)
    with pytest.raises(InvariantError, match=f"learner holds version {version}"):
        learner.step(prepare(random_groups(13, version=version - staleness - 1)), version=version)


def test_tokens_of_the_future_are_refused():
    with pytest.raises(InvariantError, match="may not hold"):
        make_learner(tiny_model()).step(prepare(random_groups(13, version=1)), version=0)


def test_staleness_within_the_bound_is_learned_from():
    learner = make_learner(tiny_model(), max_staleness=2)
    assert learner.step(prepare(random_groups(13, version=1)), version=3)["actor/updates_applied"] == 1


def test_weights_that_do_not_sum_to_one_are_refused():
    batch = prepare(random_groups(14))
    broken = dataclasses.replace(batch.minibatches[0], weights=batch.minibatches[0].weights * 1.01)
    with pytest.raises(InvariantError, match="sum to"):
        make_learner(tiny_model()).step(dataclasses.replace(batch, minibatches=(broken,)), version=0)


def test_a_reward_that_is_not_finite_is_refused():
    batch = prepare(random_groups(14))
    rewards = batch.rewards.copy()
    rewards[2] = math.nan
    with pytest.raises(InvariantError, match="not finite"):
        make_learner(tiny_model()).step(dataclasses.replace(batch, rewards=rewards), version=0)


def test_tied_weights_are_published_once():
    assert "lm_head.weight" not in dict(make_learner(tiny_model()).weights())
    untied = tiny_model(tied=False)
    names = {name for name, _ in make_learner(untied).weights()}
    assert names == {name for name, _ in untied.named_parameters()}
    assert all(not value.requires_grad for _, value in make_learner(untied).weights())


def test_the_same_batch_gives_the_same_weights_again():
    results = []
    for _ in range(2):
        model = tiny_model()
        learner = make_learner(model, lr=1e-2)
        for index in range(3):
            learner.step(prepare(random_groups(index), minibatches=2, seed=5), version=0)
        results.append([p.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_temperature_divides_the_learners_logits_too():
    # a temperature that only the sampler applies shows as a wrong ratio (OpenRLHF 853)
    model = tiny_model(torch.float64)
    prompt, action = [1, 2, 3], [4, 5]
    logprobs = policy_logprobs(model, prompt, action, temperature=0.7)
    turns = [turn(prompt, action, temperature=0.7, logprobs=logprobs)]
    episodes = tuple(trajectory(turns, reward=float(i), sample=i) for i in range(2))
    batch = prepare([Group((0, 0), episodes)])
    found = make_learner(model).compute_logprobs(batch.minibatches[0])
    assert found.tolist() == pytest.approx(logprobs * 2, abs=1e-6)
    metrics = make_learner(model, gate="tolerance").step(batch, version=0)
    assert metrics["consistency/over_limit"] == 0
