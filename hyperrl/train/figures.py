"""The figures of an evaluation: several samples of each task, scored or not, in numbers.

An episode without a reward (it failed, or a term is unscored) is counted by its cause and is part of
no mean: it is never taken for a wrong answer.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hyperrl.causes import count_causes
from hyperrl.train.estimates import Estimate, compute_mean, compute_rate, estimate_pass_at_k
from hyperrl.trajectory import GroupId, StopReason, Trajectory

__all__ = ["EvalFigures", "compute_figures", "unscored_cause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFigures:
    """What an evaluation found.

    Attributes:
        episodes: episodes that were played.
        unscored: of these, the ones without a reward, by cause.
        causes: why episodes came out as they did, by cause of :mod:`hyperrl.causes`.
        success: avg@K, mean over tasks of the share of scored samples that succeeded.
        pass_at: pass@k by k, over the tasks with at least k scored samples.
        reward: mean over tasks of the mean reward of their scored samples.
        truncated: episodes that were cut, by reason.
        clipped: episodes with an action that ran into its token limit.
        turns: mean number of turns of an episode; NaN if there is none.
        prompt_tokens, completion_tokens: tokens read and sampled, all turns together: ours, or what the
            endpoint reports. A turn's whole prompt counts at an endpoint, only what is new here.
        tool_calls: tool calls by status.
        success_by_task: share of the scored samples that succeeded, by the ``group_id`` of the task.
    """

    episodes: int
    unscored: Mapping[str, int]
    causes: Mapping[str, int]
    success: Estimate
    pass_at: Mapping[int, Estimate]
    reward: Estimate
    truncated: Mapping[str, int]
    clipped: int
    turns: float
    prompt_tokens: int
    completion_tokens: int
    tool_calls: Mapping[str, int]
    success_by_task: Mapping[GroupId, float] = field(repr=False)

    @property
    def scored(self) -> int:
        """Episodes with a reward."""
        return self.episodes - sum(self.unscored.values())

    def metrics(self) -> dict[str, float]:
        """Return the metrics of ``train/metrics.py`` that an evaluation gives."""
        values: dict[str, float] = {
            **_interval("eval/success", "", self.success),
            **_interval("eval/reward", "", self.reward),
            "eval/tasks": self.success.tasks,
            "eval/episodes": self.episodes,
            "eval/unscored": self.episodes - self.scored,
            "eval/clipped": self.clipped,
            "eval/turns": self.turns,
            "eval/prompt_tokens": self.prompt_tokens,
            "eval/completion_tokens": self.completion_tokens,
        }
        for k, estimate in self.pass_at.items():
            values |= _interval("eval/pass_at", f"/{k}", estimate)
        for name in ("unscored", "causes", "truncated", "tool_calls"):
            counts: Mapping[str, int] = getattr(self, name)
            values |= {f"eval/{name}/{kind}": count for kind, count in counts.items()}
        return {name: float(value) for name, value in values.items()}


def compute_figures(
    trajectories: Iterable[Trajectory], *, threshold: float, ks: Sequence[int] = (1,)
) -> EvalFigures:
    """Return the figures of played episodes; those of one task share a ``group_id``.

    Args:
        trajectories: every episode, scored or not.
        threshold: reward from which an episode counts as a success.
        ks: for which k pass@k is wanted.
    """
    played = list(trajectories)
    rewards: dict[GroupId, list[float]] = defaultdict(list)
    for trajectory in played:
        if trajectory.usable and trajectory.reward is not None:
            rewards[trajectory.group_id].append(trajectory.reward)
    outcomes = {task: [reward >= threshold for reward in found] for task, found in rewards.items()}
    shares = {task: math.fsum(found) / len(found) for task, found in outcomes.items()}
    unscored = [cause for cause in map(unscored_cause, played) if cause]
    cut = [str(t.truncation_reason) for t in played if t.truncation_reason is not None]
    records = [record for t in played for record in t.tool_records]
    turns = [len(t.columns) for t in played]
    return EvalFigures(
        episodes=len(played),
        unscored=_count(unscored),
        causes=count_causes(played, success=threshold),
        success=compute_rate(list(shares.values())),
        pass_at={k: _pass_at(list(outcomes.values()), k) for k in ks},
        reward=compute_mean([math.fsum(found) / len(found) for found in rewards.values()]),
        truncated=_count(cut),
        clipped=sum(StopReason.LENGTH in t.columns.stop_reasons for t in played),
        turns=sum(turns) / len(turns) if turns else math.nan,
        prompt_tokens=_tokens(played, "context_tokens", "endpoint_prompt_tokens"),
        completion_tokens=_tokens(played, "action_tokens", "endpoint_completion_tokens"),
        tool_calls=_count([record.status for record in records]),
        success_by_task=shares,
    )


def unscored_cause(trajectory: Trajectory) -> str:
    """Return why an episode has no reward that counts; empty if it has one.

    ``excluded`` where a reward says that it does not count; the kind of its failure; the kind of the first
    unscored term; ``no_reward`` where no term counts.
    """
    if trajectory.usable:
        return ""
    if trajectory.excluded is not None:
        return "excluded"
    if trajectory.failure is not None and trajectory.failure.exclude:
        return trajectory.failure.kind
    errors = [term.error.kind for term in trajectory.reward_terms if term.weight and term.error is not None]
    return errors[0] if errors else "no_reward"


def _pass_at(outcomes: Sequence[Sequence[bool]], k: int) -> Estimate:
    return compute_rate([estimate_pass_at_k(len(o), sum(o), k) for o in outcomes if len(o) >= k])


def _interval(name: str, suffix: str, estimate: Estimate) -> dict[str, float]:
    return {
        f"{name}{suffix}": estimate.mean,
        f"{name}_low{suffix}": estimate.low,
        f"{name}_high{suffix}": estimate.high,
    }


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _tokens(trajectories: Sequence[Trajectory], *names: str) -> int:
    return int(sum(t.metrics.get(name, 0) for t in trajectories for name in names))
