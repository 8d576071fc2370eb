"""Playing episodes for checks: which tasks, how many, and what an episode came to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from hyperrl.envs.author_code import describe_raised
from hyperrl.envs.checking.findings import FailedError, SkippedError
from hyperrl.envs.core import TextEnv, score_as_it_stands
from hyperrl.envs.gold_actions import gold_actions
from hyperrl.envs.messages import Observation
from hyperrl.envs.outcome import Outcome

__all__ = ["TOLERANCE", "Played", "Plays", "others", "spread"]

TOLERANCE = 1e-6
_MOST_TASKS = 20
_FEWEST_TASKS = 2
_MOST_TURNS = 20
_SECONDS_A_CHECK = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What an episode came to.

    Attributes:
        score: the sum of rewards; NaN while a term that counts is unscored.
        why: why it is NaN, by term.
        ended: the environment ended it; else it was cut and scored as it stood.
    """

    score: float
    why: dict[str, str] = field(default_factory=dict)
    ended: bool = True


class Plays:
    """Plays one environment for several checks; fewer tasks where one episode takes long.

    Attributes:
        env: what is played.
        tasks: positions of the tasks that are played: at most 20, spread over the taskset, and as many as
            can be played in about two seconds.
        episode_s: seconds that an episode of the first task took.
    """

    def __init__(self, env: TextEnv) -> None:
        self.env = env
        self.episode_s = min(self._play_one(), self._play_one())  # the first one may load the data
        self.tasks = spread(len(env.taskset), self.count(_FEWEST_TASKS, _MOST_TASKS))

    def count(self, fewest: int, most: int) -> int:
        """Return how many episodes fit into the time of a check."""
        return max(fewest, min(most, int(_SECONDS_A_CHECK / max(self.episode_s, 1e-6))))

    def gold(self, index: int) -> tuple[Observation, list[str]]:
        """Reset to a task; return the first observation and the gold actions.

        Raises:
            SkippedError: nobody knows the gold.
        """
        observation, _ = self.env.reset(seed=index, options={"task": index})
        actions = gold_actions(self.env)
        if actions is None:
            raise SkippedError("the environment defines no gold()")
        return observation, actions

    def play(self, index: int, actions: Iterable[str]) -> Played:
        """Play a task from its start; an episode that goes on after the actions is cut and scored."""
        self.env.reset(seed=index, options={"task": index})
        return self.go_on(actions)

    def repeat(self, index: int, action: str, turns: int = _MOST_TURNS) -> Played:
        """Play a task with the same action at each of at most ``turns`` turns."""
        return self.play(index, repeat(action, min(self.env.max_episode_steps or turns, turns)))

    def go_on(self, actions: Iterable[str]) -> Played:
        """Play the actions from where the environment stands.

        Raises:
            FailedError: a step raised.
            SkippedError: only groups of episodes are scored.
        """
        total, why = 0.0, {}
        for action in actions:
            _, reward, terminated, _, info = _step(self.env, action)
            total += reward
            why.update(info.get("unscored", {}))
            if terminated:
                self._refuse_groups(why)
                return Played(score=total, why=why)
        return self._cut(total, why)

    def _cut(self, total: float, why: dict[str, str]) -> Played:
        outcome = Outcome(
            kind="final",
            observation=Observation("", ()),
            task_id="",
            reward_terms=score_as_it_stands(self.env),
        )
        return Played(score=total + outcome.reward, why={**why, **outcome.unscored}, ended=False)

    def _refuse_groups(self, why: Mapping[str, str]) -> None:
        if "" in why and self.env.scores_groups:
            raise SkippedError("its rewards need a whole group of episodes")

    def _play_one(self) -> float:
        start = time.perf_counter()
        try:
            _, actions = self.gold(0)
        except Exception:  # noqa: BLE001  # found and reported by the check of the gold
            actions = []
        with suppress(FailedError, SkippedError):  # found and reported by the check of that promise
            self.go_on(chain(actions, [""]))
        return time.perf_counter() - start


def spread(count: int, wanted: int) -> range:
    """Return at most ``wanted`` positions of ``count``, evenly spread."""
    return range(0, count, -(-count // wanted))


def _step(env: TextEnv, action: str) -> tuple[Any, ...]:
    try:
        return env.step(action)
    except Exception as error:
        raise FailedError(f"step({action!r:.80}) raised {describe_raised(error)}") from error


def others(plays: Plays, index: int, count: int) -> Sequence[int]:
    """Return positions of other tasks that are played, from the one after ``index``."""
    tasks = list(plays.tasks)
    place = tasks.index(index)
    return (tasks[place + 1 :] + tasks[:place])[:count]
