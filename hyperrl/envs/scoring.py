"""Running rewards: what they return, raise or leave undone becomes terms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hyperrl.envs.driving import being_cancelled
from hyperrl.envs.injection import Injected
from hyperrl.envs.rewards import Reward
from hyperrl.trajectory import RewardTerm

__all__ = ["Rewards", "score_episode", "score_members"]

Rewards = Sequence[tuple[Reward, Injected]]
"""Rewards, each with how to call it."""


async def score_episode(
    env: object, rewards: Rewards, episode: object, weights: Mapping[str, float]
) -> tuple[RewardTerm, ...]:
    """Return the terms of one episode.

    Args:
        env: what the rewards take as ``self``.
        rewards: what is asked, in this order.
        episode: has what they ask for as attributes.
        weights: weights by term name that replace the rewards' own.
    """
    terms: list[RewardTerm] = []
    for reward, injected in rewards:
        try:
            value = injected.call(env, episode)
            if injected.is_async:
                value = await reward.settle(value)
            terms += reward.terms(value)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # unscored, never 0
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            terms.extend(reward.failed(error))
    return _weighted(terms, weights) if weights else tuple(terms)


async def score_members(
    env: object, rewards: Rewards, group: object, count: int, weights: Mapping[str, float]
) -> list[tuple[RewardTerm, ...]]:
    """Return the terms of each of the ``count`` members of a group; arguments as above.

    Each reward gives every member its terms or leaves every member unscored: none is ever given those
    of another.
    """
    members: list[list[RewardTerm]] = [[] for _ in range(count)]
    for reward, injected in rewards:
        try:
            value = injected.call(env, group)
            if injected.is_async:
                value = await reward.settle(value)
            found = reward.member_terms(value, count)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # unscored, never 0
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            found = [reward.failed(error)] * count
        for terms, more in zip(members, found, strict=True):
            terms.extend(more)
    return [_weighted(terms, weights) if weights else tuple(terms) for terms in members]


def _weighted(terms: Sequence[RewardTerm], weights: Mapping[str, float]) -> tuple[RewardTerm, ...]:
    return tuple(replace(t, weight=weights[t.name]) if t.name in weights else t for t in terms)
