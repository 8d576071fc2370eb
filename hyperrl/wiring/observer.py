"""Keeps and shows what a training run does."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from hyperrl.store import TrajectoryWriter
from hyperrl.train.evaluation import Evaluation
from hyperrl.train.trackers import JsonlTracker, MetricsLogger
from hyperrl.trajectory import Group
from hyperrl.wiring.display import Display
from hyperrl.wiring.reward_curve import draw_reward_curve
from hyperrl.wiring.run_directory import RunDirectory

__all__ = ["RunObserver"]

CURVE_EVERY_S = 10.0


class RunObserver:
    """Writes trajectories, metrics and the reward curve of a run, and shows its progress.

    Trajectories are on disk before they are learned from.

    Args:
        run: the run's folder.
        display: shows the progress.
        iterations: how many there will be.
    """

    def __init__(self, run: RunDirectory, display: Display, *, iterations: int) -> None:
        self._run = run
        self._display = display
        self._iterations = iterations
        self._writer = TrajectoryWriter(run.trajectories)
        self._logger = MetricsLogger([JsonlTracker(run.metrics)])
        self._rewards: list[float] = []
        self._evaluations: list[tuple[int, Evaluation]] = []
        self._text = ""
        self._drawn = -math.inf

    def on_batch(self, iteration: int, groups: Sequence[Group]) -> None:
        self._writer.write_part((t for group in groups for t in group), iteration=iteration)

    def on_iteration(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._logger.log(iteration, metrics)
        reward = metrics.get("critic/rewards/mean", math.nan)
        self._rewards.append(reward)
        self._text = f"reward {reward:.3f}"
        self._display.advance(1, self._text)
        if time.monotonic() - self._drawn > CURVE_EVERY_S:
            self._draw()

    def on_evaluation(self, iteration: int, evaluation: Evaluation) -> None:
        self._logger.log(iteration, evaluation.metrics())
        self._evaluations.append((iteration, evaluation))
        sampled, greedy = evaluation.sampled, evaluation.greedy
        self._display.note(
            f"iteration {iteration}: held-out success {sampled.rate:.3f} sampled,"
            f" {greedy.rate:.3f} greedy ({sampled.scored} tasks)"
        )
        if sampled.unscored or greedy.unscored:
            self._display.note(f"  {sampled.unscored + greedy.unscored} episodes could not be scored")
        if iteration < self._iterations:
            self._display.start("training", self._iterations)
            self._display.advance(iteration, self._text)

    def close(self) -> None:
        """Draw the final curve and let go of the files."""
        self._logger.close()
        if self._evaluations:
            self._draw()

    def _draw(self) -> None:
        draw_reward_curve(self._run.reward_curve, self._rewards, self._evaluations)
        self._drawn = time.monotonic()
