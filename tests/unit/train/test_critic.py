"""The critic: what it reads, what it learns, and where an episode is worth more after its end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from training_cases import random_groups, tiny_model, trajectory, turn

from hyperrl.errors import ConfigError, InvariantError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batch_checks import check_parts
from hyperrl.train.config import AlgorithmConfig, CriticConfig, OptimizerConfig
from hyperrl.train.critic import ValueLearner, ValueModel, explained_variance
from hyperrl.trajectory import Group, TruncationReason

PPO = AlgorithmConfig(name="ppo")


def make_critic(*, budget=10_000, lr=1e-2, random_head=False, dtype=torch.float64):
    model = ValueModel(tiny_model(dtype, seed=1))
    if random_head:
        torch.manual_seed(2)
        torch.nn.init.normal_(model.head.weight)
    return ValueLearner(model, CriticConfig(lr=lr, clip=0), OptimizerConfig(), microbatch_tokens=budget)


def plain_value(model, ids):
    """The value after ``ids``, by the plainest forward pass."""
    with torch.no_grad():
        return float(model(torch.tensor([list(ids)]), torch.tensor([len(ids) - 1])))


def test_a_critic_says_zero_before_it_has_learned():
    values, bootstrap = make_critic().score(Algorithm(PPO).prepare(random_groups(0)))
    assert not np.concatenate(values).any()
    assert not bootstrap.any()


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_the_value_of_a_token_is_that_of_the_state_before_it(budget):
    groups = random_groups(1)
    batch = Algorithm(AlgorithmConfig(name="ppo", microbatch_tokens=budget)).prepare(groups)
    critic = make_critic(random_head=True, budget=budget)
    (values,), _ = critic.score(batch)
    (minibatch,) = batch.minibatches
    episodes = [episode for group in groups for episode in group]
    for i in range(0, len(values), 7):
        episode = episodes[minibatch.tokens.trajectory[i]]
        ids = [x for t in episode.turns for part in (t.context_ids, t.action_ids) for x in part.tolist()]
        before = ids[: minibatch.tokens.position[i]]
        assert values[i] == pytest.approx(plain_value(critic.model, before), abs=1e-5)


@pytest.mark.parametrize("budget", [1, 10_000])
def test_only_a_truncated_episode_is_worth_something_after_its_end(budget):
    def episode(sample, **fields):
        made = trajectory([turn([1, 2], [3, 4])], reward=1.0, sample=sample)
        return dataclasses.replace(made, **fields)

    cut = {"terminated": False, "truncated": True, "truncation_reason": TruncationReason.MAX_TURNS}
    after = np.array([5, 6, 7], np.int32)
    longer = np.array([5, 6, 7, 8, 9], np.int32)
    members = (
        episode(0, final_context_ids=after),
        episode(1, final_context_ids=after, **cut),
        episode(2, **cut),
        episode(3, final_context_ids=after, **(cut | {"terminated": True})),
        episode(4, final_context_ids=longer, **cut),
    )
    batch = Algorithm(PPO).prepare([Group((0, 0), members)])
    critic = make_critic(random_head=True, budget=budget)
    _, bootstrap = critic.score(batch)
    expected = [plain_value(critic.model, [1, 2, 3, 4, *ids]) for ids in (after, longer)]
    assert bootstrap.tolist() == pytest.approx([0, expected[0], 0, 0, expected[1]], abs=1e-5)


def test_a_critic_learns_the_returns_of_a_batch():
    batch = Algorithm(PPO).prepare(random_groups(2))
    (minibatch,) = batch.minibatches
    target = np.where(minibatch.tokens.token_ids % 2, 1.0, -1.0)
    minibatch = dataclasses.replace(minibatch, returns=target)
    critic = make_critic(lr=3e-2, dtype=torch.float32)
    losses = []
    for _ in range(60):
        (values,), _ = critic.score(dataclasses.replace(batch, minibatches=(minibatch,)))
        losses.append(critic.update(minibatch, values)["critic/vf_loss"])
    assert losses[0] == pytest.approx(0.5, abs=1e-6)
    assert losses[-1] < 0.35


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant():
    returns = np.array([1.0, 2.0, 4.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(returns, np.zeros(3)) == pytest.approx(0, abs=1e-4)
    assert explained_variance(returns, -returns) < 0


def test_side_branches_are_refused_or_dropped():
    # an episode with two leaves: the main path ends in the last turn
    branches = [turn([1], [2]), turn([3], [4, 4], parent=0), turn([5], [6], parent=0)]
    groups = [Group((0, 0), (trajectory(branches, reward=1.0), trajectory([turn([1], [2])], sample=1)))]
    with pytest.raises(InvariantError, match=r"2 branches.*branches: drop"):
        Algorithm(PPO).prepare(groups)
    batch = Algorithm(AlgorithmConfig(name="ppo", branches="drop")).prepare(groups)
    assert batch.minibatches[0].tokens.token_ids.tolist() == [2, 6, 2]


def test_gae_without_a_critic_is_refused():
    with pytest.raises(ConfigError, match="needs a critic"):
        check_parts(PPO, reference=False, critic=False)


def test_a_critic_has_its_own_rate_and_clipping_and_no_schedule():
    batch = Algorithm(PPO).prepare(random_groups(2))
    (minibatch,) = batch.minibatches
    minibatch = dataclasses.replace(minibatch, returns=np.ones(len(minibatch.tokens)))

    def moved(*, own, policys):
        """How far the first update moves the head; AdamW's large epsilon lets the gradient's size show."""
        critic = ValueLearner(
            ValueModel(tiny_model(torch.float64, seed=1)),
            CriticConfig(lr=1e-2, clip_norm=own),
            OptimizerConfig(lr=1.0, clip_norm=policys, eps=1.0, warmup_steps=10, decay_steps=20),
            microbatch_tokens=10_000,
        )
        metrics = critic.update(minibatch, np.zeros(len(minibatch.tokens)))
        assert metrics["critic/lr"] == 1e-2
        assert metrics["critic/grad_norm"] > 0.1
        return float(critic.model.head.weight.detach().abs().max())

    assert moved(own=1e9, policys=1e-9) > 1e6 * moved(own=1e-9, policys=1e9) > 0
