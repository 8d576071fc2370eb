"""What supervised learning learns from, and what was left out of it and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hyperrl.agents.demonstrations import (
    Demonstration,
    DemonstrationKeys,
    make_demonstration,
    read_demonstrations,
)
from hyperrl.agents.rendering import TemplateRenderer, load_renderer
from hyperrl.errors import DataError, SamplingError, TemplateError, ToolDefinitionError
from hyperrl.train.config import TrainConfig
from hyperrl.train.models import load_model_info
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.display import Display

__all__ = ["Lessons", "longest_path", "read_lessons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Conversations to learn from.

    Attributes:
        source: where they come from, for people.
        trajectories: what is learned from: gold ``train`` turns.
        left_out: conversations that are not, by reason.
        examples: the first case of a reason, where it needs words.
    """

    source: str
    trajectories: Sequence[Trajectory]
    left_out: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """Say how many there are and what was left out."""
        text = f"{len(self.trajectories)} conversations of {self.source}"
        if not self.left_out:
            return text
        reasons = [
            f"{count} {reason}"
            + (f" (the first: {self.examples[reason]})" if reason in self.examples else "")
            for reason, count in self.left_out.items()
        ]
        return f"{text}; left out: {', '.join(reasons)}"

    def refuse_nothing(self) -> Lessons:
        """Return the lessons. Raises DataError where there are none."""
        if not self.trajectories:
            raise DataError(f"nothing to learn from: {self.describe()}")
        return self


def read_lessons(config: TrainConfig, display: Display) -> Lessons:
    """Read and render the conversations of ``sft.data`` for the model ``sft.start``.

    A conversation that is longer than ``sft.max_length`` (or the model's context), that has no assistant
    message to learn from, or that the model's chat template refuses, is left out whole and counted.

    Raises:
        DataError: the data cannot be read, or no conversation is left.
        ModelError: the model directory or its template cannot be used.
    """
    sft = config.sft
    if sft.data is None:
        raise DataError("sft.data names no conversations")
    limit = sft.max_length or load_model_info(sft.start).context_length
    keys = DemonstrationKeys(
        messages=sft.messages_key, tools=sft.tools_key, enable_thinking=sft.enable_thinking_key
    )
    demonstrations = list(read_demonstrations(sft.data, keys))
    renderers = _Renderers(sft.start)
    kept: list[Trajectory] = []
    left_out: Counter[str] = Counter()
    examples: dict[str, str] = {}
    display.start("rendering conversations", len(demonstrations))
    for index, one in enumerate(demonstrations):
        display.advance()
        try:
            made = make_demonstration(renderers.find(one), one, history=sft.history, index=index)
        except (SamplingError, TemplateError, ToolDefinitionError) as error:
            left_out["refused"] += 1
            examples.setdefault("refused", f"{one.where}: {error}")
            continue
        if reason := _why_not(made, limit):
            left_out[reason] += 1
        else:
            kept.append(made)
    display.stop()
    return Lessons(
        source=str(sft.data), trajectories=kept, left_out=dict(left_out), examples=examples
    ).refuse_nothing()


class _Renderers:
    """The renderers of a model, by the template options that rows ask for."""

    def __init__(self, model_dir: Path) -> None:
        self._load = cache(lambda options: load_renderer(model_dir, template_options=dict(options)))
        self._load(())  # a model that cannot be rendered for is refused, not its conversations

    def find(self, demonstration: Demonstration) -> TemplateRenderer:
        options: Mapping[str, Any] = demonstration.template_options
        return self._load(tuple(sorted(options.items())))


def _why_not(trajectory: Trajectory, limit: int) -> str:
    """Return why a conversation is left out; empty where it is not."""
    if not any(turn.use == "train" for turn in trajectory.turns):
        return "without an assistant message"
    return f"over {limit} tokens" if longest_path(trajectory) > limit else ""


def longest_path(trajectory: Trajectory) -> int:
    """Return the tokens of the longest context of a trajectory, read and said."""
    ends: list[int] = []
    for turn in trajectory.turns:
        before = 0 if turn.parent is None else ends[turn.parent]
        ends.append(before + len(turn.context_ids) + len(turn.action_ids))
    return max(ends, default=0)
