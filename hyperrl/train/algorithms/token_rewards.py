"""Where the reward of an episode stands among its tokens.

Shapes: B episodes, N loss tokens of a minibatch.

A term stands at the last loss token of the turn that earned it: an action token, never one that was
read. A reward behind the last action, at padding or at a tool's text, would be lost or discounted in
every recursion (verl #6310, #7278).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hyperrl.train.algorithm_config import OverlongConfig
from hyperrl.train.batching import LossTokens
from hyperrl.trajectory import Trajectory

__all__ = ["overlong_penalty", "place_rewards"]

Floats = NDArray[np.float64]


def overlong_penalty(trajectory: Trajectory, config: OverlongConfig, *, max_tokens: int) -> float:
    """Return what is taken off an episode's reward for a long answer (DAPO, Yu et al. 2025, eq. 13).

    With L sampled tokens in the answer turn: 0 up to ``max_tokens - buffer``, from there rising linearly to
    ``penalty`` at ``max_tokens``.

    Args:
        trajectory: the episode.
        config: buffer and penalty.
        max_tokens: the token limit of a turn.
    """
    turn = trajectory.answer_turn
    if not config.buffer or turn is None:
        return 0.0
    over = len(trajectory.turns[turn].action_ids) - (max_tokens - config.buffer)
    return config.penalty * min(1.0, max(0.0, over / config.buffer))


def place_rewards(tokens: LossTokens, trajectories: Sequence[Trajectory], penalties: Floats) -> Floats:
    """Return the reward that was earned at each loss token: f64[N].

    Terms without a turn belong to the answer turn. Where a turn has no loss token, its terms stand at
    the episode's last one.

    Args:
        tokens: loss tokens of a minibatch.
        trajectories: the episodes that ``tokens.trajectory`` counts in.
        penalties: f64[B], taken off where the terms of the answer turn stand.
    """
    placed = np.zeros(len(tokens))
    # Tokens of a turn stand together, so that only its last one has another behind it.
    ends = np.flatnonzero(np.diff(tokens.trajectory, append=-1) | np.diff(tokens.turn, append=-1))
    turns = zip(tokens.trajectory[ends].tolist(), tokens.turn[ends].tolist(), strict=True)
    last = dict(zip(turns, ends.tolist(), strict=True))
    for episode in np.unique(tokens.trajectory).tolist():
        trajectory = trajectories[episode]
        end = _last_of_main_path(trajectory, episode, last)
        answer = last.get((episode, -1 if trajectory.answer_turn is None else trajectory.answer_turn), end)
        for term in trajectory.reward_terms:
            place = answer if term.turn is None else last.get((episode, term.turn), end)
            placed[place] += term.weight * (term.score or 0.0)
        placed[answer] -= penalties[episode]
    return placed


def _last_of_main_path(trajectory: Trajectory, episode: int, last: dict[tuple[int, int], int]) -> int:
    for turn in reversed(trajectory.main_path):
        if (episode, turn) in last:
            return last[episode, turn]
    return max(place for (of, _), place in last.items() if of == episode)
