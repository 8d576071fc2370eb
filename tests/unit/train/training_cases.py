"""Small models and hand-made trajectories for the tests of training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hyperrl.train.config import AlgorithmConfig, ConsistencyConfig, OptimizerConfig
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.learner import Learner
from hyperrl.trajectory import NOT_SAMPLED, Failure, Group, RewardTerm, Trajectory, Turn

VOCABULARY = 23


def tiny_model(dtype: torch.dtype = torch.float32, *, seed: int = 0, tied: bool = True) -> Qwen3ForCausalLM:
    """A random Qwen3 of hidden size 32; its logits are spread enough for tokens to differ."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        attn_implementation="eager",
        initializer_range=0.3,
    )
    return Qwen3ForCausalLM(config).to(dtype).eval()


def turn(
    context: Sequence[int],
    action: Sequence[int],
    *,
    parent: int | None = None,
    version: int = 0,
    logprobs: Sequence[float] | None = None,
    sampled: bool = True,
    **fields: object,
) -> Turn:
    """A turn from plain lists; its behaviour logprobs are -1 unless given."""
    count = len(action)
    return Turn(
        parent=parent,
        context_ids=np.array(context, np.int32),
        action_ids=np.array(action, np.int32),
        behavior_logprobs=np.array(logprobs or [-1.0] * count, np.float32) if sampled else None,
        policy_versions=np.full(count, version if sampled else NOT_SAMPLED, np.int32),
        **fields,  # type: ignore[arg-type]
    )


def trajectory(
    turns: Sequence[Turn],
    *,
    reward: float | None = 0.0,
    group: tuple[int, int] = (0, 0),
    sample: int = 0,
    failure: Failure | None = None,
) -> Trajectory:
    """An episode of hand-made turns."""
    error = Failure(kind="reward_error", stage="reward", reason="made up") if reward is None else None
    return Trajectory(
        run_id="test",
        group_id=group,
        sample_index=sample,
        task_id=f"task-{group[1]}",
        env_id="test/Env-v0",
        turns=tuple(turns),
        reward_terms=(RewardTerm(name="score", score=reward, error=error),),
        terminated=True,
        failure=failure,
    )


def random_groups(
    seed: int, *, groups: int = 3, size: int = 4, version: int = 0, model: Qwen3ForCausalLM | None = None
) -> list[Group]:
    """Groups of one-turn and two-turn episodes of random tokens and rewards.

    With a model, the behaviour logprobs are those of the model.
    """
    rng = np.random.default_rng(seed)
    return [
        Group(
            (0, position),
            tuple(
                _random_episode(rng, (0, position), sample, version=version, model=model)
                for sample in range(size)
            ),
        )
        for position in range(groups)
    ]


def _random_episode(
    rng: np.random.Generator,
    group: tuple[int, int],
    sample: int,
    *,
    version: int,
    model: Qwen3ForCausalLM | None,
) -> Trajectory:
    turns: list[Turn] = []
    read: list[int] = []
    for index in range(int(rng.integers(1, 3))):
        context = rng.integers(0, VOCABULARY, int(rng.integers(1, 6))).tolist()
        action = rng.integers(0, VOCABULARY, int(rng.integers(1, 6))).tolist()
        read += context
        logprobs = policy_logprobs(model, read, action) if model is not None else None
        turns.append(
            turn(context, action, parent=index - 1 if index else None, version=version, logprobs=logprobs)
        )
        read += action
    return trajectory(turns, reward=float(rng.integers(0, 3)), group=group, sample=sample)


@torch.no_grad()
def policy_logprobs(
    model: Qwen3ForCausalLM, prompt: Sequence[int], action: Sequence[int], temperature: float = 1.0
) -> list[float]:
    """Logprobs of an action by the plainest forward pass: one sequence, no padding."""
    logits = model(torch.tensor([[*prompt, *action]])).logits[0] / temperature
    logprobs = torch.log_softmax(logits, -1)
    picked = [logprobs[len(prompt) + i - 1, token] for i, token in enumerate(action)]
    return [min(0.0, float(value)) for value in picked]


def make_learner(
    model: Qwen3ForCausalLM,
    *,
    gate: str = "off",
    limit: float = 0.0,
    max_staleness: int = 0,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    warmup_steps: int = 0,
    **algorithm: object,
) -> Learner:
    """A learner over a tiny model; the gate is off unless asked for."""
    return Learner(
        model,
        algorithm=AlgorithmConfig.model_validate(algorithm),
        optimizer=OptimizerConfig(lr=lr, clip_norm=1e9, weight_decay=weight_decay, warmup_steps=warmup_steps),
        gate=ConsistencyGate(
            ConsistencyConfig.model_validate({"mode": gate, "limit": limit}),
            dtype=next(model.parameters()).dtype,
        ),
        max_staleness=max_staleness,
    )
