"""What an update optimises: algorithms by name, each a preset of parts.

``algorithm.name`` chooses values for the parts that the config does not give; the resolved config of a
run shows every part. The parts are the same for all names, so any mixture can be written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from hyperrl.train.config_types import Count, Fraction, NotNegative, Positive, Section, Whole

__all__ = ["PRESETS", "AlgorithmConfig", "CorrectionConfig", "KlConfig", "OverlongConfig"]

AlgorithmName = Literal[
    "grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce", "reinforce_pp", "ppo"
]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {},
    "dr_grpo": {"scale": "none", "aggregation": "seq_mean_token_sum_norm"},
    "dapo": {"clip_high": 0.28, "aggregation": "token_mean", "dynamic_sampling": 3},
    "gspo": {
        "loss": "gspo",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "aggregation": "seq_mean_token_mean",
    },
    "cispo": {"loss": "cispo", "clip_low": 1.0, "clip_high": 4.0},
    "rloo": {
        "loss": "policy_gradient",
        "scale": "none",
        "leave_one_out": True,
        "aggregation": "seq_mean_token_sum",
    },
    "reinforce": {
        "advantage": "return",
        "loss": "policy_gradient",
        "aggregation": "seq_mean_token_sum",
    },
    "reinforce_pp": {"advantage": "reinforce_pp"},
    "ppo": {"advantage": "gae", "whiten": True, "epochs": 2},
}
"""What each name means, where it differs from the defaults (which are GRPO's)."""

_COMPARE_GROUPS = ("group", "reinforce_pp_baseline")
_COMPARE_NO_GROUPS = ("batch", "return", "reinforce_pp", "gae")


class KlConfig(Section):
    """Distance to a frozen reference policy."""

    place: Literal["none", "loss", "reward"] = "none"
    """``loss`` adds ``coef * KL`` to every token's loss; ``reward`` takes it off every token's reward."""
    estimator: Literal["k1", "k2", "k3", "k3+"] = "k3"
    """Estimate at a token (Schulman 2020); ``k3+`` has the value of k3 and the gradient of k2. Not given, it
    is k3 in the loss and k1 in the reward, where only k1 has the gradient of the KL."""
    coef: NotNegative = 1e-3
    """What the estimate is multiplied with."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("place") != "reward":
            return data
        return {"estimator": "k1", **data}


class CorrectionConfig(Section):
    """Importance weights for what the sampler's logprobs differ from the learner's."""

    mode: Literal["off", "truncate", "mask"] = "off"
    """``truncate`` weighs a token with min(r, cap); ``mask`` with r between floor and cap, else 0."""
    level: Literal["token", "sequence"] = "token"
    """r of the token, or the product over its sequence."""
    cap: Positive = 2.0
    """Largest weight."""
    floor: NotNegative = 0.5
    """Smallest weight that ``mask`` keeps."""


class OverlongConfig(Section):
    """A soft penalty for episodes that come close to the token limit (DAPO, Yu et al. 2025, eq. 13)."""

    buffer: Whole = 0
    """Sampled tokens before ``rollout.max_tokens`` over which the penalty rises linearly; 0 is off."""
    penalty: NotNegative = 1.0
    """What is taken off the reward at the limit."""


class AlgorithmConfig(Section):
    """What the update optimises."""

    name: AlgorithmName = "grpo"
    """The algorithm: a preset of the parts below that are not given."""
    advantage: str = "group"
    """Estimator of advantages: a registered name, or your own function as ``module:function``."""
    loss: str = "clipped"
    """Policy loss of a token: a registered name, or your own function as ``module:function``."""
    scale: Literal["std", "none"] = "std"
    """Divide group advantages by the group's standard deviation, or not."""
    leave_one_out: bool = False
    """Compare an episode with the mean of the others of its group, without itself."""
    critic: bool = False
    """Train a critic and give its values to the advantage; ``gae`` always has one."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Numbers and names for your own advantage or loss, which reads them from ``config.options``."""
    whiten: bool = False
    """Give GAE's advantages mean 0 and variance 1 over the tokens of the batch."""
    gamma: Fraction = 1.0
    """Discount from one sampled token to the next."""
    lam: Fraction = 1.0
    """Lambda of GAE: 1 trusts rewards, 0 the critic."""
    clip_low: Fraction = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: Positive = 0.2
    """The ratio is clipped above at 1 + clip_high."""
    dual_clip: NotNegative = 0.0
    """Largest ratio that counts where the advantage is negative (above 1; verl uses 3); 0 is no limit."""
    aggregation: Literal[
        "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "group_mean"
    ] = "token_mean"
    """How token losses become one number: fixed weights over the whole minibatch."""
    horizon: Whole = 0
    """Constant that ``seq_mean_token_sum_norm`` divides by; 0 takes ``rollout.max_tokens``."""
    entropy_coef: NotNegative = 0.0
    """Bonus for entropy: the loss of a token falls by ``entropy_coef`` times its entropy in nats."""
    kl: KlConfig = Field(default_factory=KlConfig)
    """Distance to a frozen reference policy."""
    correction: CorrectionConfig = Field(default_factory=CorrectionConfig)
    """Correction of the mismatch between sampler and learner."""
    overlong: OverlongConfig = Field(default_factory=OverlongConfig)
    """Penalty for episodes that come close to the token limit."""
    dynamic_sampling: Whole = 0
    """Further batches that may be played until enough groups have unequal rewards; 0 keeps all groups."""
    smallest_group: Count = 2
    """Groups with fewer usable episodes are dropped. Not given, it is 1 for estimators of ours that do not
    compare the episodes of a group; those that do need 2."""
    branches: Literal["refuse", "drop"] = "refuse"
    """What an estimator with a critic, which follows the main path, does with an episode's side branches."""
    old_logprobs: Literal["recompute", "behavior"] = "recompute"
    """Denominator of the ratio: the learner's own logprobs, or the sampler's."""
    epochs: Count = 1
    """Passes over the data of an iteration."""
    minibatches: Count = 1
    """Optimizer steps of one pass."""
    microbatch_tokens: Count = 16384
    """Padded tokens of one forward-backward; the result does not depend on it."""
    packing: Literal["auto", "padded", "packed"] = "auto"
    """Episodes of a microbatch in rows with padding, or side by side without it; ``auto`` pads on the CPU and
    packs elsewhere."""
    skip_limit: Count = 10
    """Updates in a row that may be left out because loss or gradient were not finite; then the run stops. It
    holds for supervised learning, too."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Let the name give the parts that the config does not, and the advantage what it needs."""
        if not isinstance(data, Mapping):
            return data
        filled = {**PRESETS.get(str(data.get("name", "grpo")), {}), **data}
        if filled.get("advantage") == "gae":
            filled.setdefault("critic", True)
        if filled.get("advantage") in _COMPARE_NO_GROUPS:
            filled.setdefault("smallest_group", 1)
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dual_clip and self.dual_clip <= 1:
            raise ValueError(f"algorithm.dual_clip must be above 1, or 0 for none; it is {self.dual_clip}")
        if self.correction.mode == "mask" and self.correction.floor > self.correction.cap:
            raise ValueError("algorithm.correction.floor is above algorithm.correction.cap")
        if self.correction.mode != "off" and self.old_logprobs == "behavior":
            raise ValueError(
                "algorithm.correction would count the mismatch twice: with old_logprobs: behavior the ratio"
                " begins at the sampler's logprobs already; take old_logprobs: recompute, or no correction"
            )
        if self.advantage in _COMPARE_GROUPS and self.smallest_group < 2:
            raise ValueError(
                f"algorithm.smallest_group is {self.smallest_group}, but {self.advantage!r} compares the"
                " episodes of a group; give it at least 2"
            )
        if self.advantage == "gae" and not self.critic:
            raise ValueError("algorithm.critic is false, but the advantage 'gae' needs a critic's values")
        return self

    @property
    def follows_main_path(self) -> bool:
        """Whether the estimator walks along the tokens of an episode, so that branches have no place."""
        return self.critic

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator asks for values."""
        return self.critic

    @property
    def needs_scores(self) -> bool:
        """Whether advantages can only be estimated after the batch has been scored."""
        return self.needs_critic or self.kl.place == "reward"

    @property
    def learns_from_tokens_alone(self) -> bool:
        """Whether a pass can learn from a minibatch before the rest of the batch has been scored."""
        recomputes = self.old_logprobs == "recompute"
        return (
            recomputes and not self.needs_scores and self.kl.place == "none" and self.correction.mode == "off"
        )

    @property
    def learns_without_advantage(self) -> bool:
        """Whether tokens whose advantage is 0 have a gradient all the same."""
        return self.kl.place == "loss" or self.entropy_coef > 0
