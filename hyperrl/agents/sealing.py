"""From recorded turns to the columns of a trajectory: once, at the end of the episode.

All ids of an episode are laid into one read-only array, turn after turn; so are logprobs and versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperrl.agents.base import StepRecord
from hyperrl.agents.forest import Forest, RecordedTurn
from hyperrl.columns import EventColumns, TurnColumns
from hyperrl.envs.messages import message_text
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import RewardTerm, ToolRecord

__all__ = ["compute_metrics", "seal_events", "seal_reward_terms", "seal_turns"]

_PARTS = attrgetter("ids_start", "action_start", "parent_index", "temperature", "stop_reason", "seat", "use")


def seal_turns(forest: Forest, final_context_ids: Sequence[int]) -> TurnColumns:
    """Return the turns, and what was read after the last action."""
    turns = forest.turns
    laid, starts, actions = _laid_out(forest)
    end = len(laid)
    laid += tuple(final_context_ids)
    _, _, parents, temperatures, stop_reasons, seats, uses = (
        zip(*map(_PARTS, turns), strict=True) if turns else [()] * 7
    )
    return TurnColumns(
        ids=_sealed(np.array(laid, np.int32)),
        starts=(*starts, end),
        action_starts=actions,
        logprobs=_sealed(np.array(forest.logprobs, np.float32)),
        policy_versions=_sealed(np.array(forest.policy_versions, np.int32)),
        sampled=tuple([turn.logprobs_start >= 0 for turn in turns]),
        parents=parents,
        temperatures=temperatures,
        stop_reasons=stop_reasons,
        policies=seats,
        uses=uses,
    )


def _laid_out(forest: Forest) -> tuple[tuple[int, ...], Sequence[int], tuple[int, ...]]:
    """Return all ids, turn after turn, and where in them turns and actions begin."""
    turns = forest.turns
    if forest.is_chain and turns:  # they lie so already
        starts = [turn.ids_start for turn in turns]
        actions = tuple([turn.action_start for turn in turns])
        return turns[0].conversation.ids[: turns[-1].ids_end], starts, actions
    laid: list[int] = []
    starts, found = [], []
    for turn in turns:
        starts.append(len(laid))
        found.append(len(laid) + turn.action_start - turn.ids_start)
        laid += turn.conversation.ids[turn.ids_start : turn.ids_end]
    return tuple(laid), starts, tuple(found)


def seal_events(turns: Sequence[RecordedTurn], steps: Sequence[StepRecord]) -> EventColumns:
    """Return one event a turn, and one for what was read after the last action.

    A call that no tool answered is recorded with its parse status, or as ``not_run``. What a program ran
    by itself is recorded with the result that the policy read.
    """
    results = _results(turns)
    stepped: dict[int | None, tuple[ToolRecord, ...]] = {}
    for turn, outcome, _ in steps:
        stepped[turn] = (*stepped[turn], *outcome.tool_records) if turn in stepped else outcome.tool_records
    columns = EventColumns(
        turns=list(range(len(turns))),
        observations=[turn.observation for turn in turns],
        actions=[turn.text for turn in turns],
        tool_calls=[
            _call_records(turn, stepped.get(turn.index, ()), results.get(turn.index, {}))
            if turn.tool_calls
            else stepped.get(turn.index, ())
            for turn in turns
        ],
        stepped=list(map(stepped.__contains__, range(len(turns)))),
    )
    if steps and steps[-1].outcome.observation and _is_last(turns, steps[-1]):
        columns.add(str(steps[-1].outcome.observation))
    return columns


def seal_reward_terms(
    steps: Sequence[StepRecord], late: Sequence[tuple[int | None, RewardTerm]] = ()
) -> tuple[RewardTerm, ...]:
    """Return every reward term with the turn that earned it; ``late`` ones were scored without a step."""
    earned = [(step.turn, term) for step in steps for term in step.outcome.reward_terms]
    return tuple([_of_turn(term, turn) for turn, term in (*earned, *late)])


def _of_turn(term: RewardTerm, turn: int | None) -> RewardTerm:
    return RewardTerm(
        name=term.name, score=term.score, weight=term.weight, turn=turn, error=term.error, cause=term.cause
    )


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
    records = [record for _, outcome, _ in steps for record in outcome.tool_records]
    metrics["tool_calls"] = len(records)
    if records:
        statuses = Counter([record.status for record in records])
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
