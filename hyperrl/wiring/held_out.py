"""Held-out evaluation: tasks that are never trained on, played sampled and greedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hyperrl.sampling import SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.train.evaluation import Evaluation
from hyperrl.train.figures import EvalFigures, compute_figures
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.task_order import derive_seed, pick_held_out

if TYPE_CHECKING:
    from hyperrl.wiring.player import Player

__all__ = ["HeldOut", "KeepPlayed", "evaluation_params"]

KeepPlayed = Callable[[int, str, Sequence[Trajectory]], None]
"""Takes the iteration, ``sampled`` or ``greedy``, and the episodes of an evaluation."""


def evaluation_params(config: TrainConfig, *, temperature: float | None = None) -> SamplingParams:
    """Return how actions are drawn in an evaluation: as ``evaluation`` says, else as ``rollout`` does.

    Args:
        config: both sections.
        temperature: in place of the config's; 0 takes the most likely token.
    """
    own, rollout = config.evaluation, config.rollout
    if temperature is None:
        temperature = rollout.temperature if own.temperature is None else own.temperature
    return SamplingParams(
        max_tokens=rollout.max_tokens if own.max_tokens is None else own.max_tokens,
        temperature=temperature,
        top_p=rollout.top_p if own.top_p is None else own.top_p,
        top_k=rollout.top_k if own.top_k is None else own.top_k,
    )


class HeldOut:
    """Plays a fixed set of held-out tasks, ``evaluation.samples`` times sampled and once greedy.

    The draws follow the run's seed but not the policy's version, so that two versions are compared
    on the same tasks with the same random numbers.

    Args:
        config: environment, split, numbers of tasks and samples, how actions are drawn.
        player: plays.
        tasks: size of the held-out split.
        on_start: told how many episodes an evaluation will play.
        on_episode: told of each episode as it ends.
        keep: given the episodes of each evaluation before they are counted.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        player: Player,
        tasks: int,
        on_start: Callable[[int], None] | None = None,
        on_episode: Callable[[Trajectory], None] | None = None,
        keep: KeepPlayed | None = None,
    ) -> None:
        self._config = config
        self._player = player
        self._picks = pick_held_out(tasks, config.evaluation.episodes)
        self._on_start = on_start
        self._on_episode = on_episode
        self._keep = keep

    def evaluate(self, *, version: int, iteration: int = 0) -> Evaluation:
        """Return the held-out result of the version that is served.

        Args:
            version: the version.
            iteration: how many iterations have ended; named where the episodes are kept.

        Raises:
            RolloutError: every episode failed in the same way.
        """
        samples = self._config.evaluation.samples
        if self._on_start is not None:
            self._on_start((samples + 1) * len(self._picks))
        sampled = self._measure("sampled", iteration, evaluation_params(self._config), samples)
        greedy = self._measure("greedy", iteration, evaluation_params(self._config, temperature=0.0), 1)
        return Evaluation(version=version, sampled=sampled, greedy=greedy)

    def _measure(self, kind: str, iteration: int, params: SamplingParams, samples: int) -> EvalFigures:
        groups = self._player.play(
            self._picks,
            params,
            split=self._config.evaluation.split,
            seed=derive_seed(self._config.run.seed, "evaluation"),
            copies=samples,
            on_episode=self._on_episode,
        )
        played = [trajectory for group in groups for trajectory in group]
        if self._keep is not None:
            self._keep(iteration, kind, played)
        threshold = self._config.evaluation.success
        return compute_figures(played, threshold=threshold, ks=sorted({1, samples}))
