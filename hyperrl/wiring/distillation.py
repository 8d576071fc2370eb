"""Distillation: what a policy once sampled, and scored well with, as something to learn from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hyperrl.agents.rendering import load_renderer
from hyperrl.errors import DataError
from hyperrl.store import read_tokenizers, read_trajectories
from hyperrl.train.config import SftConfig, TrainConfig
from hyperrl.train.models import load_model_info
from hyperrl.trajectory import NOT_SAMPLED, GroupId, Trajectory, Turn
from hyperrl.wiring.lessons import Lessons, longest_path

__all__ = ["as_lesson", "read_episodes"]


def read_episodes(config: TrainConfig) -> Lessons:
    """Choose episodes of ``sft.from_store`` that the model ``sft.start`` can learn from.

    Their sampled ids are learned exactly, without decoding and encoding. Unscored and excluded episodes are
    never taken, nor those without tokens (played by an endpoint).

    Raises:
        DataError: the store's token ids are of another vocabulary, or no episode is left.
        ModelError: the model directory cannot be used.
        StoreError: the store cannot be read.
    """
    sft = config.sft
    if sft.from_store is None:
        raise DataError("sft.from_store names no trajectories")
    inner = sft.from_store / "trajectories"
    store = inner if inner.is_dir() else sft.from_store
    info = load_model_info(sft.start)
    _check_vocabulary(store, sft.start)
    limit = sft.max_length or info.context_length
    left_out: Counter[str] = Counter()
    eligible: list[Trajectory] = []
    for trajectory in read_trajectories(store):
        lesson = as_lesson(trajectory)
        if reason := _why_not(lesson, sft, limit):
            left_out[reason] += 1
        else:
            _check_ids(lesson, info.vocab_size, sft.start)
            eligible.append(lesson)
    chosen = eligible if sft.select == "all" else list(_best(eligible))
    if len(chosen) < len(eligible):
        left_out["not the best of their group"] = len(eligible) - len(chosen)
    return Lessons(source=str(store), trajectories=chosen, left_out=dict(left_out)).refuse_nothing()


def as_lesson(trajectory: Trajectory) -> Trajectory:
    """Return an episode whose main seat's task turns are gold: to be learned at temperature 1.

    Turns of other seats and side turns are only read.
    """
    path = trajectory.main_path
    seat = trajectory.turns[path[-1]].policy if path else ""
    return dataclasses.replace(trajectory, turns=tuple(_gold(turn, seat) for turn in trajectory.turns))


def _gold(turn: Turn, seat: str) -> Turn:
    learned = turn.use == "train" and turn.policy == seat and len(turn.action_ids) > 0
    return dataclasses.replace(
        turn,
        behavior_logprobs=None,
        policy_versions=np.full(len(turn.action_ids), NOT_SAMPLED, np.int32),
        temperature=1.0,
        use="train" if learned else "context",
    )


def _why_not(lesson: Trajectory, sft: SftConfig, limit: int) -> str:
    if not lesson.usable or lesson.reward is None:
        return "unscored or excluded"
    if sft.min_reward is not None and lesson.reward < sft.min_reward:
        return f"with a reward below {sft.min_reward:g}"
    if not any(turn.use == "train" for turn in lesson.turns):
        return "without sampled tokens"
    return f"over {limit} tokens" if longest_path(lesson) > limit else ""


def _best(lessons: list[Trajectory]) -> Iterator[Trajectory]:
    """Yield the best of each group, the first of equals, in the order of the groups."""
    groups: dict[tuple[str, GroupId], Trajectory] = {}
    for lesson in lessons:
        key = (lesson.run_id, lesson.group_id)
        best = groups.get(key)
        if best is None or (lesson.reward or 0.0) > (best.reward or 0.0):
            groups[key] = lesson
    yield from groups.values()


def _check_vocabulary(store: Path, model: Path) -> None:
    own = load_renderer(model).tokenizer.vocabulary_digest
    strangers = sorted(read_tokenizers(store) - {own})
    if strangers:
        raise DataError(
            f"the token ids of {store} are of another vocabulary ({strangers[0][:12]}) than those of the"
            f" model {model} ({own[:12]}): they would mean other texts. Distil into a model with the"
            " tokenizer of the one that played, or write the conversations down and learn from sft.data"
        )


def _check_ids(lesson: Trajectory, vocab_size: int, model: Path) -> None:
    largest = max(
        int(ids.max(initial=0)) for turn in lesson.turns for ids in (turn.context_ids, turn.action_ids)
    )
    if largest >= vocab_size:
        raise DataError(
            f"the episode of task {lesson.task_id!r} holds the token id {largest}, but the model {model} has"
            f" only {vocab_size}: another model with another tokenizer played it"
        )
