"""Policies that say what a script says: for trying environments and programs without a model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hyperrl.agents.conversation import assistant_message
from hyperrl.envs.baseline import ScriptedPlayer
from hyperrl.envs.tool_calls import parse_tool_calls
from hyperrl.errors import ContextOverflowError, SamplingError
from hyperrl.sampling import (
    Completion,
    EpisodeKey,
    Message,
    Reply,
    RequestKey,
    SamplingParams,
    ToolSchema,
    request_seed,
)
from hyperrl.trajectory import StopReason

if TYPE_CHECKING:
    from hyperrl.agents.rendering import Renderer

__all__ = ["FunctionPolicy", "ScriptedPolicy", "ScriptedSampler"]

PromptScript = Callable[[str, RequestKey], str]
MessageScript = Callable[[Sequence[Message], Sequence[ToolSchema]], str]


class ScriptedSampler:
    """A sampler whose actions are written down beforehand.

    To everything else it is a sampler like any other: it takes and gives token ids, ends at
    ``max_tokens`` with ``length``, and lets other episodes run while it answers.

    Args:
        renderer: the renderer of the seat; it encodes the replies and decodes the prompts.
        script: a function from the prompt's text (control tokens included) and the request to the reply;
            or the replies of an episode in order, the same in every episode.
        policy_version: the version that it claims to serve.
        context: most tokens of a prompt and its answer; ``None`` is no limit.
    """

    def __init__(
        self,
        renderer: Renderer,
        script: PromptScript | Sequence[str],
        *,
        policy_version: int = 0,
        context: int | None = None,
    ) -> None:
        self._renderer = renderer
        self._script = script
        self._context = context
        self.policy_version = policy_version

    async def generate(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: int,  # noqa: ARG002  (a script draws nothing)
        request_id: RequestKey,
    ) -> Completion:
        """Answer as the script says; every token has the logprob 0.

        Raises:
            ContextOverflowError: the prompt leaves no room for a token.
            SamplingError: the script has no reply for this request.
        """
        await asyncio.sleep(0)
        room = params.max_tokens
        if self._context is not None:
            room = min(room, self._context - len(prompt_ids))
            if room < 1:
                raise ContextOverflowError(
                    f"a prompt of {len(prompt_ids)} tokens leaves no room in a context of {self._context}"
                )
        ids = self._renderer.encode_action(self._reply(prompt_ids, request_id))
        stop_reason = StopReason.STOP if len(ids) <= room else StopReason.LENGTH
        ids = ids[:room]
        return Completion(
            action_ids=ids,
            logprobs=[0.0] * len(ids),
            policy_versions=[self.policy_version] * len(ids),
            stop_reason=stop_reason,
        )

    def _reply(self, prompt_ids: Sequence[int], request_id: RequestKey) -> str:
        if callable(self._script):
            return self._script(self._renderer.decode(prompt_ids), request_id)
        return _pick(self._script, request_id.ordinal)


class ScriptedPolicy:
    """A chat policy without tokens that answers from a script.

    Args:
        script: a function from messages and tools to the reply's text; or the replies of a
            conversation in order: the next one is told by how many assistant messages there are.
    """

    def __init__(self, script: MessageScript | Sequence[str]) -> None:
        self._script = script

    async def respond(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Reply:
        """Answer as the script says.

        Raises:
            SamplingError: the script has no reply for this request.
        """
        answered = sum(message.get("role") == "assistant" for message in messages)
        text = self._script(messages, tools) if callable(self._script) else _pick(self._script, answered)
        parts = parse_tool_calls(text, id_prefix=f"call_{answered}_")
        return Reply(message=assistant_message(parts), text=text, tool_calls=parts.tool_calls)


class FunctionPolicy:
    """A chat policy without tokens: a player's function and the draws of one episode.

    Requests draw from generators of their own, seeded as a sampler's are, so an episode is the same
    wherever and whenever it is played.

    Args:
        player: from the conversation and a generator to the text of the action; plain or ``async``.
        run_seed: seed of the run.
        key: the episode.
        seat: the seat that it answers for.
    """

    def __init__(self, player: ScriptedPlayer, *, run_seed: int, key: EpisodeKey, seat: str = "main") -> None:
        self._player = player
        self._run_seed = run_seed
        self._key = key
        self._seat = seat
        self._ordinal = 0

    async def respond(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> Reply:  # noqa: ARG002  (a player knows its tools)
        """Answer as the player does.

        Raises:
            SamplingError: what it returned is no text.
        """
        request = RequestKey(*self._key, self._seat, self._ordinal)
        self._ordinal += 1
        rng = np.random.default_rng(request_seed(self._run_seed, request))
        said = self._player([dict(message) for message in messages], rng)
        text = await said if inspect.isawaitable(said) else said
        if not isinstance(text, str):
            raise SamplingError(f"a scripted player must return a str, got {type(text).__name__}")
        parts = parse_tool_calls(text, id_prefix=f"call_{self._ordinal}")
        return Reply(message=assistant_message(parts), text=text, tool_calls=parts.tool_calls)


def _pick(replies: Sequence[str], number: int) -> str:
    if number >= len(replies):
        raise SamplingError(f"the script has {len(replies)} replies; request {number + 1} finds none")
    return replies[number]
