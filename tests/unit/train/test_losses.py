"""Token weights and the clipped surrogate, against references written for one token at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperrl.errors import InvariantError
from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.kl import estimate_drift
from hyperrl.train.losses import LOSSES, LossInput, TokenLosses, compute_token_losses, token_weights

MODES = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"]


def policy_loss(name, logprobs, old, advantages, sequence=None, **config) -> TokenLosses:
    sequence = torch.zeros(len(logprobs), dtype=torch.long) if sequence is None else sequence
    data = LossInput(logprobs=logprobs, old_logprobs=old, advantages=advantages, sequence=sequence)
    return LOSSES.find(name)(data, AlgorithmConfig(**config))


lengths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def episodes(counts):
    return np.repeat(np.arange(len(counts)), counts)


def masked_weights(mask, mode):
    """The padded formulation of other trainers: a weight for each place of a [B, T] mask."""
    n = mask.sum(1, keepdims=True)
    if mode == "token_mean":
        return mask / mask.sum()
    share = mask / (n > 0).sum()
    return share if mode == "seq_mean_token_sum" else share / np.maximum(n, 1)


@settings(deadline=None)
@given(counts=lengths, width=st.integers(9, 12))
@pytest.mark.parametrize("mode", MODES)
def test_weights_agree_with_the_masked_formulation(mode, counts, width):
    if not sum(counts):
        assert len(token_weights(episodes(counts), mode)) == 0
        return
    mask = np.arange(width) < np.array(counts)[:, None]
    expected = masked_weights(mask.astype(float), mode)[mask]
    assert np.allclose(token_weights(episodes(counts), mode), expected, rtol=1e-15, atol=0)


@settings(deadline=None)
@given(counts=lengths, data=st.data())
@pytest.mark.parametrize("mode", MODES)
def test_weights_ignore_order_and_masked_episodes_exactly(mode, counts, data):
    index = episodes(counts)
    order = np.array(data.draw(st.permutations(range(len(index)))), np.int64)
    assert np.array_equal(token_weights(index[order], mode), token_weights(index, mode)[order])
    # other numbers for the same episodes leave gaps: episodes without any loss token
    assert np.array_equal(token_weights(3 * index + 1, mode), token_weights(index, mode))


@settings(deadline=None)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_weights_of_the_mean_modes_sum_to_one(counts):
    for mode in MODES[:2]:
        assert math.fsum(token_weights(episodes(counts), mode)) == pytest.approx(1, abs=1e-12)
    total = math.fsum(token_weights(episodes(counts), "seq_mean_token_sum"))
    assert total == pytest.approx(sum(counts) / len(counts))


def test_losses_of_one_and_three_tokens_do_not_depend_on_the_split():
    # twinkle 292: advantages +1 and -1, responses of 1 and 3 tokens; split microbatches gave 0
    weights = token_weights(episodes([1, 3]), "token_mean")
    losses = np.array([-1.0, 1.0, 1.0, 1.0])
    assert (weights * losses).sum() == 0.5
    assert (weights[:1] * losses[:1]).sum() + (weights[1:] * losses[1:]).sum() == 0.5


def test_token_mean_and_sequence_mean_of_the_same_losses():
    # verl 593: a response of 2 tokens with loss 10 and one of 10 tokens with loss 2
    index = episodes([2, 10])
    losses = np.where(index == 0, 10.0, 2.0)
    assert (token_weights(index, "token_mean") * losses).sum() == pytest.approx(10 / 3)
    assert (token_weights(index, "seq_mean_token_mean") * losses).sum() == pytest.approx(6)


def test_a_masked_sample_takes_no_share():
    # miles 2796: 4 tokens and one sample without any were divided by 5
    assert token_weights(episodes([4, 0]), "token_mean").tolist() == [0.25] * 4
    assert token_weights(episodes([4, 0]), "seq_mean_token_mean").tolist() == [0.25] * 4
    assert token_weights(episodes([4, 0]), "seq_mean_token_sum").tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_learn_from_is_not_a_division_by_zero(mode):
    # unsloth-zoo 1286
    assert token_weights(np.zeros(0, np.int64), mode).shape == (0,)


def plain_loss(logprob, old, advantage, low, high):
    ratio = math.exp(min(20.0, max(-20.0, logprob - old)))
    held = min(max(ratio, 1 - low), 1 + high)
    return max(-advantage * ratio, -advantage * held), -advantage * held > -advantage * ratio


numbers = st.floats(-8, 0)


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, numbers, st.floats(-3, 3)), min_size=1, max_size=20))
def test_the_surrogate_is_the_formula_token_by_token(rows):
    logprobs, old, advantages = (torch.tensor(c, dtype=torch.float64) for c in zip(*rows, strict=True))
    found = policy_loss("clipped", logprobs, old, advantages, clip_low=0.2, clip_high=0.28)
    expected = [plain_loss(*row, 0.2, 0.28) for row in rows]
    assert found.losses.tolist() == pytest.approx([loss for loss, _ in expected])
    assert found.clipped.tolist() == [clipped for _, clipped in expected]


def test_a_clipped_token_has_no_gradient():
    logprobs = torch.tensor([-1.0, -1.0, -1.0, -1.0], requires_grad=True)
    old = torch.tensor([-2.0, -0.5, -2.0, -1.0])
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0])
    found = policy_loss("clipped", logprobs, old, advantages, clip_low=0.2, clip_high=0.2)
    found.losses.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([0, 0, math.e, -1])
    assert found.clipped.tolist() == [True, True, False, False]


def test_extreme_ratios_stay_finite():
    found = policy_loss(
        "clipped",
        torch.tensor([0.0, -200.0]),
        torch.tensor([-200.0, 0.0]),
        torch.tensor([-1.0, 1.0]),
        clip_low=0.2,
        clip_high=0.2,
    )
    assert found.losses.tolist() == pytest.approx([math.exp(20), -math.exp(-20)])
    assert torch.isfinite(found.losses).all()


def test_kl_estimates():
    k1, k3 = estimate_drift(torch.tensor([0.0, math.log(2), -math.log(2)], dtype=torch.float64))
    assert k1.tolist() == pytest.approx([0, -math.log(2), math.log(2)])
    assert k3.tolist() == pytest.approx([0, 1 - math.log(2), -0.5 + math.log(2)])


def test_a_constant_horizon_and_the_mean_of_groups():
    index = episodes([1, 3])
    norm = token_weights(index, "seq_mean_token_sum_norm", horizon=8)
    assert norm.tolist() == [1 / 16] * 4
    groups = np.array([0, 1, 1, 1])
    assert token_weights(index, "group_mean", groups=groups).tolist() == pytest.approx([1 / 2] + [1 / 6] * 3)
    with pytest.raises(InvariantError, match="horizon of at least 1"):
        token_weights(index, "seq_mean_token_sum_norm")
    with pytest.raises(InvariantError, match="group of every token"):
        token_weights(index, "group_mean")


def test_the_gradient_of_two_episodes_does_not_depend_on_the_split():
    # twinkle PR 292: responses of 1 and 3 tokens in microbatches of one each: gradient 0 instead of 0.25
    found = []
    for parts in ([slice(0, 4)], [slice(0, 1), slice(1, 4)]):
        logprobs = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        advantages = torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
        weights = torch.from_numpy(token_weights(episodes([1, 3]), "token_mean"))
        for part in parts:
            loss = policy_loss("clipped", logprobs[part], torch.zeros(4)[part], advantages[part])
            (weights[part] * loss.losses).sum().backward()
        found.append(logprobs.grad.tolist())
    assert found[0] == found[1] == [-0.25, 0.25, 0.25, 0.25]


def test_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely():
    # Ye et al. 2020, eq. 5: with A < 0 the loss is at most -A c, and is flat beyond
    logprobs = torch.tensor([2.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([-2.0, -2.0, 2.0], dtype=torch.float64)
    old = torch.zeros(3, dtype=torch.float64)
    found = policy_loss("clipped", logprobs, old, advantages, dual_clip=3.0)
    found.losses.sum().backward()
    assert found.losses.tolist() == pytest.approx([6, 2 * math.exp(0.5), -2.4])
    assert found.clipped.tolist() == [True, False, True]
    assert found.capped.tolist() == [True, False, False]
    assert logprobs.grad.tolist() == pytest.approx([0, 2 * math.exp(0.5), 0])


def test_gspo_has_the_ratio_of_the_sequence_and_the_gradient_of_the_token():
    logprobs = torch.tensor([-1.0, -2.0, -1.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-1.2, -2.0, -1.0], dtype=torch.float64)
    advantages = torch.ones(3, dtype=torch.float64)
    found = policy_loss(
        "gspo", logprobs, old, advantages, torch.tensor([0, 0, 1]), clip_low=0.2, clip_high=0.2
    )
    found.losses.sum().backward()
    ratio = math.exp(0.1)  # the mean of 0.2 and 0
    assert found.losses.tolist() == pytest.approx([-ratio, -ratio, -1])
    assert logprobs.grad.tolist() == pytest.approx([-ratio, -ratio, -1])


def test_cispo_keeps_the_gradient_of_clipped_tokens():
    logprobs = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-4.0, -1.5], dtype=torch.float64)
    found = policy_loss(
        "cispo", logprobs, old, torch.ones(2, dtype=torch.float64), clip_low=1.0, clip_high=4.0
    )
    found.losses.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-5, -math.exp(0.5)])
    assert found.clipped.tolist() == [True, False]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda b: -b.logprobs, "got a Tensor"),
        (lambda b: TokenLosses(-b.logprobs.mean()), r"losses of shape \(\)"),
        (lambda b: TokenLosses(-b.logprobs[:, None]), r"losses of shape \(3, 1\)"),
        (lambda b: TokenLosses(-b.logprobs, torch.ones(1, dtype=torch.bool)), "clipped of shape"),
        (lambda b: TokenLosses(-b.logprobs, None, torch.ones(1, dtype=torch.bool)), "capped of shape"),
        (lambda b: TokenLosses(-b.logprobs.detach()), "without a gradient"),
    ],
)
def test_what_a_loss_of_your_own_returns_is_checked(result, message):
    numbers = torch.zeros(3)
    data = LossInput(
        logprobs=torch.zeros(3, requires_grad=True),
        old_logprobs=numbers,
        advantages=numbers,
        sequence=torch.zeros(3, dtype=torch.long),
    )
    with pytest.raises(InvariantError, match=message):
        compute_token_losses(lambda batch, config: result(batch), data, AlgorithmConfig(loss="mine:own"))
