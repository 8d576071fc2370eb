"""The trainer's trajectories, played by environments and agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hyperrl.errors import InvariantError
from hyperrl.sampling import SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.trajectory import Group, Trajectory
from hyperrl.wiring.player import Player
from hyperrl.wiring.task_order import TaskOrder

__all__ = ["EnvSource", "sampling_params"]


class EnvSource:
    """Plays the next tasks of the training split with the published policy.

    Args:
        config: what is played, and how many of it.
        player: plays.
        tasks: size of the training split.
        served_version: says which version the sampler serves.
        on_episode: told of each episode as it ends.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        player: Player,
        tasks: int,
        served_version: Callable[[], int],
        on_episode: Callable[[Trajectory], None] | None = None,
    ) -> None:
        self._config = config
        self._player = player
        self._order = TaskOrder(tasks, seed=config.run.seed)
        self._served_version = served_version
        self._on_episode = on_episode

    def next_batch(self, *, version: int, size: int) -> Sequence[Group]:
        """Play the next ``size`` tasks.

        Raises:
            InvariantError: the sampler does not serve ``version``.
            RolloutError: every episode failed in the same way.
        """
        if (served := self._served_version()) != version:
            raise InvariantError(f"the learner is at version {version}, but the sampler serves {served}")
        return self._player.play(
            self._order.take(size),
            sampling_params(self._config),
            split=self._config.env.train_split,
            copies=self._config.rollout.group_size,
            seed=self._config.run.seed,
            on_episode=self._on_episode,
        )


def sampling_params(config: TrainConfig) -> SamplingParams:
    """Return how actions are drawn for training."""
    rollout = config.rollout
    return SamplingParams(
        max_tokens=rollout.max_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
    )
