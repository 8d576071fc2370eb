"""What an author gives as the right actions of a task, as actions."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from hyperrl.errors import EnvError

if TYPE_CHECKING:
    from hyperrl.envs.core import TextEnv

__all__ = ["gold_actions"]


def gold_actions(env: TextEnv) -> list[str] | None:
    """Return the gold actions of the task that ``env`` plays; ``None`` where nobody knows them.

    Raises:
        EnvError: its ``gold`` returned something else than a text, a list of texts, or ``None``.
    """
    gold: object = env.gold(env.task)
    if gold is None:
        return None
    actions = [gold] if isinstance(gold, str) else gold
    if isinstance(actions, (list, tuple)) and actions and all(isinstance(action, str) for action in actions):
        return list(actions)
    hint = "; write def, not async def" if inspect.iscoroutine(gold) else ""
    raise EnvError(
        f"{type(env).__name__}.gold must return an action, a list of at least one, or None where nobody knows"
        f" it; got {gold!r:.80}{hint}"
    )
