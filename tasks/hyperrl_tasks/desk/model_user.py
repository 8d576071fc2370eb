"""The desk with a customer that is played by a model."""

from __future__ import annotations

from typing import Any

from hyperrl.envs import Endpoint, ModelUser, Task
from hyperrl.sampling import Message
from hyperrl_tasks.desk.customer import describe_customer
from hyperrl_tasks.desk.env import Desk

__all__ = ["ModelUserDesk"]


class ModelUserDesk(Desk):
    """The same cases, tools and rewards, with a model behind an endpoint as the customer.

    Args:
        base_url: where an OpenAI-compatible API begins.
        model: the endpoint's name for the model.
        api_key: name of the environment variable that holds the key; ``None`` sends none.
        **kwargs: the options of :class:`Desk`.
    """

    def __init__(self, *, base_url: str, model: str, api_key: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._endpoint = Endpoint(base_url, api_key=api_key)
        self._model = model

    async def start(self, task: Task) -> Any:
        """Open the shop; the customer says its first request. Raises SimulatedUserError."""
        self._open(task)
        instructions = describe_customer(task.data)
        self._talk = ModelUser(
            self._endpoint, model=self._model, instructions=instructions, max_turns=self.patience
        )
        return await self._talk.reply([])

    async def reply(self, answer: str, messages: list[Message]) -> Any:
        """Let the customer answer; the episode ends when it leaves. Raises SimulatedUserError."""
        self._spoken.append(answer)
        return await self._talk.reply(messages)
