"""Our advantages, losses, aggregation, KL and corrections against verl 0.9.1's functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from oracle_cases import make_case, need

from hyperrl.train.advantages import ADVANTAGES
from hyperrl.train.algorithm_config import AlgorithmConfig, CorrectionConfig
from hyperrl.train.correction import compute_correction, describe_mismatch
from hyperrl.train.critic import compute_value_loss
from hyperrl.train.kl import compute_kl
from hyperrl.train.losses import compute_clipped_surrogate

core = need("verl.trainer.ppo.core_algos")
corrections = need("verl.trainer.ppo.rollout_corr_helper")
AlgoConfig = need("verl.trainer.config").AlgoConfig
ActorConfig = need("verl.workers.config").ActorConfig
whiten = need("verl.utils.torch_functional").masked_whiten

SEEDS = range(4)
pytestmark = pytest.mark.oracle


def ours(case, name, **config):
    values = config.get("advantage") == "gae" or name == "gae"
    return ADVANTAGES.find(name)(case.input(values=values), AlgorithmConfig(advantage=name, **config))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", ["std", "none"])
def test_group_advantages(compare, seed, scale):
    case = make_case(seed)
    theirs, _ = core.compute_grpo_outcome_advantage(
        case.token_rewards.clone(), case.mask, case.groups, norm_adv_by_std_in_grpo=scale == "std"
    )
    found = ours(case, "group", scale=scale)
    compare(
        f"group, scale {scale}", "verl compute_grpo_outcome_advantage", found.advantages, case.flat(theirs)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_leave_one_out(compare, seed):
    case = make_case(seed)
    theirs, _ = core.compute_rloo_outcome_advantage(case.token_rewards.clone(), case.mask, case.groups)
    found = ours(case, "group", scale="none", leave_one_out=True)
    compare(
        "group, leave_one_out", "verl compute_rloo_outcome_advantage", found.advantages, case.flat(theirs)
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus(compare, seed, gamma):
    case = make_case(seed)
    theirs, _ = core.compute_reinforce_plus_plus_outcome_advantage(
        case.token_rewards.clone(), case.mask, config=AlgoConfig(gamma=gamma)
    )
    found = ours(case, "reinforce_pp", gamma=gamma)
    compare(
        "reinforce_pp", "verl compute_reinforce_plus_plus_outcome_adv.", found.advantages, case.flat(theirs)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_plus_plus_with_a_baseline(compare, seed):
    case = make_case(seed)
    theirs, _ = core.compute_reinforce_plus_plus_baseline_outcome_advantage(
        case.token_rewards.clone(), case.mask, case.groups
    )
    found = ours(case, "reinforce_pp_baseline")
    compare(
        "reinforce_pp_baseline",
        "verl compute_reinforce_plus_plus_baseline_...",
        found.advantages,
        case.flat(theirs),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (1.0, 0.0), (0.5, 0.5)])
def test_gae(compare, seed, gamma, lam):
    case = make_case(seed)
    theirs, returns = core.compute_gae_advantage_return(
        case.token_rewards, case.values, case.mask, gamma, lam
    )
    found = ours(case, "gae", gamma=gamma, lam=lam, whiten=True)
    compare("gae, whitened", "verl compute_gae_advantage_return", found.advantages, case.flat(theirs))
    compare("gae, returns", "verl compute_gae_advantage_return", found.returns, case.flat(returns))
    plain = ours(case, "gae", gamma=gamma, lam=lam).advantages
    compare("gae", "verl compute_gae_advantage_return", plain, case.flat(returns - case.values))


MODES = {
    "token_mean": "token-mean",
    "seq_mean_token_sum": "seq-mean-token-sum",
    "seq_mean_token_mean": "seq-mean-token-mean",
    "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
}
LOSS_PAIRS = {
    "clipped": ("vanilla", {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}),
    "gspo": ("gspo", {"clip_low": 0.02, "clip_high": 0.03}),
    "cispo": ("cispo", {"clip_low": 0.2, "clip_high": 0.28}),
    "policy_gradient": ("gpg", {}),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSS_PAIRS)
def test_policy_losses_and_their_gradients(compare, seed, mode, loss):
    case = make_case(seed, move=0.6)
    name, parts = LOSS_PAIRS[loss]
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=parts.get("clip_low", 0.2),
        clip_ratio_high=parts.get("clip_high", 0.2),
        clip_ratio_c=3.0,
    )
    config.global_batch_info["loss_scale_factor"] = 7
    logprobs = case.logprobs.clone().requires_grad_()
    theirs, _ = core.get_policy_loss_fn(name)(
        old_log_prob=case.old,
        log_prob=logprobs,
        advantages=case.advantages,
        response_mask=case.mask,
        loss_agg_mode=MODES[mode],
        config=config,
    )
    theirs.backward()
    found, gradient = case.loss(AlgorithmConfig(loss=loss, **parts), mode, horizon=7)
    oracle = f"verl {name}, {MODES[mode]}"
    compare(f"{loss} loss", oracle, found, theirs.detach())
    compare(f"{loss} gradient", oracle, gradient, logprobs.grad)


def test_what_counts_as_clipped(compare):
    case = make_case(3, rows=60, move=1.5)
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_c=3.0)
    _, theirs = core.get_policy_loss_fn("vanilla")(
        old_log_prob=case.old,
        log_prob=case.logprobs,
        advantages=case.advantages,
        response_mask=case.mask,
        loss_agg_mode="token-mean",
        config=config,
    )
    where = case.mask.bool()
    ratio = (case.logprobs - case.old)[where].exp()
    found = compute_clipped_surrogate(
        ratio, case.advantages[where], clip_low=0.2, clip_high=0.2, dual_clip=3.0
    )
    lower = found.capped.double().mean()
    assert lower > 0.01
    compare(
        "clipped fraction", "verl vanilla", found.clipped.double().mean() - lower, theirs["actor/pg_clipfrac"]
    )
    compare("dual-clipped fraction", "verl vanilla", lower, theirs["actor/pg_clipfrac_lower"])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("clip", [0.1, 0.5])
def test_value_loss_and_its_gradient(compare, seed, clip):
    case = make_case(seed)
    ours_in, theirs_in = (case.values.clone().requires_grad_() for _ in range(2))
    old, returns, where = case.values + 0.3 * case.old, case.advantages, case.mask.bool()
    theirs, clipped = core.compute_value_loss(theirs_in, returns, old, case.mask, clip)
    losses, held = compute_value_loss(ours_in[where], returns[where], old[where], clip=clip)
    found = losses.mean()
    found.backward()
    theirs.backward()
    compare("value loss", "verl compute_value_loss", found.detach(), theirs.detach())
    compare("value loss gradient", "verl compute_value_loss", ours_in.grad, theirs_in.grad)
    assert float(held.double().mean()) == pytest.approx(float(clipped), abs=0.02)  # a tie may fall either way


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3+"])
def test_kl_estimates_and_their_gradients(compare, estimator):
    case = make_case(1)
    ours_in, theirs_in = (case.logprobs.clone().requires_grad_() for _ in range(2))
    found = compute_kl(ours_in, case.reference, estimator)
    theirs = core.kl_penalty(theirs_in, case.reference, estimator)
    found.sum().backward()
    theirs.sum().backward()
    compare(f"kl {estimator}", "verl kl_penalty", found.detach(), theirs.detach())
    compare(f"kl {estimator} gradient", "verl kl_penalty", ours_in.grad, theirs_in.grad)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(("mode", "threshold"), [("truncate", 1.5), ("mask", "0.6_1.5")])
def test_correction_of_the_mismatch(compare, seed, level, mode, threshold):
    case = make_case(seed)
    theirs, _ = corrections.compute_rollout_correction_weights(
        case.old - case.behavior, case.mask, rollout_is=level, rollout_is_threshold=threshold
    )
    config = CorrectionConfig(mode=mode, level=level, cap=1.5, floor=0.6)
    weights, _ = compute_correction(case.flat(case.old), case.flat(case.behavior), case.episode, config)
    compare(
        f"correction {mode}, {level}", "verl compute_rollout_correction_weights", weights, case.flat(theirs)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_diagnostics_of_the_mismatch(compare, seed):
    case = make_case(seed)
    theirs = corrections.compute_offpolicy_metrics(case.old, case.behavior, case.mask)
    found = describe_mismatch(case.flat(case.old), case.flat(case.behavior), case.episode)
    shared = [name for name in theirs if f"rollout_corr/{name}" in found]
    assert len(shared) == 7
    for name in shared:
        compare(
            f"rollout_corr/{name}",
            "verl compute_offpolicy_metrics",
            found[f"rollout_corr/{name}"],
            theirs[name],
        )


def test_where_we_differ_on_purpose():
    """Singleton groups, equal large rewards and masked NaNs: what verl gives, and what we give."""
    mask = torch.ones(6, 1, dtype=torch.float32)
    rewards = torch.full((6, 1), 10000.1)
    theirs, _ = core.compute_grpo_outcome_advantage(rewards.clone(), mask, np.zeros(6, np.int64))
    assert float(theirs.abs().max()) > 0.5  # equal rewards, advantage -0.9
    case = make_case(0, rows=6, group_size=6)
    equal = case.input()
    object.__setattr__(equal, "rewards", np.full(6, 10000.1, np.float32).astype(np.float64))
    assert not ADVANTAGES.find("group")(equal, AlgorithmConfig()).advantages.any()
    alone, _ = core.compute_grpo_outcome_advantage(
        torch.tensor([[0.7]]), torch.ones(1, 1), np.zeros(1, np.int64)
    )
    assert alone.item() == pytest.approx(0.7, abs=1e-5)  # a group of one gets its raw reward; we drop it
    assert torch.allclose(
        whiten(case.values, case.mask)[case.mask.bool()].mean(), torch.zeros(()).double(), atol=1e-6
    )


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_example_of_an_advantage_of_ones_own(compare, seed):
    case = make_case(seed)
    theirs, _ = core.compute_opo_outcome_advantage(case.token_rewards.clone(), case.mask, case.groups)
    found = ours(case, "own_algorithm:opo")
    compare("own_algorithm:opo", "verl compute_opo_outcome_advantage", found.advantages, case.flat(theirs))


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_example_of_a_loss_of_ones_own(compare, seed):
    case = make_case(seed, move=0.6)
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    logprobs = case.logprobs.clone().requires_grad_()
    theirs, _ = core.get_policy_loss_fn("sapo")(case.old, logprobs, case.advantages, case.mask, config=config)
    theirs.backward()
    options = {"tau_pos": config.tau_pos, "tau_neg": config.tau_neg}
    parts = AlgorithmConfig(loss="own_algorithm:sapo", options=options)
    found, gradient = case.loss(parts, "seq_mean_token_mean")
    compare("own_algorithm:sapo loss", "verl sapo", found, theirs.detach())
    compare("own_algorithm:sapo gradient", "verl sapo", gradient, logprobs.grad)
