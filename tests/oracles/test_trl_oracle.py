"""Our losses and their gradients against TRL 1.16's ``GRPOTrainer._compute_loss``."""

from __future__ import annotations

import types
from collections import defaultdict

import pytest
import torch
from oracle_cases import make_case, need

from hyperrl.train.algorithm_config import AlgorithmConfig
from hyperrl.train.kl import compute_kl
from hyperrl.train.losses import token_weights

trl = need("trl")
pytestmark = pytest.mark.oracle

SEEDS = range(3)
AGGREGATIONS = {
    "dapo": "token_mean",
    "bnpo": "token_mean",
    "grpo": "seq_mean_token_mean",
    "dr_grpo": "seq_mean_token_sum_norm",
}


class Accelerator:
    num_processes = 1
    sync_gradients = True

    def gather(self, values):
        return values

    gather_for_metrics = gather

    def reduce(self, values, reduction="sum"):
        return values


def trl_loss(tmp_path, case, loss_type, *, beta=0.0, level="token", low=0.2, high=0.28, delta=None):
    """Call TRL's loss without a model: its method reads only these attributes."""
    logprobs = case.logprobs.clone().requires_grad_()
    args = trl.GRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to=[],
        beta=beta,
        delta=delta,
        loss_type=loss_type,
        per_device_train_batch_size=8,
    )
    args.use_bias_correction_kl = False  # the ratio in front of k3 is TRL's own
    trainer = types.SimpleNamespace(
        args=args,
        accelerator=Accelerator(),
        model=types.SimpleNamespace(training=True),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        loss_type=loss_type,
        epsilon_low=low,
        epsilon_high=high,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        current_gradient_accumulation_steps=1,
        max_completion_length=case.mask.shape[1],
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *a, **k: (logprobs, torch.zeros_like(logprobs), None),
    )
    ids = torch.zeros_like(case.mask, dtype=torch.long)
    batch = {
        "prompt_ids": ids,
        "prompt_mask": torch.ones_like(ids),
        "completion_ids": ids,
        "completion_mask": case.mask,
        "advantages": case.advantages[:, 0],
        "old_per_token_logps": case.old,
        "ref_per_token_logps": case.reference,
        "num_items_in_batch": case.mask.sum(),
    }
    loss = trl.GRPOTrainer._compute_loss(trainer, None, batch)
    loss.backward()
    return loss.detach(), logprobs.grad


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss_type", AGGREGATIONS)
def test_clipped_losses_and_their_gradients(compare, tmp_path, seed, loss_type):
    case = make_case(seed, move=0.6)
    theirs, their_gradient = trl_loss(tmp_path, case, loss_type)
    found, gradient = case.loss(
        AlgorithmConfig(clip_low=0.2, clip_high=0.28), AGGREGATIONS[loss_type], horizon=case.mask.shape[1]
    )
    compare("clipped loss", f"TRL _compute_loss {loss_type}", found, theirs, 1e-7)
    compare("clipped gradient", f"TRL _compute_loss {loss_type}", gradient, their_gradient, 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_gspo(compare, tmp_path, seed):
    case = make_case(seed, move=0.3)
    theirs, _ = trl_loss(tmp_path, case, "grpo", level="sequence", low=0.02, high=0.03)
    found, _ = case.loss(AlgorithmConfig(loss="gspo", clip_low=0.02, clip_high=0.03), "seq_mean_token_mean")
    compare("gspo loss", "TRL _compute_loss, sequence level", found, theirs, 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_kl_in_the_loss(compare, tmp_path, seed):
    case = make_case(seed)
    plain, _ = trl_loss(tmp_path, case, "dapo")
    with_kl, _ = trl_loss(tmp_path, case, "dapo", beta=0.5)
    where = case.mask.bool()
    kl = compute_kl(case.logprobs[where], case.reference[where], "k3")
    ours = (torch.from_numpy(token_weights(case.episode, "token_mean")) * kl).sum()
    compare("kl k3 in the loss", "TRL _compute_loss, beta", 0.5 * ours, with_kl - plain, 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_dual_clip(compare, tmp_path, seed):
    case = make_case(seed, move=1.5)
    theirs, their_gradient = trl_loss(tmp_path, case, "dapo", delta=2.0)
    plain, _ = trl_loss(tmp_path, case, "dapo")
    assert theirs != plain
    config = AlgorithmConfig(clip_low=0.2, clip_high=0.28, dual_clip=2.0)
    found, gradient = case.loss(config, "token_mean")
    compare("clipped loss, dual clip", "TRL _compute_loss, delta", found, theirs, 1e-7)
    compare("clipped gradient, dual clip", "TRL _compute_loss, delta", gradient, their_gradient, 1e-7)
