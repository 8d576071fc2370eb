"""Logprobs of chosen tokens: values, gradient, and what must not matter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import policy_logprobs, random_groups, tiny_model
from transformers import GPT2Config, GPT2LMHeadModel

from hyperrl.train import scoring
from hyperrl.train.batching import make_loss_tokens, make_microbatches, make_segments
from hyperrl.train.scoring import compute_logprobs, compute_score, score_microbatch, select_logprobs


def made(seed, budget=10**6):
    episodes = [episode for group in random_groups(seed) for episode in group]
    segments = [segment for i, episode in enumerate(episodes) for segment in make_segments(episode, i)]
    tokens = make_loss_tokens(segments)
    return segments, tokens, make_microbatches(segments, tokens, budget)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 50), budget=st.integers(1, 100))
def test_logprobs_are_those_of_one_plain_forward_pass_each(seed, budget):
    model = tiny_model(torch.float64)
    segments, tokens, micros = made(seed, budget)
    for micro in micros:
        found = score_microbatch(model, micro).logprobs.tolist()
        for value, token in zip(found, micro.tokens, strict=True):
            ids, position = segments[tokens.segment[token]].token_ids.tolist(), tokens.position[token]
            (expected,) = policy_logprobs(model, ids[:position], [ids[position]])
            assert value == pytest.approx(expected, abs=2e-6)


def test_scoring_with_and_without_gradient_is_bit_identical():
    model = tiny_model()
    for micro in made(1, 40)[2]:
        assert torch.equal(score_microbatch(model, micro).logprobs, compute_logprobs(model, micro).detach())


def test_entropy_is_that_of_the_whole_distribution():
    model = tiny_model(torch.float64)
    (micro,) = made(2)[2]
    logits = model(torch.from_numpy(micro.input_ids)).logits.flatten(0, 1)[torch.from_numpy(micro.predictors)]
    expected = torch.distributions.Categorical(logits=logits).entropy()
    assert torch.allclose(score_microbatch(model, micro).entropy, expected, atol=1e-6)


def test_an_impossible_token_adds_nothing_to_the_entropy():
    model = tiny_model()
    (micro,) = made(2)[2]
    hook = model.lm_head.register_forward_hook(
        lambda module, args, logits: logits.index_fill(-1, torch.tensor([22]), -torch.inf)
    )
    assert torch.isfinite(score_microbatch(model, micro).entropy).all()
    hook.remove()


@pytest.mark.parametrize("chunk", [1, 70, 10**6])
def test_the_chunked_gradient_is_that_of_autograd(chunk, monkeypatch):
    monkeypatch.setattr(scoring, "CHUNK_ELEMENTS", chunk)
    torch.manual_seed(0)
    logits = torch.randn(9, 23, dtype=torch.float64, requires_grad=True)
    targets, temperature = torch.randint(0, 23, (9,)), torch.rand(9, dtype=torch.float64) + 0.5
    weights = torch.randn(9, dtype=torch.float64)
    (weights * select_logprobs(logits, targets, temperature)).sum().backward()
    found, logits.grad = logits.grad, None
    plain = torch.log_softmax(logits / temperature[:, None], -1)[torch.arange(9), targets]
    (weights * plain).sum().backward()
    assert torch.allclose(found, logits.grad, atol=1e-14)


def test_bfloat16_logits_are_widened_before_the_softmax():
    logits = torch.randn(5, 23).bfloat16().requires_grad_()
    found = select_logprobs(logits, torch.arange(5), torch.ones(5))
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.log_softmax(logits.float(), -1)[torch.arange(5), torch.arange(5)])
    found.sum().backward()
    assert logits.grad.dtype == torch.bfloat16


def test_nothing_at_a_masked_position_reaches_the_gradient():
    # NaN or nonsense in what is recorded about tokens that are only read, and any id as padding
    model = tiny_model()
    segments, _, _ = made(3)
    spoiled = [
        dataclasses.replace(
            segment,
            behavior_logprobs=np.where(segment.loss_mask, segment.behavior_logprobs, np.float32(np.nan)),
            temperature=np.where(segment.loss_mask, segment.temperature, np.nan),
            policy_versions=np.where(segment.loss_mask, segment.policy_versions, np.int32(99)),
        )
        for segment in segments
    ]
    results = []
    for each in (segments, spoiled):
        (micro,) = make_microbatches(each, make_loss_tokens(each), 10**6)
        compute_logprobs(model, micro).sum().backward()
        results.append([p.grad.clone() for p in model.parameters()])
        model.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_padding_id_does_not_matter():
    model = tiny_model()
    segments, _, (micro,) = made(4)
    width = micro.input_ids.shape[1]
    order = np.lexsort((np.arange(len(segments)), [-s.input_length for s in segments]))
    filled = np.arange(width) < np.array([segments[i].input_length for i in order])[:, None]
    other = dataclasses.replace(micro, input_ids=np.where(filled, micro.input_ids, 7))
    assert not np.array_equal(other.input_ids, micro.input_ids)
    assert torch.equal(score_microbatch(model, other).logprobs, score_microbatch(model, micro).logprobs)


def test_the_output_layer_sees_only_what_is_scored():
    model = tiny_model()
    _, tokens, (micro,) = made(5)
    seen = []
    hook = model.lm_head.register_forward_hook(lambda module, args, logits: seen.append(logits.shape))
    score_microbatch(model, micro)
    hook.remove()
    assert seen == [(1, len(tokens), 23)]
    full = model(torch.from_numpy(micro.input_ids)).logits
    assert full.shape == (*micro.input_ids.shape, 23)


def test_the_gradient_of_the_entropy_is_that_of_autograd():
    model = tiny_model(torch.float64)
    (micro,) = made(2)[2]
    weights = torch.linspace(-1, 1, len(micro.tokens), dtype=torch.float64)
    (weights * compute_score(model, micro).entropy).sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    logits = model(torch.from_numpy(micro.input_ids)).logits.flatten(0, 1)[torch.from_numpy(micro.predictors)]
    (weights * torch.distributions.Categorical(logits=logits).entropy()).sum().backward()
    for ours, parameter in zip(found, model.parameters(), strict=True):
        assert torch.allclose(ours, parameter.grad, rtol=1e-5, atol=1e-7)


def test_a_model_with_learned_positions_is_scored_as_row_by_row():
    # TRL 6800: left padding without position_ids moved GPT-2's sequence logprob by 34
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=23, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3)
    model = GPT2LMHeadModel(config).eval()
    segments, tokens, (micro,) = made(6)
    assert len({segment.input_length for segment in segments}) > 1
    found = score_microbatch(model, micro).logprobs.tolist()
    for value, token in zip(found, micro.tokens, strict=True):
        ids, position = segments[tokens.segment[token]].token_ids.tolist(), tokens.position[token]
        (expected,) = policy_logprobs(model, ids[:position], [ids[position]])
        assert value == pytest.approx(expected, abs=1e-5)
