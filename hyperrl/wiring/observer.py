"""Keeps and shows what a training run does."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence

from hyperrl.store import TrajectoryWriter
from hyperrl.train.config import TrainConfig
from hyperrl.train.evaluation import Evaluation
from hyperrl.train.trackers import JsonlTracker, MetricsLogger
from hyperrl.trajectory import Group, Trajectory
from hyperrl.wiring.display import Display
from hyperrl.wiring.reward_curve import draw_reward_curve
from hyperrl.wiring.run_directory import RunDirectory

__all__ = ["RunObserver", "describe_losses"]

CURVE_EVERY_S = 10.0
logger = logging.getLogger(__name__)


class RunObserver:
    """Writes trajectories, metrics and the reward curve of a run, and shows its progress.

    Trajectories are on disk before they are learned from.

    Args:
        run: the run's folder.
        display: shows the progress.
        config: how many iterations and episodes there will be.
        tokenizer: digest of the vocabulary that token ids are of.
    """

    def __init__(
        self, run: RunDirectory, display: Display, config: TrainConfig, *, tokenizer: str = ""
    ) -> None:
        self._run = run
        self._display = display
        self._iterations = config.iterations
        self._episodes = config.rollout.groups * config.rollout.group_size
        self._tokenizer = tokenizer
        self._writer = TrajectoryWriter(run.trajectories, tokenizer=tokenizer)
        self._logger = MetricsLogger([JsonlTracker(run.metrics)])
        self._rewards: list[float] = []
        self._evaluations: list[tuple[int, Evaluation]] = []
        self._played = 0
        self._reward = ""
        self._drawn = -math.inf

    def on_episode(self, _trajectory: Trajectory) -> None:
        """Show that a training episode has ended."""
        self._played += 1
        self._show(f"{self._played}/{self._episodes} episodes")

    def on_batch(self, iteration: int, groups: Sequence[Group]) -> None:
        self._writer.write_part((t for group in groups for t in group), iteration=iteration)
        self._played = 0
        self._show("updating")

    def on_iteration(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._logger.log(iteration, metrics)
        reward = metrics.get("critic/rewards/mean", math.nan)
        self._rewards.append(reward)
        self._reward = "no reward" if math.isnan(reward) else f"reward {reward:.3f}"
        for line in describe_losses(metrics):
            self._display.note(f"iteration {iteration}: {line}")
        self._display.advance(1, self._reward)
        if time.monotonic() - self._drawn > CURVE_EVERY_S:
            self._draw()

    def keep_evaluation(self, iteration: int, kind: str, trajectories: Sequence[Trajectory]) -> None:
        """Write the episodes of an evaluation; ``kind`` is ``sampled`` or ``greedy``."""
        writer = TrajectoryWriter(self._run.evaluations / kind, tokenizer=self._tokenizer)
        writer.write_part(trajectories, iteration=iteration)

    def on_evaluation(self, iteration: int, evaluation: Evaluation, *, seconds: float) -> None:
        self._logger.log(iteration, evaluation.metrics() | {"timing_s/testing": seconds})
        self._evaluations.append((iteration, evaluation))
        self._display.stop()
        sampled, greedy = evaluation.sampled, evaluation.greedy
        self._display.note(
            f"iteration {iteration}: held-out success {sampled.success.mean:.3f} sampled,"
            f" {greedy.success.mean:.3f} greedy ({sampled.success.tasks} tasks)"
        )
        if unscored := sampled.episodes - sampled.scored + greedy.episodes - greedy.scored:
            self._display.note(f"  {unscored} episodes could not be scored")
        if iteration < self._iterations:
            self._display.start("training", self._iterations)
            self._display.advance(iteration, self._reward)

    def _show(self, text: str) -> None:
        self._display.advance(0, f"{self._reward}, {text}" if self._reward else text)

    def close(self) -> None:
        """Draw the final curve and let go of the files."""
        self._logger.close()
        if self._evaluations:
            try:
                self._draw()
            except OSError as error:  # often the disk is full, and the error that says so must stay the first
                logger.error("%s was not written: %s", self._run.reward_curve, error)

    def _draw(self) -> None:
        draw_reward_curve(self._run.reward_curve, self._rewards, self._evaluations)
        self._drawn = time.monotonic()


def describe_losses(metrics: Mapping[str, float]) -> list[str]:
    """Say what an iteration could not learn from, in lines; none where all is well.

    Args:
        metrics: of the iteration, as in ``train/metrics.py``.
    """
    lines = []
    if dropped := metrics.get("groups/dropped"):
        prefix = "episodes/excluded/"
        why = [
            f"{count:.0f} {name.removeprefix(prefix)}"
            for name, count in metrics.items()
            if name.startswith(prefix)
        ]
        lines.append(f"{dropped:.0f} groups dropped; episodes left out: {', '.join(why)}")
    if not metrics.get("actor/updates_applied"):
        if metrics.get("actor/updates_skipped"):
            why_not = "loss or gradient is not finite"
        elif metrics.get("groups/kept"):
            why_not = "the rewards within every group are equal"
        else:
            why_not = "no group has two scored episodes"
        lines.append(f"no update, version {metrics['policy/version']:.0f} stays: {why_not}")
    return lines
