"""What a program of others is told of an episode, and how its answer becomes the last action."""

from __future__ import annotations

import asyncio

from hyperrl.agents.base import EpisodeContext
from hyperrl.agents.faults import EpisodeError
from hyperrl.envs.messages import Action, message_text
from hyperrl.errors import ConfigError
from hyperrl.trajectory import StopReason

__all__ = ["closing_time", "hand_in", "hand_in_cut", "opening"]

_LIMIT_WATCH_S = 1.0


def opening(ctx: EpisodeContext) -> tuple[str, str]:
    """Return what the environment says as the system, and as the user.

    Raises:
        ConfigError: it says something in another role.
    """
    said: dict[str, list[str]] = {"system": [], "user": []}
    for message in ctx.observation.messages:
        role = {"developer": "system"}.get(message["role"], message["role"])
        if role not in said:
            raise ConfigError(
                f"the environment begins with a message of the role {message['role']!r}; a command can be"
                " told system and user messages only"
            )
        said[role].append(message_text(message))
    return "\n\n".join(said["system"]), "\n\n".join(said["user"])


async def closing_time(ctx: EpisodeContext, closing_s: float) -> None:
    """Return ``closing_s`` seconds after the episode has reached a limit of its turns or tokens."""
    while ctx.recorder.budget.reached is None:  # noqa: ASYNC110  # it is plain data
        await asyncio.sleep(_LIMIT_WATCH_S)
    await asyncio.sleep(closing_s)


async def hand_in_cut(ctx: EpisodeContext) -> bool:
    """Hand in what the policy wrote last, where its limit of tokens cut it: there is no other answer."""
    forest = ctx.recorder.forest
    last = forest.last_train_turn()
    if last is None or forest.turns[last].stop_reason is not StopReason.LENGTH:
        return False
    turn = forest.turns[last]
    content = str(turn.reply_message.get("content") or "")
    await ctx.step(
        Action(turn.text, tool_calls=turn.tool_calls, stop_reason=StopReason.LENGTH, content=content)
    )
    return True


async def hand_in(ctx: EpisodeContext, answer: str | None, *, name: str, needed: bool, said: str) -> None:
    """Hand in a program's answer, as the action that the policy wrote where it is that.

    Args:
        ctx: the episode.
        answer: what it said last.
        name: the program's.
        needed: no answer is a failure; else the environment scores the work as it stands.
        said: its output, for the failure's reason.

    Raises:
        EpisodeError: there is none (``no_answer``), or the environment answered it (``program_over``).
    """
    if answer is not None and answer.strip():
        await ctx.step(_final_action(ctx, answer))
    elif needed:
        raise EpisodeError("no_answer", f"{name} ended without an answer{said}")
    else:
        await ctx.finish()
    if not ctx.terminated:
        text = "the environment answered the final answer, but the program had ended; play it in turns"
        raise EpisodeError("program_over", text)


def _final_action(ctx: EpisodeContext, answer: str) -> Action | str:
    """Return the answer as the action that the policy wrote, reasoning included, where it is that."""
    forest = ctx.recorder.forest
    last = forest.last_train_turn()
    if last is None or answer.strip() not in forest.turns[last].text:
        return answer
    turn = forest.turns[last]
    return Action(turn.text, tool_calls=(), stop_reason=StopReason.STOP, content=answer)
