"""Options of supervised learning: what is learned from, how long, how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from hyperrl.train.config_types import Count, Decay, Positive, Real, Section, UserPath, Whole

__all__ = ["SftConfig"]


class SftConfig(Section):
    """Supervised learning before reinforcement learning (``hyperrl sft``).

    Learns from conversations (``data``), from episodes that were played (``from_store``), or, where neither
    is given, from the environment's own gold answers.
    """

    data: UserPath | None = None
    """Conversations: a .jsonl or .parquet file with messages, or a folder of such files."""
    messages_key: str = "messages"
    """Field of a row with the messages."""
    tools_key: str = "tools"
    """Field of a row with the tools; a row may lack it."""
    enable_thinking_key: str = "enable_thinking"
    """Field of a row with the template's option ``enable_thinking``; a row may lack it."""
    history: Literal["rollout", "template"] = "rollout"
    """What stands before an assistant message: the earlier ones exactly as they were said, as in our
    rollouts; or as the template renders them for every request, often without their reasoning."""
    from_store: UserPath | None = None
    """Trajectories to distil: a store, or the folder of a run with one."""
    select: Literal["best", "all"] = "best"
    """Which scored episodes of the store: the best of each group (the first of equals), or all."""
    min_reward: Real | None = None
    """Episodes of the store with less are left out; none takes any."""
    max_length: Whole = 0
    """Tokens of the longest conversation; longer ones are left out whole and counted. 0 takes the
    model's context."""
    validation: Decay = 0.0
    """Share of the conversations that is held out, to measure the loss on."""
    validation_every: Whole = 0
    """Steps between measurements of the held-out loss; 0 measures before and after."""
    examples: Count = 2048
    """Gold conversations that are played first and then drawn from."""
    epochs: Whole = 0
    """Passes over the conversations; 0 makes ``steps`` steps."""
    steps: Count = 100
    """Optimizer steps, where ``epochs`` is 0."""
    batch_size: Count = 64
    """Conversations an optimizer step."""
    lr: Positive = 1e-3
    """Learning rate, decayed to a tenth along a cosine."""
    clip_norm: Positive = 1.0
    """Largest gradient norm."""
    start: UserPath = Path("models/start")
    """Model directory that learning begins from; the result is written to ``model.path``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.data is not None and self.from_store is not None:
            raise ValueError("sft.data and sft.from_store are both given; learn from one after the other")
        return self
