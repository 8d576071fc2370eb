"""The state of one episode, as the functions of an environment may ask for it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, nullcontext
from typing import Any

import numpy as np

from hyperrl.envs.driving import being_cancelled, in_event_loop
from hyperrl.envs.messages import Action, Observation, message_text, new_text, visible_text
from hyperrl.envs.random_source import RandomSource
from hyperrl.envs.taskset import Task
from hyperrl.envs.tool_calls import parse_tool_calls
from hyperrl.envs.tools import Tool
from hyperrl.errors import EnvError
from hyperrl.sampling import Message, ToolCall
from hyperrl.trajectory import StopReason, ToolRecord

__all__ = ["RELEASE_LIMIT_S", "Episode"]

logger = logging.getLogger(__name__)

RELEASE_LIMIT_S = 10.0
"""Seconds that closing the resources of an episode may take; what is not closed then is given up."""

_STOP = StopReason.STOP
_CUT = (StopReason.LENGTH, StopReason.ABORT)
_Action = tuple[str, str | None, tuple[ToolCall, ...]]
"""An action with calls, its text without calls and reasoning, and the calls."""


class Episode:
    """What happened since the last reset. Its public names are what injection offers.

    Attributes:
        task: the task that is played.
        options: the options of the reset.
        action: the last action; empty before the first.
        turn: position of the last action in the episode, from 0; -1 before the first.
        stop_reason: why the sampler stopped.
        cut: the last action was cut off before its end.
        tool_records: the tool calls of the last action and what came of them.
    """

    __slots__ = (
        "_answer",
        "_over",
        "_random",
        "_resources",
        "_said",
        "action",
        "cut",
        "options",
        "stop_reason",
        "task",
        "tool_records",
        "turn",
    )

    def __init__(self, task: Task, random: RandomSource, options: Mapping[str, Any]) -> None:
        self.task = task
        self._random = random
        self.options = options
        self.action: str = ""
        self.turn = -1
        self.stop_reason = StopReason.STOP
        self.cut = False
        self.tool_records: tuple[ToolRecord, ...] = ()
        self._answer: str | None = None
        self._over = False
        self._resources: AsyncExitStack | None = None
        self._said: list[str | list[Message] | _Action] = []  # heard and acted in turn; often only texts

    @property
    def rng(self) -> np.random.Generator:
        """The environment's random generator."""
        return self._random.generator

    @property
    def resources(self) -> AsyncExitStack:
        """What is closed when the episode ends. Raises EnvError after that."""
        if self._over:
            raise EnvError("the episode has ended, so nothing can be opened for it; reset first")
        if self._resources is None:
            self._resources = AsyncExitStack()
        return self._resources

    @property
    def holds_resources(self) -> bool:
        """Whether something is open that :meth:`release` would close."""
        return self._resources is not None

    def ends(self) -> bool:
        """Let nothing be opened any more; whether something is open that :meth:`release` would close."""
        self._over = True
        return self._resources is not None

    async def release(self) -> None:
        """Close what was opened, last first, within ``RELEASE_LIMIT_S``.

        What goes wrong, or takes longer, is logged: what the episode earned stands.
        """
        self._over = True
        resources, self._resources = self._resources, None
        if resources is None:
            return
        try:
            async with asyncio.timeout(RELEASE_LIMIT_S) if in_event_loop() else nullcontext():
                await resources.aclose()
        except (Exception, asyncio.CancelledError) as error:  # an author's own clean-up must not end the run
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            logger.warning("closing what task %s had opened failed", self.task.task_id, exc_info=True)

    def hear(self, observation: Observation) -> None:
        """Take note of what the policy reads next; the caller may change what it holds."""
        self._said.append([dict(message) for message in observation.messages])

    def hear_text(self, text: str) -> Observation:
        """Take note of one user message that the policy reads next, and return it as an observation."""
        self._said.append(text)
        observation = new_text(Observation, text)
        observation.said = text
        return observation

    def act(self, action: str, tools: Mapping[str, Tool] | None) -> tuple[ToolCall, ...]:
        """Take note of an action, and return the calls of ``tools`` in it."""
        self.action = action
        self.turn += 1
        if isinstance(action, Action):
            answer, stop_reason = action.content, action.stop_reason
        else:
            answer = stop_reason = None
        self._answer = answer
        if stop_reason is not self.stop_reason:
            self.stop_reason = stop_reason or _STOP
            self.cut = self.stop_reason in _CUT
        if tools:
            self.tool_records = ()
            calls = self._read_calls(action)
            if calls:
                self._said.append((action, self._answer, calls))
                return calls
            answer = self._answer
        self._said.append(str(action) if answer is None else answer)
        return ()

    def _read_calls(self, action: str) -> tuple[ToolCall, ...]:
        """Return the tool calls that an action carries, or those that its text holds."""
        carried = action.tool_calls if isinstance(action, Action) else None
        if carried is not None:
            if carried and self._answer is None:
                self._answer = parse_tool_calls(visible_text(action), id_prefix="").content
            return carried
        parsed = parse_tool_calls(visible_text(action), id_prefix=f"call_{self.turn}_")
        self._answer = parsed.content if self._answer is None else self._answer
        return parsed.tool_calls

    @property
    def answer(self) -> str:
        """The last action without reasoning and tool calls."""
        if self._answer is None:
            self._answer = parse_tool_calls(visible_text(self.action), id_prefix="").content
        return self._answer

    @property
    def messages(self) -> list[Message]:
        """The whole conversation up to and with the last action; made anew at each call."""
        conversation: list[Message] = []
        for place, said in enumerate(self._said):
            if isinstance(said, str):
                conversation.append({"role": "assistant" if place % 2 else "user", "content": said})
            elif isinstance(said, list):
                conversation.extend(map(dict, said))
            else:
                conversation.append(_assistant_message(*said))
        return conversation

    def transcript(self) -> str:
        """Return the conversation as text for a person."""
        return "\n\n".join(map(_paragraph, self.messages))


def _assistant_message(action: str, answer: str | None, calls: tuple[ToolCall, ...]) -> Message:
    written = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": _arguments_text(call)},
        }
        for call in calls
    ]
    content = str(action) if answer is None else answer
    return {"role": "assistant", "content": content, "tool_calls": written}


def _arguments_text(call: ToolCall) -> str:
    return call.raw if call.arguments is None else json.dumps(dict(call.arguments), ensure_ascii=False)


def _paragraph(message: Message) -> str:
    said = f"[{message.get('role', '?')}] {message_text(message)}".rstrip()
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return "\n".join([said, *(f"  -> {call['name']} {call['arguments']}" for call in calls)])
