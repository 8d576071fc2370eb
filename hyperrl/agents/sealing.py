"""From recorded turns to the immutable arrays and events of a trajectory.

All ids of an episode are laid into one read-only array, turn after turn; so are logprobs and versions.
A turn holds views of them. That is done once, at the end of the episode.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperrl.agents.base import StepRecord
from hyperrl.agents.forest import Forest, RecordedTurn
from hyperrl.envs.messages import message_text
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import Event, RewardTerm, ToolRecord, Turn

__all__ = ["compute_metrics", "seal_events", "seal_reward_terms", "seal_turns"]

Ids = NDArray[np.int32]


def seal_turns(forest: Forest, final_context_ids: Sequence[int]) -> tuple[tuple[Turn, ...], Ids]:
    """Return the turns, as views of one read-only array per field, and the final context."""
    logprobs = _sealed(np.array(forest.logprobs, np.float32))
    versions = _sealed(np.array(forest.policy_versions, np.int32))
    turns = forest.turns
    laid: list[int] = []
    for turn in turns:
        laid += turn.conversation.ids[turn.ids_start : turn.ids_end]
    laid += final_context_ids
    ids = _sealed(np.frombuffer(array("i", laid), np.int32))
    sealed, start = [], 0
    for turn in turns:
        action = start + turn.action_start - turn.ids_start
        end = start + turn.ids_end - turn.ids_start
        drawn = slice(turn.logprobs_start, turn.logprobs_start + end - action)
        sampled = turn.logprobs_start >= 0
        sealed.append(
            Turn(
                parent=None if turn.parent is None else turn.parent.index,
                context_ids=ids[start:action],
                action_ids=ids[action:end],
                behavior_logprobs=logprobs[drawn] if sampled else None,
                policy_versions=versions[drawn] if sampled else versions[:0],
                temperature=turn.temperature,
                stop_reason=turn.stop_reason,
                policy=turn.seat,
                use=turn.use,
            )
        )
        start = end
    return tuple(sealed), ids[start:]


def seal_events(turns: Sequence[RecordedTurn], steps: Sequence[StepRecord]) -> tuple[Event, ...]:
    """Return one event a turn, and one for what was read after the last action.

    A call that no tool answered is recorded with its parse status, or as ``not_run``. What a program ran
    by itself is recorded with the result that the policy read.
    """
    results = _results(turns)
    stepped: dict[int | None, tuple[ToolRecord, ...]] = {}
    for step in steps:
        stepped[step.turn] = (*stepped.get(step.turn, ()), *step.outcome.tool_records)
    events = [
        Event(
            turn=turn.index,
            observation=_read(turn),
            action=turn.text,
            tool_calls=_call_records(turn, stepped.get(turn.index, ()), results.get(turn.index, {})),
            stepped=turn.index in stepped,
        )
        for turn in turns
    ]
    if steps and steps[-1].outcome.observation and _is_last(turns, steps[-1]):
        events.append(Event(turn=None, observation=str(steps[-1].outcome.observation)))
    return tuple(events)


def seal_reward_terms(
    steps: Sequence[StepRecord], late: Sequence[tuple[int | None, RewardTerm]] = ()
) -> tuple[RewardTerm, ...]:
    """Return every reward term with the turn that earned it; ``late`` ones were scored without a step."""
    earned = [(step.turn, term) for step in steps for term in step.outcome.reward_terms]
    return tuple(dataclasses.replace(term, turn=turn) for turn, term in (*earned, *late))


def compute_metrics(
    turns: Sequence[RecordedTurn], steps: Sequence[StepRecord], roots: Mapping[str, int]
) -> dict[str, float]:
    """Return the numbers of an episode.

    ``turns``, ``steps``; ``context_tokens`` and ``action_tokens``; ``tool_calls`` and
    ``tool_calls_<status>``; ``new_root_rate``: roots after a seat's first, per turn, and
    ``new_roots_<reason>``; ``delivered_fraction``: sampled tokens that reach learning, of all that were
    sampled; ``endpoint_prompt_tokens`` and ``endpoint_completion_tokens`` where an endpoint
    reports them.
    """
    extra = {reason: count for reason, count in roots.items() if reason != "first"}
    metrics: dict[str, float] = {
        "turns": len(turns),
        "steps": len(steps),
        "context_tokens": sum([turn.action_start - turn.ids_start for turn in turns]),
        "action_tokens": _action_tokens(turns),
        "new_root_rate": sum(extra.values()) / len(turns) if turns else 0.0,
    }
    statuses: dict[str, int] = {}
    for step in steps:
        for record in step.outcome.tool_records:
            statuses[record.status] = statuses.get(record.status, 0) + 1
    metrics["tool_calls"] = sum(statuses.values())
    metrics.update({f"tool_calls_{status}": count for status, count in statuses.items()})
    metrics.update({f"new_roots_{reason}": count for reason, count in extra.items()})
    sampled = [turn for turn in turns if turn.logprobs_start >= 0]
    if tokens := _action_tokens(sampled):
        learned = _action_tokens([turn for turn in sampled if turn.use == "train"])
        metrics["delivered_fraction"] = learned / tokens
    reported = [turn.usage for turn in turns if turn.logprobs_start < 0 and turn.usage is not None]
    if reported:
        metrics["endpoint_prompt_tokens"] = sum(prompt for prompt, _ in reported)
        metrics["endpoint_completion_tokens"] = sum(completion for _, completion in reported)
    return metrics


def _action_tokens(turns: Sequence[RecordedTurn]) -> int:
    return sum([turn.ids_end - turn.action_start for turn in turns])


def _is_last(turns: Sequence[RecordedTurn], step: StepRecord) -> bool:
    """Whether nothing was asked after ``step``, so that its observation was read by nobody."""
    return step.turn is None or step.turn == len(turns) - 1


def _read(turn: RecordedTurn) -> str:
    """Return the text that was new before the turn's action."""
    new = turn.new_messages
    return message_text(new[0]) if len(new) == 1 else "\n\n".join(filter(None, map(message_text, new)))


def _results(turns: Sequence[RecordedTurn]) -> dict[int, dict[str, str]]:
    """Return, by turn and call, what the policy read as the answer to its calls."""
    results: dict[int, dict[str, str]] = {}
    for turn in turns:
        if turn.parent is None or not turn.parent.tool_calls:
            continue
        read = results.setdefault(turn.parent.index, {})
        for message in turn.new_messages:
            if message.get("role") == "tool":
                read.setdefault(str(message.get("tool_call_id")), message_text(message))
    return results


def _call_records(
    turn: RecordedTurn, stepped: tuple[ToolRecord, ...], results: Mapping[str, str]
) -> tuple[ToolRecord, ...]:
    """Return a record for each call: the environment's, and those that a program answered by itself."""
    if not stepped:
        return tuple([_unstepped(call, results) for call in turn.tool_calls])
    known = {record.call_id for record in stepped}
    own = [call for call in turn.tool_calls if call.call_id in results and call.call_id not in known]
    return (*stepped, *[_unstepped(call, results) for call in own]) if own else stepped


def _unstepped(call: ToolCall, results: Mapping[str, str]) -> ToolRecord:
    """Return the record of a call that was not run by the environment."""
    answered = call.call_id in results
    return ToolRecord(
        call_id=call.call_id,
        name=call.name,
        arguments=call.raw,
        status="not_run" if call.status == "ok" and not answered else call.status,
        result=results.get(call.call_id, ""),
        repairs=call.repairs,
    )


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
