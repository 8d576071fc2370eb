"""Held-out evaluation: tasks that are never trained on, played sampled and greedy."""

from __future__ import annotations

from collections.abc import Callable

from hyperrl.sampling import SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.train.evaluation import Evaluation, SuccessRate, compute_success_rate
from hyperrl.trajectory import Group, Trajectory
from hyperrl.wiring.player import Player
from hyperrl.wiring.task_order import derive_seed, pick_held_out

__all__ = ["HeldOut"]


class HeldOut:
    """Plays a fixed set of held-out tasks, once sampled and once greedy.

    The draws follow the run's seed but not the policy's version, so that two versions are compared
    on the same tasks with the same random numbers.

    Args:
        config: environment, split, number of episodes and temperature.
        player: plays.
        tasks: size of the held-out split.
        on_start: told how many episodes an evaluation will play.
        on_episode: told of each episode as it ends.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        player: Player,
        tasks: int,
        on_start: Callable[[int], None] | None = None,
        on_episode: Callable[[Trajectory], None] | None = None,
    ) -> None:
        self._config = config
        self._player = player
        self._picks = pick_held_out(tasks, config.evaluation.episodes)
        self._on_start = on_start
        self._on_episode = on_episode

    def evaluate(self, *, version: int) -> Evaluation:
        """Return the held-out result of the version that is served.

        Raises:
            RolloutError: every episode failed in the same way.
        """
        if self._on_start is not None:
            self._on_start(2 * len(self._picks))
        sampled = self.play(temperature=self._config.evaluation.temperature)
        greedy = self.play(temperature=0.0)
        return Evaluation(version=version, sampled=self._rate(sampled), greedy=self._rate(greedy))

    def play(self, *, temperature: float) -> list[Group]:
        """Play every held-out task once at ``temperature``."""
        return self._player.play(
            self._picks,
            SamplingParams(max_tokens=self._config.rollout.max_tokens, temperature=temperature),
            split=self._config.evaluation.split,
            seed=derive_seed(self._config.run.seed, "evaluation"),
            on_episode=self._on_episode,
        )

    def _rate(self, groups: list[Group]) -> SuccessRate:
        trajectories = [trajectory for group in groups for trajectory in group]
        return compute_success_rate(trajectories, threshold=self._config.evaluation.success)
