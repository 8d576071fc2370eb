"""Presets against the papers' numbers, what fills itself in, and mixtures that are refused."""

from __future__ import annotations

import logging

import pytest
import yaml
from pydantic import ValidationError

from hyperrl.errors import ConfigError
from hyperrl.train.advantages import ADVANTAGES
from hyperrl.train.algorithm_config import PRESETS, AlgorithmConfig
from hyperrl.train.batch_checks import check_parts
from hyperrl.train.config import dump_config, make_config
from hyperrl.train.losses import LOSSES

PAPERS = {
    # Dr. GRPO (Liu et al. 2025): no standard deviation, no length of the answer
    "dr_grpo": {"scale": "none", "aggregation": "seq_mean_token_sum_norm", "kl.place": "none"},
    # DAPO (Yu et al. 2025, section 4.1): clip-higher 0.28, token-level loss, no KL
    "dapo": {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token_mean", "kl.place": "none"},
    # GSPO (Zheng et al. 2025, section 5.1): 3e-4 and 4e-4
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "seq_mean_token_mean", "scale": "std"},
    # CISPO: no lower bound (MiniMax-M1 2025), cap 5 (ScaleRL, Khatri et al. 2025)
    "cispo": {"clip_low": 1.0, "clip_high": 4.0, "aggregation": "token_mean"},
    # RLOO (Ahmadian et al. 2024): the others' mean, the whole answer as one action, no clipping
    "rloo": {
        "scale": "none",
        "leave_one_out": True,
        "loss": "policy_gradient",
        "aggregation": "seq_mean_token_sum",
    },
    # REINFORCE++ (Hu et al. 2025): PPO's loss, whitened returns, no groups, no critic
    "reinforce_pp": {"loss": "clipped", "clip_low": 0.2, "clip_high": 0.2, "smallest_group": 1},
    # PPO (Schulman et al. 2017): clip 0.2, several epochs
    "ppo": {"advantage": "gae", "clip_low": 0.2, "clip_high": 0.2, "epochs": 2, "critic": True},
    "grpo": {"advantage": "group", "scale": "std", "clip_low": 0.2, "clip_high": 0.2, "smallest_group": 2},
    # REINFORCE (Williams 1992): returns, nothing else
    "reinforce": {"advantage": "return", "loss": "policy_gradient", "smallest_group": 1},
}


def test_every_preset_is_compared_with_its_paper():
    assert PAPERS.keys() == PRESETS.keys()


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_has_the_papers_numbers_and_prints_them(name):
    config = make_config({"algorithm": {"name": name}})
    printed = yaml.safe_load(dump_config(config))["algorithm"]
    for part, expected in PAPERS[name].items():
        value = printed
        for key in part.split("."):
            value = value[key]
        assert value == expected, part
    assert make_config({"algorithm": printed}).algorithm == config.algorithm  # what is printed is all
    assert config.algorithm.advantage in ADVANTAGES
    assert config.algorithm.loss in LOSSES


def test_what_is_given_wins_over_the_preset():
    config = AlgorithmConfig(name="dapo", clip_high=0.3, dynamic_sampling=0)
    assert (config.clip_high, config.dynamic_sampling, config.aggregation) == (0.3, 0, "token_mean")


@pytest.mark.parametrize(
    ("advantage", "smallest"),
    [("group", 2), ("reinforce_pp_baseline", 2), ("mine:own", 2)]
    + [(name, 1) for name in ("batch", "return", "reinforce_pp", "gae")],
)
def test_groups_of_one_are_kept_only_where_nothing_compares_them(advantage, smallest):
    config = AlgorithmConfig(advantage=advantage)
    assert config.smallest_group == smallest
    assert config.critic == (advantage == "gae")
    assert AlgorithmConfig(name="ppo", advantage=advantage).smallest_group == smallest


def test_the_estimate_of_the_kl_follows_its_place():
    assert AlgorithmConfig(kl={"place": "reward"}).kl.estimator == "k1"
    assert AlgorithmConfig(kl={"place": "loss"}).kl.estimator == "k3"
    assert AlgorithmConfig(kl={"place": "reward", "estimator": "k3"}).kl.estimator == "k3"


@pytest.mark.parametrize(("place", "warned"), [("loss", True), ("reward", False)])
def test_a_kl_that_holds_nothing_back_is_warned_of(caplog, place, warned):
    config = AlgorithmConfig(kl={"place": place, "estimator": "k1"})
    with caplog.at_level(logging.WARNING):
        check_parts(config, reference=True, critic=False)
    assert ("its mean gradient is 0" in caplog.text) == warned


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ({"advantage": "group", "smallest_group": 1}, "'group' compares"),
        ({"advantage": "reinforce_pp_baseline", "smallest_group": 1}, "give it at least 2"),
        ({"correction": {"mode": "truncate"}, "old_logprobs": "behavior"}, "count the mismatch twice"),
        ({"correction": {"mode": "mask", "floor": 3.0}}, "floor is above"),
        ({"advantage": "gae", "critic": False}, "needs a critic's values"),
        ({"kl": {"coef": -0.001}}, "greater than or equal to 0"),
        ({"dual_clip": 0.9}, "must be above 1"),
        ({"name": "grpoo"}, "grpo"),
    ],
)
def test_mixtures_that_cannot_be_meant_are_refused(algorithm, message):
    with pytest.raises(ValidationError, match=message):
        AlgorithmConfig.model_validate(algorithm)


def test_a_penalty_that_the_shortest_answer_would_pay_is_refused():
    with pytest.raises(ConfigError, match=r"overlong.buffer is 9, more than the 8"):
        make_config({"rollout": {"max_tokens": 8}, "algorithm": {"overlong": {"buffer": 9}}})
