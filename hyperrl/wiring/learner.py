"""The learner of a run: the policy, its reference and its critic, from a config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperrl.train.config import AlgorithmConfig, ModelConfig, TrainConfig
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.critic import ValueLearner, ValueModel
from hyperrl.train.device import resolve_device, resolve_dtype
from hyperrl.train.learner import Auxiliary, Learner
from hyperrl.train.models import checkpoint_layers, load_model, pack_attention

__all__ = ["load_learned", "make_learner", "resolve_packing"]


def make_learner(config: TrainConfig) -> Learner:
    """Return a learner of ``config``; reads the models.

    Raises:
        ConfigError, ModelError: a model cannot be read, or does not fit the config.
    """
    algorithm = resolve_packing(config)

    def load(path: Path) -> Any:
        model = load_learned(config.model, path)
        return pack_attention(model) if algorithm.packing == "packed" else model

    return Learner(
        load(config.model.path),
        auxiliary=_make_auxiliary(config, load),
        algorithm=algorithm,
        optimizer=config.optimizer,
        gate=ConsistencyGate(config.consistency, dtype=resolve_dtype(config.model.dtype)),
        max_staleness=config.sampler.max_staleness,
    )


def resolve_packing(config: TrainConfig) -> AlgorithmConfig:
    """Return the algorithm of a config with ``packing`` decided for its device."""
    algorithm = config.algorithm
    if algorithm.packing != "auto":
        return algorithm
    packing = "padded" if resolve_device(config.model.device).type == "cpu" else "packed"
    return algorithm.model_copy(update={"packing": packing})


def load_learned(config: ModelConfig, path: Path) -> Any:
    """Load a model that is learned from or with, as ``config`` says."""
    model = load_model(
        path,
        dtype=resolve_dtype(config.dtype),
        device=resolve_device(config.device),
        attention=config.attention,
    )
    return checkpoint_layers(model) if config.gradient_checkpointing else model


def _make_auxiliary(config: TrainConfig, load: Callable[[Path], Any]) -> Auxiliary:
    reference = critic = None
    if config.algorithm.kl.place != "none":
        reference = load(config.reference.path or config.model.path)
    if config.algorithm.needs_critic:
        critic = ValueLearner(
            ValueModel(load(config.critic.path or config.model.path)),
            config.critic,
            config.optimizer,
            microbatch_tokens=config.algorithm.microbatch_tokens,
        )
    return Auxiliary(reference, critic, config.critic.warmup if critic is not None else 0)
