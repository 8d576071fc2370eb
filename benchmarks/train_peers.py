"""TRL's GRPOTrainer for bench_train_step.py: its own training loop, with a clock at the step boundaries.

Between two rollout batches the loop calls back, so that other contestants can be measured in turn with it, in
the same process and under the same load.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Clock", "TrlSettings", "run_trl"]


class Clock:
    """CPU seconds of the whole process, of the stretches between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.total = 0.0
        self._began = 0.0

    def start(self) -> None:
        self._began = time.process_time()

    def stop(self) -> None:
        self.total += time.process_time() - self._began

    def take(self) -> float:
        """Return what has been counted since the last call."""
        total, self.total = self.total, 0.0
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class TrlSettings:
    """What TRL trains on.

    Attributes:
        model_dir: the policy.
        attention: attention implementation.
        prompts: one conversation for each group.
        completions: prompt and completion ids of every episode, in the order of the groups, used in every
            batch; ``None`` lets TRL generate.
        reward: of a completion's text.
        group_size: episodes of a group.
        updates: optimizer steps for one rollout batch.
        rows: episodes of one forward-backward.
        max_tokens: sampled tokens of an episode.
        rounds: rollout batches.
    """

    model_dir: Path
    attention: str
    prompts: Sequence[list[dict[str, str]]]
    completions: Sequence[tuple[list[int], list[int]]] | None
    reward: Callable[[str], float]
    group_size: int
    updates: int
    rows: int
    max_tokens: int
    rounds: int


def run_trl(settings: TrlSettings, between: Callable[[float], None], folder: Path) -> None:
    """Train, and call ``between`` after every rollout batch with the CPU seconds that it took TRL.

    With completions given, what is not the learner's is left out: asking for them, decoding them, rewards.
    """
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func
    import datasets  # noqa: PLC0415  # heavy, as the others
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    import trl  # noqa: PLC0415

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    clock = Clock()
    episodes = len(settings.prompts) * settings.group_size
    passes = episodes // settings.updates // settings.rows
    trainer = trl.GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(
            settings.model_dir, dtype=torch.float32, attn_implementation=settings.attention
        ),
        processing_class=transformers.AutoTokenizer.from_pretrained(settings.model_dir),
        reward_funcs=lambda completions, **_: [settings.reward(c[0]["content"]) for c in completions],
        train_dataset=datasets.Dataset.from_dict({"prompt": list(settings.prompts) * settings.rounds}),
        rollout_func=None if settings.completions is None else _Given(settings.completions),
        args=trl.GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            per_device_train_batch_size=settings.rows,
            gradient_accumulation_steps=passes,
            steps_per_generation=passes * settings.updates,
            num_generations=settings.group_size,
            max_completion_length=settings.max_tokens,
            max_steps=settings.rounds * settings.updates,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
        ),
    )
    if settings.completions is not None:
        for name in ("_generate", "_calculate_rewards"):
            setattr(trainer, name, _paused(clock, getattr(trainer, name)))

    class Boundaries(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
            clock.start()

        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            clock.stop()
            if state.global_step % settings.updates == 0:
                between(clock.take())

    trainer.add_callback(Boundaries())
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()


class _Given:
    """TRL's ``rollout_func``: always the same episodes."""

    def __init__(self, episodes: Sequence[tuple[list[int], list[int]]]) -> None:
        self._prompt_ids = [list(prompt) for prompt, _ in episodes]
        self._completion_ids = [list(completion) for _, completion in episodes]

    def __call__(self, prompts: Sequence[Any], _trainer: Any) -> dict[str, Any]:
        if len(prompts) != len(self._prompt_ids):
            raise ValueError(f"TRL asks for {len(prompts)} episodes, not {len(self._prompt_ids)}")
        logprobs = [[0.0] * len(ids) for ids in self._completion_ids]
        return {"prompt_ids": self._prompt_ids, "completion_ids": self._completion_ids, "logprobs": logprobs}


def _paused(clock: Clock, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        clock.stop()
        try:
            return call(*args, **kwargs)
        finally:
            clock.start()

    return wrapped
