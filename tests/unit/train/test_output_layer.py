"""Logits in chunks of rows: what is read off them, its gradient, and what a whole update makes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_cases import make_learner, random_groups, tiny_model
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from hyperrl.train import scoring
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batching import make_loss_tokens, make_microbatches, make_segments
from hyperrl.train.config import AlgorithmConfig
from hyperrl.train.models import pack_attention
from hyperrl.train.output_layer import chunk_rows, has_output_layer
from hyperrl.train.scoring import compute_logprobs, compute_observed, compute_score, score_microbatch

VOCABULARY = 23
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "attn_implementation": "eager",
    "initializer_range": 0.3,
}


def build(kind, config, **fields):
    torch.manual_seed(0)
    return kind(config(**SHAPE, **fields)).double().eval()


MODELS = {
    "qwen3, tied": lambda: tiny_model(torch.float64),
    "qwen3, untied": lambda: tiny_model(torch.float64, tied=False),
    "llama": lambda: build(LlamaForCausalLM, LlamaConfig),
    # a soft cap, a divisor, a factor: what stands behind the output layer
    "gemma2": lambda: build(Gemma2ForCausalLM, Gemma2Config, head_dim=8, final_logit_softcapping=2.0),
    "granite": lambda: build(GraniteForCausalLM, GraniteConfig, logits_scaling=3.0),
    "cohere": lambda: build(CohereForCausalLM, CohereConfig, logit_scale=0.25),
    "gpt2": lambda: (
        GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=16, n_layer=1, n_head=2))
        .double()
        .eval()
    ),
}


@pytest.fixture
def in_chunks(monkeypatch):
    """Make every microbatch of more than three tokens too large for one chunk of logits."""
    monkeypatch.setattr(scoring, "OUTPUT_ELEMENTS", 3 * VOCABULARY)


def one_microbatch(seed=2, *, packed=False):
    episodes = [episode for group in random_groups(seed) for episode in group]
    segments = [segment for i, episode in enumerate(episodes) for segment in make_segments(episode, i)]
    (micro,) = make_microbatches(segments, make_loss_tokens(segments), 10**6, packed=packed)
    return micro


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_chunks_give_the_logprobs_entropies_and_gradients_of_plain_autograd(name, in_chunks):
    model, micro = MODELS[name](), one_microbatch()
    assert has_output_layer(model)
    assert len(micro.tokens) > 10
    weights = torch.linspace(-1, 1, len(micro.tokens), dtype=torch.float64)
    targets = torch.from_numpy(micro.targets)

    logits = model(torch.from_numpy(micro.input_ids)).logits.flatten(0, 1)[torch.from_numpy(micro.predictors)]
    log_p = torch.log_softmax(logits / torch.from_numpy(micro.temperature)[:, None], -1)
    logprobs, entropy = log_p.gather(-1, targets[:, None]).squeeze(-1), -(log_p.exp() * log_p).sum(-1)
    (weights * logprobs + weights.flip(0) * entropy).sum().backward()
    expected = gradients(model)

    score = compute_score(model, micro)
    assert torch.allclose(score.logprobs, logprobs, rtol=0, atol=1e-12)
    assert torch.allclose(score.entropy, entropy, rtol=0, atol=1e-12)
    (weights * score.logprobs + weights.flip(0) * score.entropy).sum().backward()
    found = gradients(model)
    assert found.keys() == expected.keys()
    for parameter, value in expected.items():
        assert torch.allclose(found[parameter], value, rtol=1e-6, atol=1e-7), parameter
    assert "forward" not in model.base_model.__dict__


@pytest.mark.parametrize("packed", [False, True])
def test_every_way_to_ask_gives_the_same_bits(in_chunks, packed):
    model, micro = pack_attention(tiny_model()), one_microbatch(packed=packed)
    logprobs = compute_logprobs(model, micro)
    observed, scored = compute_observed(model, micro), score_microbatch(model, micro)
    assert logprobs.requires_grad
    assert observed.logprobs.requires_grad
    assert not observed.entropy.requires_grad
    assert not scored.logprobs.requires_grad
    for other in (observed.logprobs, scored.logprobs, compute_score(model, micro).logprobs):
        assert torch.equal(other, logprobs)
    assert torch.equal(observed.entropy, scored.entropy)
    slopes = []
    for one in (logprobs, observed.logprobs):
        one.sum().backward()
        slopes.append(gradients(model))
    assert all(torch.equal(slopes[0][name], slopes[1][name]) for name in slopes[0])


def test_updates_in_chunks_are_those_of_whole_logits(monkeypatch):
    """Three batches: scored apart, then by the pass that learns; the first ratio is checked on each."""
    weights = []
    for elements in (scoring.OUTPUT_ELEMENTS, 3 * VOCABULARY):
        monkeypatch.setattr(scoring, "OUTPUT_ELEMENTS", elements)
        model = tiny_model(torch.float64)
        learner = make_learner(model, minibatches=2)
        for seed in range(3):
            batch = Algorithm(AlgorithmConfig(minibatches=2)).prepare(random_groups(seed))
            assert learner.step(batch, version=0)["actor/updates_applied"] == 2
        weights.append({name: p.detach().clone() for name, p in model.named_parameters()})
    for name, value in weights[0].items():
        assert torch.allclose(weights[1][name], value, rtol=0, atol=1e-6), name


def test_a_16_bit_gradient_is_rounded_once_however_many_chunks_it_comes_from(monkeypatch):
    episodes = [episode for group in random_groups(0, groups=8) for episode in group]
    segments = [segment for i, episode in enumerate(episodes) for segment in make_segments(episode, i)]
    (micro,) = make_microbatches(segments, make_loss_tokens(segments), 10**6)
    errors = []
    for elements in (VOCABULARY, 10**9):
        monkeypatch.setattr(scoring, "OUTPUT_ELEMENTS", elements)
        model = tiny_model(torch.bfloat16, tied=False)
        compute_logprobs(model, micro).sum().backward()
        exact = tiny_model(torch.bfloat16, tied=False).double()
        compute_logprobs(exact, micro).sum().backward()
        apart = model.lm_head.weight.grad.double() - exact.lm_head.weight.grad
        errors.append(float(apart.norm() / exact.lm_head.weight.grad.norm()))
    assert errors[0] <= 1.05 * errors[1], errors


def test_a_frozen_output_layer_has_no_gradient_and_lets_it_through(in_chunks):
    model, micro = tiny_model(torch.float64, tied=False), one_microbatch()
    compute_logprobs(model, micro).sum().backward()
    expected = gradients(model)
    model.lm_head.weight.requires_grad_(False)
    compute_logprobs(model, micro).sum().backward()
    found = gradients(model)
    assert set(expected) - set(found) == {"lm_head.weight"}
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_a_model_without_a_backbone_of_its_own_keeps_its_logits(in_chunks, monkeypatch):
    model, micro = tiny_model(), one_microbatch()
    expected = compute_logprobs(model, micro)
    monkeypatch.setattr(type(model), "base_model_prefix", "no_such_part")
    assert not has_output_layer(model)
    assert torch.allclose(compute_logprobs(model, micro), expected, atol=1e-6)


@pytest.mark.parametrize(("rows", "size"), [(0, 4), (1, 4), (4, 4), (9, 4)])
def test_chunks_cover_every_row_once(rows, size):
    covered = [np.arange(rows)[part] for part in chunk_rows(rows, size)]
    assert covered
    assert np.concatenate(covered).tolist() == list(range(rows))
    assert max(map(len, covered)) <= size
