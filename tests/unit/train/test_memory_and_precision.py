"""Weights of 16 bits with float32 masters, layers that are computed again, and wide logprobs in chunks."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from training_cases import make_learner, random_groups, tiny_model, trajectory, turn
from transformers import Qwen3Config, Qwen3ForCausalLM

from hyperrl.errors import ModelError
from hyperrl.train import scoring
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batching import make_loss_tokens, make_microbatches, make_segments
from hyperrl.train.config import AlgorithmConfig, OptimizerConfig
from hyperrl.train.models import checkpoint_layers
from hyperrl.train.optimization import Optimizer
from hyperrl.train.policy_pass import PolicyUpdate, run_pass
from hyperrl.train.scoring import compute_logprobs, score_microbatch, select_logprobs

VOCABULARY = 151_936  # Qwen3's


def prepare(groups, **algorithm):
    return Algorithm(AlgorithmConfig.model_validate(algorithm)).prepare(groups)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors that operations have made, beside ``given``, and that are still alive."""

    def __init__(self, given):
        super().__init__()
        self.live = self.peak = 0
        self._known = {tensor.untyped_storage().data_ptr() for tensor in given}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        key, size = storage.data_ptr(), storage.nbytes()
        if not size or key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key, size):
        self._known.discard(key)
        self.live -= size


def measure(run, *given):
    gc.collect()
    with PeakMemory(given) as memory:
        run()
    return memory.peak


def naive(logits, targets, temperature):
    wide = torch.log_softmax(logits.float() / temperature[:, None], -1)
    return wide.gather(-1, targets[:, None]).squeeze(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_of_a_large_vocabulary_need_no_wide_copy_of_the_logits(dtype):
    rows = 192
    logits = torch.randn(rows, VOCABULARY, dtype=dtype, requires_grad=True)
    targets, temperature = torch.randint(0, VOCABULARY, (rows,)), torch.full((rows,), 0.7)
    own = logits.nbytes
    peaks = {}
    for select in (select_logprobs, naive):
        logits.grad = None
        peaks[select] = measure(
            lambda select=select: select(logits, targets, temperature).sum().backward(), logits
        )
    chunk = 2**23 * 4
    assert peaks[select_logprobs] <= own + 4 * chunk  # the gradient, and a few chunks
    assert peaks[naive] >= own + 2 * rows * VOCABULARY * 4
    assert peaks[select_logprobs] < 0.65 * peaks[naive]


@pytest.mark.parametrize("scoring_alone", [False, True])
def test_logits_of_a_large_vocabulary_never_exist_as_a_whole(monkeypatch, scoring_alone):
    """Forward and backward of 512 tokens, with room for the logits of 55 and the softmax of 27."""
    rows, hidden = 512, 8
    monkeypatch.setattr(scoring, "OUTPUT_ELEMENTS", 2**23)
    monkeypatch.setattr(scoring, "CHUNK_ELEMENTS", 2**22)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=rows + 8,
    )
    model = Qwen3ForCausalLM(config).eval()
    episode = trajectory([turn([1], torch.randint(0, VOCABULARY, (rows,)).tolist())])
    segments = make_segments(episode)
    (micro,) = make_microbatches(segments, make_loss_tokens(segments), 10**6)

    def learn():
        if scoring_alone:
            score_microbatch(model, micro)
        else:
            compute_logprobs(model, micro).sum().backward()

    peak = measure(learn, *model.parameters())
    logits, chunk, weights = rows * VOCABULARY * 4, 2**23 * 4, VOCABULARY * hidden * 4
    # a chunk, its gradient, the softmax of parts of it, and the output layer's gradient
    assert peak <= 2 * chunk + 4 * chunk / 2 + 3 * weights + 2**22
    assert peak < logits / 1.9


def accumulated(model, minibatch, algorithm):
    learner = make_learner(model)
    update = PolicyUpdate(
        minibatch=minibatch, old=learner.compute_logprobs(minibatch), advantages=minibatch.advantages
    )
    for micro in minibatch.microbatches:
        run_pass(model, update, micro, algorithm)
    return {name: p.grad for name, p in model.named_parameters()}


def test_layers_that_are_computed_again_give_the_same_gradient_with_less_memory():
    (minibatch,) = prepare(random_groups(1, groups=8)).minibatches
    plain, checkpointed = tiny_model(), checkpoint_layers(tiny_model())
    config = AlgorithmConfig()
    peaks = [
        measure(lambda model=model: accumulated(model, minibatch, config), *model.parameters())
        for model in (plain, checkpointed)
    ]
    assert peaks[1] < 0.75 * peaks[0]
    expected = {name: p.grad for name, p in plain.named_parameters()}
    for name, parameter in checkpointed.named_parameters():
        assert torch.equal(parameter.grad, expected[name]), name
    assert not any(module.training for module in checkpointed.modules())


def test_a_model_without_layers_to_checkpoint_is_refused():
    with pytest.raises(ModelError, match="gradient_checkpointing"):
        checkpoint_layers(torch.nn.Linear(2, 2))


def test_updates_too_small_for_16_bits_add_up():
    # 1 + 1e-4 is 1 in bfloat16: without masters a hundred such updates would change nothing
    model = torch.nn.Linear(3, 3, bias=False).bfloat16()
    torch.nn.init.ones_(model.weight)
    optimizer = Optimizer(model, OptimizerConfig(lr=1e-4))
    for step in range(100):
        model.weight.grad = None
        model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
        assert model.weight.grad is None  # the master has it
        assert optimizer.step(1.0).applied
        if step < 10:
            assert (model.weight == 1).all()
    assert model.weight.flatten().tolist() == pytest.approx([0.99] * 9, abs=4e-3)
    assert (model.weight != 1).all()


def test_gradients_of_16_bit_weights_are_added_in_float32():
    model = torch.nn.Linear(1, 1, bias=False).bfloat16()
    optimizer = Optimizer(model, OptimizerConfig())
    for size in (256.0, *[0.5] * 64):  # 256.5 is 256 in bfloat16
        (model(torch.ones(1, 1, dtype=torch.bfloat16)).sum() * size).backward()
    assert float(optimizer.gradient_norm()) == 256 + 32


def test_masters_follow_weights_that_were_replaced():
    model = torch.nn.Linear(2, 2, bias=False).bfloat16()
    optimizer = Optimizer(model, OptimizerConfig(lr=1e-3))
    torch.nn.init.constant_(model.weight, 4.0)
    optimizer.reload()
    model(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    optimizer.step(1.0)
    assert model.weight.flatten().tolist() == pytest.approx([4.0] * 4, abs=2e-2)


def test_a_bfloat16_policy_learns_what_is_rewarded():
    model = tiny_model(torch.bfloat16)
    learner = make_learner(model, lr=2e-3, gate="tolerance")
    groups = random_groups(3, model=model)
    before = learner.compute_logprobs(prepare(groups).minibatches[0])
    metrics = learner.step(prepare(groups), version=0)
    assert metrics["actor/updates_applied"] == 1
    assert math.isfinite(metrics["actor/loss"])
    assert metrics["consistency/over_limit"] == 0
    for _ in range(5):
        learner.gate.enforced = False  # the logprobs of the episodes are those of the first policy
        learner.step(prepare(groups), version=0)
    (minibatch,) = prepare(groups).minibatches
    moved = learner.compute_logprobs(minibatch) - before
    advantages = torch.from_numpy(minibatch.advantages)
    assert moved.dtype == torch.float32
    assert float(moved[advantages > 0].mean()) > float(moved[advantages < 0].mean()) + 0.01
