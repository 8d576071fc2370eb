"""Where a trainer's trajectories come from, and who is told what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hyperrl.train.evaluation import Evaluation
from hyperrl.trajectory import Group

__all__ = ["Evaluator", "RunObserver", "TrajectorySource"]


class TrajectorySource(Protocol):
    """Plays or replays groups of episodes; called from the trainer's thread only."""

    def next_batch(self, *, version: int, size: int) -> Sequence[Group]:
        """Return the next ``size`` groups, sampled from policy ``version``.

        Raises:
            RolloutError: no episode of the batch could be played.
        """
        ...


class Evaluator(Protocol):
    """Plays held-out tasks with the published policy."""

    def evaluate(self, *, version: int, iteration: int) -> Evaluation:
        """Return the held-out result of policy ``version``, with ``iteration`` iterations behind it."""
        ...


class RunObserver(Protocol):
    """Keeps and shows what a run does. Errors here end the run: what is not kept is lost."""

    def on_batch(self, iteration: int, groups: Sequence[Group]) -> None:
        """Keep the trajectories of an iteration, before they are learned from."""
        ...

    def on_iteration(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Keep the metrics of a finished iteration."""
        ...

    def on_evaluation(self, iteration: int, evaluation: Evaluation, *, seconds: float) -> None:
        """Keep a held-out evaluation, which took ``seconds``; iteration 0 stands before the first update."""
        ...
