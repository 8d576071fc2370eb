"""Episodes side by side without padding: the same numbers as in padded rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import VOCABULARY, make_learner, policy_logprobs, random_groups, trajectory, turn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from hyperrl.errors import ModelError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batch_scores import score_minibatch
from hyperrl.train.batching import make_loss_tokens, make_microbatches, make_segments, partition_segments
from hyperrl.train.config import AlgorithmConfig, CriticConfig, OptimizerConfig
from hyperrl.train.critic import ValueLearner, ValueModel
from hyperrl.train.models import load_model, make_tiny_model, pack_attention, save_model
from hyperrl.train.policy_pass import PolicyUpdate, run_pass
from hyperrl.train.scoring import compute_logprobs

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
}
FAMILIES = {
    "qwen3": lambda: Qwen3Config(**SIZES),
    "llama": lambda: LlamaConfig(**SIZES),
    "window": lambda: Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "softcap": lambda: Gemma2Config(**SIZES, sliding_window=4, query_pre_attn_scalar=32),
}


def make(family="qwen3", dtype=torch.float32, attention="eager"):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = FAMILIES[family]()
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.to(dtype).eval()


def prepare(groups, **algorithm):
    return Algorithm(AlgorithmConfig.model_validate(algorithm)).prepare(groups)


def test_packed_logprobs_are_those_of_padded_rows_to_the_last_bit():
    # A softmax over a row adds in the order of the processor's vectors: rows of whole vectors are exact in
    # float32, and float64 with sdpa has no float32 inside.
    rng = np.random.default_rng(0)
    for lengths, dtype, attention in (
        ([16, 32, 48, 64] * 4, torch.float32, "eager"),
        (rng.integers(2, 60, 24).tolist(), torch.float64, "sdpa"),
    ):
        episodes = [
            trajectory([turn(rng.integers(0, 23, n - n // 2 + 1).tolist(), [7] * (n // 2))]) for n in lengths
        ]
        segments = [segment for episode in episodes for segment in make_segments(episode)]
        tokens = make_loss_tokens(segments)
        (rows,) = make_microbatches(segments, tokens, 10**6)
        (micro,) = make_microbatches(segments, tokens, 10**6, packed=True)
        assert micro.input_ids.shape == (1, sum(lengths))
        assert rows.padded_tokens > micro.padded_tokens
        model = make(dtype=dtype, attention=attention)
        expected = compute_logprobs(model, rows).detach()[np.argsort(rows.tokens)]
        found = compute_logprobs(pack_attention(model), micro).detach()[np.argsort(micro.tokens)]
        assert torch.equal(found.float(), expected.float())


CASES = [(family, attention) for family in FAMILIES for attention in ("eager", "sdpa")]
CASES.remove(("softcap", "sdpa"))  # transformers runs Gemma 2 with sdpa without its soft cap


@pytest.mark.parametrize(("family", "attention"), CASES)
def test_every_kind_of_attention_sees_only_its_own_segment(family, attention):
    model = pack_attention(make(family, attention=attention))
    plain = make(family, attention=attention)
    groups = random_groups(2)
    episodes = [episode for group in groups for episode in group]
    (minibatch,) = prepare(groups, packing="packed").minibatches
    for each in (model, plain):  # without pack_attention, transformers masks what is side by side
        found = score_minibatch(each, minibatch).logprobs
        for i in range(0, len(found), 5):
            ids, position = _ids(episodes[minibatch.tokens.trajectory[i]]), minibatch.tokens.position[i]
            (expected,) = policy_logprobs(plain, ids[:position], [ids[position]])
            assert float(found[i]) == pytest.approx(expected, abs=2e-5)


def _ids(episode):
    return [x for t in episode.turns for part in (t.context_ids, t.action_ids) for x in part.tolist()]


def test_a_model_that_can_read_packed_segments_still_reads_padded_rows():
    (minibatch,) = prepare(random_groups(3)).minibatches
    for attention in ("eager", "sdpa"):
        plain, able = make(attention=attention), pack_attention(make(attention=attention))
        assert torch.equal(
            score_minibatch(able, minibatch).logprobs, score_minibatch(plain, minibatch).logprobs
        )


def gradients(model, groups, **algorithm):
    batch = prepare(groups, **algorithm)
    (minibatch,) = batch.minibatches
    learner = make_learner(model, **algorithm)
    update = PolicyUpdate(
        minibatch=minibatch,
        old=learner.compute_logprobs(minibatch) + 0.3,
        advantages=minibatch.advantages,
    )
    for micro in minibatch.microbatches:
        run_pass(model, update, micro, learner.algorithm)
    return {name: p.grad for name, p in model.named_parameters()}


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 100), budget=st.integers(1, 200))
def test_packed_gradients_are_those_of_padded_rows(seed, budget):
    groups = random_groups(seed)
    results = []
    for packing in ("padded", "packed"):
        model = pack_attention(make(dtype=torch.float64, attention="sdpa"))
        results.append(gradients(model, groups, packing=packing, microbatch_tokens=budget))
    padded, packed = results
    scale = max(float(value.abs().max()) for value in padded.values())
    for name, value in padded.items():
        assert float((packed[name] - value).abs().max()) <= 1e-12 * max(scale, 1e-3), name


@pytest.mark.parametrize("options", [{}, {"minibatches": 2, "epochs": 2}, {"entropy_coef": 0.1}])
def test_updates_of_packed_batches_keep_what_training_promises(options):
    groups = random_groups(4, groups=6)
    found = []
    for packing in ("padded", "packed"):
        model = pack_attention(make(dtype=torch.float64, attention="sdpa"))
        learner = make_learner(model, packing=packing, **options)
        for _ in range(2):  # the first ratio is checked to be exactly 1
            metrics = learner.step(prepare(groups, packing=packing, **options), version=0)
        found.append(metrics)
    for name in ("actor/loss", "actor/grad_norm", "actor/entropy", "actor/ppo_kl_k3"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-9, abs=1e-12), name


def test_a_critic_reads_packed_segments():
    groups = random_groups(5)
    values = []
    for packing in ("padded", "packed"):
        model = ValueModel(pack_attention(make(dtype=torch.float64, attention="sdpa")))
        torch.manual_seed(1)
        torch.nn.init.normal_(model.head.weight)
        critic = ValueLearner(model, CriticConfig(), OptimizerConfig(), microbatch_tokens=100)
        (found,), _ = critic.score(prepare(groups, name="ppo", packing=packing))
        values.append(found)
    assert np.allclose(*values, atol=1e-9)
    assert np.ptp(values[0]) > 0.1


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40), budget=st.integers(1, 200))
def test_packed_partitions_hold_everything_once_within_the_budget(lengths, budget):
    sizes = np.array(lengths, np.int64)
    parts = partition_segments(sizes, budget, packed=True)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(sizes)))
    assert all(len(part) == 1 or sizes[part].sum() <= budget for part in parts)
    assert len(parts) <= len(partition_segments(sizes, budget))


@pytest.mark.parametrize("packed", [False, True])
def test_each_segment_can_be_a_microbatch_of_its_own(packed):
    segments = [s for g in random_groups(6) for i, e in enumerate(g) for s in make_segments(e, i)]
    tokens = make_loss_tokens(segments)
    (micro,) = make_microbatches(segments, tokens, 10**6, packed=packed)
    rows = micro.rows()
    assert sorted(np.concatenate([row.tokens for row in rows]).tolist()) == list(range(len(tokens)))
    for row in rows:
        segment = segments[tokens.segment[row.tokens[0]]]
        assert row.input_ids[0].tolist() == segment.token_ids[: segment.input_length].tolist()
        assert row.predictors.tolist() == (tokens.position[row.tokens] - 1).tolist()
        assert row.targets.tolist() == tokens.token_ids[row.tokens].tolist()


def test_a_model_with_other_attention_is_refused():
    class Odd(torch.nn.Module):
        config = PreTrainedConfig(attn_implementation="flex_attention")

    with pytest.raises(ModelError, match="packing: padded"):
        pack_attention(Odd())


def test_a_model_that_reads_packed_segments_is_saved_like_any_other(tmp_path):
    source = make_tiny_model(tmp_path / "a", hidden=32, layers=1, heads=2, kv_heads=1, ffn=32, context=64)
    cpu = {"dtype": torch.float32, "device": torch.device("cpu")}
    saved = save_model(pack_attention(load_model(source, **cpu)), tmp_path / "b", tokenizer_from=source)
    assert (saved / "config.json").read_text() == (source / "config.json").read_text()
