"""The built-in agent program: ask the policy, hand its action to the environment, and again."""

from __future__ import annotations

from hyperrl.agents.base import EpisodeContext
from hyperrl.agents.faults import EpisodeError
from hyperrl.trajectory import StopReason

__all__ = ["TurnLoop"]

_ABORT, _LENGTH = StopReason.ABORT, StopReason.LENGTH


class TurnLoop:
    """Plays one policy against the environment, turn by turn, in a single growing conversation.

    Every action reaches the environment, one that was cut by ``length`` too: it is scored as
    the final answer, and its tool calls are not executed.
    """

    name = "turn_loop"
    single_root = True

    async def run(self, ctx: EpisodeContext) -> None:
        policy = ctx.policy
        reply = await policy.respond(ctx.observation.messages, ctx.tools)
        while True:
            stop_reason = reply.stop_reason
            if stop_reason is _ABORT:
                raise EpisodeError("aborted", "the sampler aborted the action before it ended")
            outcome = await ctx.step(reply)
            if outcome.terminated or stop_reason is _LENGTH:
                return
            reply = await policy.follow_up(reply, outcome.observation.messages)
