"""Simulated users: whoever an agent talks to, from a script or from a model behind an endpoint.

Both are used the same way. Made in ``start``, one for each episode, so that nothing is shared::

    async def start(self, task):
        self.user = ModelUser(self.endpoint, model="qwen3-8b", instructions=task["persona"])
        return await self.user.reply([])

    async def reply(self, messages):
        return await self.user.reply(messages)

``reply`` gives the user's next message, or ``None`` once the user has ended the talk, which ends the episode.
A user that cannot answer raises, which makes the episode a failure: no score is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from hyperrl.envs.endpoint import Endpoint
from hyperrl.envs.messages import message_text, visible_text
from hyperrl.envs.tool_calls import parse_tool_calls
from hyperrl.errors import ConfigError, EndpointError, SimulatedUserError
from hyperrl.sampling import Message

__all__ = ["STOP_MARK", "ModelUser", "ScriptedUser", "swap_roles"]

STOP_MARK = "###END###"
"""What a simulated user says to end the talk, unless it was made with another mark."""

Script = Callable[[Sequence[Message]], str | None]


def swap_roles(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation as the user saw it: the agent in the role ``user``, the user as ``assistant``.

    The system message, tool calls and their results, reasoning, and messages of which nothing is left are not
    in it; what one side said in several messages on end becomes one.
    """
    seen: list[tuple[str, str]] = []
    for message in messages:
        role = {"assistant": "user", "user": "assistant"}.get(str(message.get("role")))
        text = message_text(message)
        if role == "user":
            text = parse_tool_calls(visible_text(text), id_prefix="").content
        if role is None or not text.strip():
            continue
        if seen and seen[-1][0] == role:
            text = f"{seen.pop()[1]}\n\n{text.strip()}"
        seen.append((role, text.strip()))
    return [{"role": role, "content": text} for role, text in seen]


class _Talk:
    """What both kinds share: the mark that ends a talk, and the bound on its length.

    Attributes:
        ended_by: ``stop``: the user said the mark, or its script was over; ``turns``: it had said as much
            as it may; ``None`` while the talk goes on.
        said: how many messages the user has said.
    """

    def __init__(self, stop: str, max_turns: int) -> None:
        if not stop.strip():
            raise ConfigError("stop must be a text that the user says to end the talk, got an empty one")
        if max_turns < 1:
            raise ConfigError(f"max_turns must be at least 1, got {max_turns}")
        self._stop = stop
        self._max_turns = max_turns
        self.ended_by: Literal["stop", "turns"] | None = None
        self.said = 0

    def _may_speak(self) -> bool:
        if self.ended_by is None and self.said >= self._max_turns:
            self.ended_by = "turns"
        return self.ended_by is None

    def _speak(self, text: str | None) -> str | None:
        if text is None or self._stop in text:
            self.ended_by = "stop"
            return None
        self.said += 1
        return text


class ScriptedUser(_Talk):
    """A user that follows a script.

    Args:
        script: what it says, in order; or a function from the conversation as the user saw it (see
            :func:`swap_roles`) to the next message, with ``None`` or the mark to end the talk. A script with
            a memory is an object with ``__call__``.
        stop: the mark that ends the talk.
        max_turns: most messages that the user says.

    Raises:
        ConfigError: a script that is neither, an empty mark, or no turns at all.
    """

    def __init__(
        self, script: Sequence[str] | Script, *, stop: str = STOP_MARK, max_turns: int = 100
    ) -> None:
        super().__init__(stop, max_turns)
        lines = isinstance(script, (list, tuple)) and all(isinstance(line, str) for line in script)
        if not lines and not callable(script):
            raise ConfigError(f"a script is a list of messages or a function, got {script!r:.80}")
        self._script = script

    def reply(self, messages: Sequence[Message]) -> str | None:
        """Return the user's next message, or ``None`` if the talk is over.

        Args:
            messages: the agent's conversation, as the injected ``messages``; empty before it begins.
        """
        if not self._may_speak():
            return None
        if callable(self._script):
            return self._speak(self._script(swap_roles(messages)))
        return self._speak(self._script[self.said] if self.said < len(self._script) else None)


class ModelUser(_Talk):
    """A user played by a model. It reads its instructions and what was said, and nothing else.

    Args:
        endpoint: where the model is asked.
        model: the endpoint's name for it.
        instructions: who the user is, what it wants, what it knows, and how it behaves.
        stop: the mark that the model is told to say when it is done.
        max_turns: most messages that the user says.
        greeting: what the agent is taken to have said first, so that the user has something to answer.
        **params: more fields of each request, such as ``temperature`` or ``max_tokens``.

    Raises:
        ConfigError: an empty mark, or no turns at all.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str,
        instructions: str,
        stop: str = STOP_MARK,
        max_turns: int = 30,
        greeting: str = "Hello, how can I help you?",
        **params: Any,
    ) -> None:
        super().__init__(stop, max_turns)
        self._endpoint = endpoint
        self._model = model
        self._params = params
        self._opening: list[Message] = [
            {"role": "system", "content": _instructions(instructions, stop)},
            {"role": "user", "content": greeting},
        ]

    async def reply(self, messages: Sequence[Message]) -> str | None:
        """Return the user's next message, or ``None`` if the talk is over.

        Args:
            messages: the agent's conversation, as the injected ``messages``; empty before it begins.

        Raises:
            SimulatedUserError: the model could not be asked, or said nothing.
        """
        if not self._may_speak():
            return None
        try:
            answer = await self._endpoint.chat(
                [*self._opening, *swap_roles(messages)], model=self._model, **self._params
            )
        except EndpointError as error:
            raise SimulatedUserError(f"the simulated user {self._model!r} did not answer: {error}") from error
        text = visible_text(answer.text).strip()
        if not text:
            raise SimulatedUserError(
                f"the simulated user {self._model!r} said nothing (finish_reason {answer.finish_reason!r});"
                " allow it more max_tokens, or use a model that answers in plain text"
            )
        return self._speak(text)


def _instructions(instructions: str, stop: str) -> str:
    return (
        f"{instructions.strip()}\n\n"
        "You are the customer or user in this conversation, never the assistant. Write only what this person"
        " says next, in one short message. Tell what you know only when it is asked for. Do not invent facts."
        f" When everything you want is dealt with, or cannot be, say {stop} and nothing else."
    )
