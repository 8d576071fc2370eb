"""Playing with a gateway at hand, for programs that ask for ``ctx.base_url``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hyperrl.agents.episode import EpisodePlan, RolloutSettings
from hyperrl.agents.rollout import play_groups
from hyperrl.harness.gateway import Gateway
from hyperrl.trajectory import Group

__all__ = ["play_served_groups"]


async def play_served_groups(
    plans: Sequence[EpisodePlan], settings: RolloutSettings, **options: Any
) -> list[Group]:
    """Play as :func:`~hyperrl.agents.rollout.play_groups` does, with a gateway that closes with it.

    It listens only if a program asks for its address.

    Raises:
        Exception: what :func:`~hyperrl.agents.rollout.play_groups` raises.
    """
    async with Gateway() as gateway:
        return await play_groups(plans, dataclasses.replace(settings, gateway=gateway), **options)
