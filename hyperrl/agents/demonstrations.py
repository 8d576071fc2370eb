"""Conversations that others had, as trajectories to learn from: files of messages, rendered token-first.

A file holds one conversation a row: JSON Lines (``{"messages": [...], "tools": [...]}``) or Parquet in the
layout of verl's multi-turn SFT (columns ``messages``, ``tools``, ``enable_thinking``). Every assistant
message becomes a turn whose action is exactly what the policy would have sampled to say it
(:meth:`TemplateRenderer.action`), so that the loss mask follows from rendering.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.envs import JsonlTaskset, ParquetTaskset, Taskset
from hyperrl.errors import DataError, TemplateError, nearest
from hyperrl.sampling import Message, ToolSchema
from hyperrl.trajectory import NOT_SAMPLED, Trajectory, Turn

__all__ = ["Demonstration", "DemonstrationKeys", "History", "make_demonstration", "read_demonstrations"]

History = Literal["rollout", "template"]
"""What stands before an assistant message: the earlier ones exactly as they were said, as in our own
rollouts; or as the template renders them for every request, which many do without their reasoning."""

_FORMATS = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationKeys:
    """Fields of a row.

    Attributes:
        messages: the conversation: chat messages, or the same as a JSON text.
        tools: the tools that it was had with, as schemas or a JSON text; a row may lack it.
        enable_thinking: the template's option of this name for the row; a row may lack it.
    """

    messages: str = "messages"
    tools: str = "tools"
    enable_thinking: str = "enable_thinking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """One conversation of a file.

    Attributes:
        messages: oldest first.
        tools: the tools that it was had with.
        template_options: variables of the chat template that the row gives.
        where: file and row, for messages to people.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    where: str = "a conversation"


def read_demonstrations(path: Path, keys: DemonstrationKeys | None = None) -> Iterator[Demonstration]:
    """Yield the conversations of a file, or of every ``.jsonl`` and ``.parquet`` file of a folder by name.

    Columns of Parquet give every struct every field, so fields that are null there count as absent.
    (Write arguments of tool calls as JSON texts, and a null in them survives.)

    Raises:
        DataError: no such file, another format, no rows, a row without the messages (names what was
            found), or one whose messages or tools have another shape.
    """
    keys = keys or DemonstrationKeys()
    for file in _files(path):
        parquet = file.suffix == ".parquet"
        rows = _open_parquet(file, keys) if parquet else JsonlTaskset(file, columns=(keys.messages,))
        for index in range(len(rows)):
            row: Any = rows[index].data
            yield _demonstration(_without_nulls(row) if parquet else row, keys, file, index)


def make_demonstration(
    renderer: TemplateRenderer,
    demonstration: Demonstration,
    *,
    history: History = "rollout",
    index: int = 0,
) -> Trajectory:
    """Return a conversation as a trajectory whose ``train`` turns are its assistant messages.

    Nothing was sampled, so the turns have no logprobs. An assistant message with ``"weight": 0`` is read and
    not learned from. A turn extends the one before it where its prompt does so token by token; else it is a
    root of its own.

    Args:
        renderer: of the model that will learn.
        demonstration: the conversation.
        history: what stands before each assistant message.
        index: position within the data; names the trajectory.

    Raises:
        SamplingError, TemplateError, ToolDefinitionError: the conversation cannot be shown to this model.
    """
    messages, tools = demonstration.messages, demonstration.tools
    turns: list[Turn] = []
    said: list[int] = []  # the prompt and the action of the last turn
    action: list[int] = []
    after = 0
    for position, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        context = None
        if turns and history == "rollout":
            context = _bridge(renderer, action, messages[after:position])
        root = context is None
        if context is None:
            context = renderer.first(messages[:position], tools)
            if turns and context[: len(said)] == said:
                root, context = False, context[len(said) :]
        action = renderer.action(messages[: position + 1], tools)
        said = [*([] if root else said), *context, *action]
        after = position + 1
        turns.append(
            _turn(None if root else len(turns) - 1, context, action, learned=message.get("weight") != 0)
        )
    return Trajectory(
        run_id="sft",
        group_id=(0, index),
        sample_index=0,
        task_id=demonstration.where,
        env_id="messages",
        program="messages",
        turns=tuple(turns),
    )


def _bridge(renderer: TemplateRenderer, action: list[int], new: Sequence[Message]) -> list[int] | None:
    """Return what follows an action; ``None`` where only rendering the whole conversation can say."""
    if not new:
        return None
    try:
        return renderer.bridge(action, new)
    except TemplateError:
        return None


def _turn(parent: int | None, context: list[int], action: list[int], *, learned: bool) -> Turn:
    return Turn(
        parent=parent,
        context_ids=np.array(context, np.int32),
        action_ids=np.array(action, np.int32),
        behavior_logprobs=None,
        policy_versions=np.full(len(action), NOT_SAMPLED, np.int32),
        use="train" if learned else "context",
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix in _FORMATS)
        if not found:
            raise DataError(f"the folder {str(path)!r} holds no .jsonl or .parquet file")
        return found
    if path.suffix not in _FORMATS:
        raise DataError(
            f"{str(path)!r} must be a .jsonl or .parquet file of conversations, or a folder of them"
        )
    return [path]


def _open_parquet(file: Path, keys: DemonstrationKeys) -> Taskset:
    rows = ParquetTaskset(file)
    if keys.messages not in rows.columns:
        raise DataError(
            f"{str(file)!r} has no column {keys.messages!r}; found were {list(rows.columns)}."
            f"{nearest(keys.messages, rows.columns)} sft.messages_key names the column with the messages"
        )
    return rows


def _demonstration(row: Mapping[str, Any], keys: DemonstrationKeys, file: Path, index: int) -> Demonstration:
    where = f"{file.name}, row {index}"
    messages = _parsed(row.get(keys.messages), f"{where}: {keys.messages!r}")
    ordered = isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages)
    if not messages or not ordered:
        raise DataError(
            f"{where}: {keys.messages!r} must be a list of messages with 'role' and 'content', at least one;"
            f" got {messages!r:.200}"
        )
    tools = _parsed(row.get(keys.tools), f"{where}: {keys.tools!r}") or []
    if not isinstance(tools, list):
        raise DataError(f"{where}: {keys.tools!r} must be a list of tool schemas, got {tools!r:.200}")
    thinking = row.get(keys.enable_thinking)
    options = {} if thinking is None else {"enable_thinking": bool(thinking)}
    return Demonstration(messages=messages, tools=tools, template_options=options, where=where)


def _parsed(value: Any, where: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DataError(f"{where} is a text, but not JSON: {error}") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
