"""One optimizer step through the public face of the learner: its loss, and the gradient by parameter."""

from __future__ import annotations

import functools

import torch
from training_cases import tiny_model

from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig, ConsistencyConfig, OptimizerConfig
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.learner import Auxiliary, Learner
from hyperrl.train.models import pack_attention

AGGREGATIONS = [
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    "seq_mean_token_sum_norm",
    "group_mean",
]
LOSSES = ["clipped", "gspo", "cispo", "policy_gradient"]
# The sampler's logprobs of the hand-made episodes are far from the model's: ratios and weights away from 1.
ADDITIONS = {
    "behavior": {"old_logprobs": "behavior", "dual_clip": 3.0},
    "kl and entropy": {
        "old_logprobs": "behavior",
        "kl": {"place": "loss", "estimator": "k3+", "coef": 0.1},
        "entropy_coef": 0.01,
    },
    "token mask": {"correction": {"mode": "mask", "floor": 0.05, "cap": 2.0}},
    "sequence truncation, kl and entropy": {
        "correction": {"mode": "truncate", "level": "sequence"},
        "kl": {"place": "loss", "estimator": "k2", "coef": 0.1},
        "entropy_coef": 0.01,
    },
    "kl in the reward": {"old_logprobs": "behavior", "kl": {"place": "reward", "coef": 0.5}},
}
TOLERANCE = 1e-6  # the model's own norms and softmax are float32, whatever its weights


@functools.cache
def models():
    """A policy and a reference that read padded and packed segments."""
    return pack_attention(tiny_model(torch.float64)), pack_attention(tiny_model(torch.float64, seed=1))


class Update:
    """What one optimizer step sees: the loss, and the gradient by parameter."""

    def __init__(self, batch, config):
        model, reference = models()
        self._names = {id(p): name for name, p in model.named_parameters()}
        self.gradient = {}
        learner = Learner(
            model,
            algorithm=config,
            # too small to move a float64
            optimizer=OptimizerConfig(lr=1e-300, clip_norm=1e9),
            gate=ConsistencyGate(ConsistencyConfig(mode="off"), dtype=torch.float64),
            auxiliary=Auxiliary(reference=reference),
        )
        hooks = [p.register_post_accumulate_grad_hook(self._keep) for p in model.parameters()]
        try:
            self.loss = learner.step(batch, version=0)["actor/loss"]
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def largest(self):
        return max(float(value.abs().max()) for value in self.gradient.values())

    def _keep(self, parameter):
        self.gradient[self._names[id(parameter)]] = parameter.grad.clone()


def prepare(groups, config, **changes):
    config = config.model_copy(update=changes)
    return Algorithm(config, seed=5, max_tokens=16).prepare(groups)


def make_config(loss, aggregation, addition, **parts):
    return AlgorithmConfig.model_validate(
        {
            "loss": loss,
            "aggregation": aggregation,
            "clip_low": 0.7,
            "clip_high": 0.5,
            "microbatch_tokens": 10**6,
            **ADDITIONS[addition],
            **parts,
        }
    )
