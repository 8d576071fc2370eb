"""Playing with a gateway at hand, for programs that ask for ``ctx.base_url``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from hyperrl.agents.episode import EpisodePlan, RolloutSettings
from hyperrl.agents.rollout import play_groups
from hyperrl.harness.gateway import Gateway, GatewaySettings
from hyperrl.harness.gateway.purposes import Purpose
from hyperrl.trajectory import Group

__all__ = ["play_served_groups"]


async def play_served_groups(
    plans: Sequence[EpisodePlan],
    settings: RolloutSettings,
    *,
    learn_from: Iterable[Purpose] = (),
    **options: Any,
) -> list[Group]:
    """Play as :func:`~hyperrl.agents.rollout.play_groups` does, with a gateway that closes with it.

    It listens only if a program asks for its address.

    Args:
        plans: what is played.
        settings: what the episodes share; its gateway is replaced.
        learn_from: side requests that are learned from like the task.
        **options: of :func:`~hyperrl.agents.rollout.play_groups`.

    Raises:
        Exception: what :func:`~hyperrl.agents.rollout.play_groups` raises.
    """
    async with Gateway(GatewaySettings(learn_from=frozenset(learn_from))) as gateway:
        return await play_groups(plans, dataclasses.replace(settings, gateway=gateway), **options)
