"""From recorded turns to the columns of a trajectory: once, at the end of the episode.

All ids of an episode are laid into one read-only array, turn after turn; so are logprobs and versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from struct import Struct, error

import numpy as np
from numpy.typing import NDArray

from hyperrl.agents.base import Steps
from hyperrl.agents.forest import Forest, RecordedTurn
from hyperrl.columns import EventColumns, TurnColumns
from hyperrl.envs.messages import message_text
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import RewardTerm, ToolRecord

__all__ = ["compute_metrics", "seal_events", "seal_reward_terms", "seal_turns"]

_TERMS, _RECORDS, _CALLS = attrgetter("reward_terms"), attrgetter("tool_records"), attrgetter("tool_calls")


def seal_turns(forest: Forest, final_context_ids: Sequence[int]) -> TurnColumns:
    """Return the turns, and what was read after the last action."""
    turns = forest.turns
    rows = [
        (t.ids_start, t.action_start, t.logprobs_start >= 0, t.parent_index, t.temperature, t.stop_reason)
        for t in turns
    ]
    starts, actions, sampled, parents, temperatures, stop_reasons = (
        zip(*rows, strict=True) if rows else [()] * 6
    )
    if turns and forest.is_chain:  # they lie one after the other already
        laid, end = turns[-1].conversation.ids, turns[-1].ids_end
        if len(laid) > end:  # of a request that was not answered
            laid = laid[:end]
    else:
        laid, starts, actions = _laid_out(turns)
    return TurnColumns(
        ids=_sealed_ids((*laid, *final_context_ids) if final_context_ids else laid),
        starts=(*starts, len(laid)),
        action_starts=actions,
        logprobs=np.frombuffer(forest.logprobs.tobytes(), np.float32),
        policy_versions=np.frombuffer(forest.policy_versions.tobytes(), np.int32),
        sampled=sampled,
        parents=parents,
        temperatures=temperatures,
        stop_reasons=stop_reasons,
        policies=tuple([turn.seat for turn in turns]),
        uses=tuple([turn.use for turn in turns]),
    )


def _laid_out(turns: Sequence[RecordedTurn]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return all ids, turn after turn, and where in them turns and actions begin."""
    laid: list[int] = []
    starts, actions = [], []
    for turn in turns:
        starts.append(len(laid))
        actions.append(len(laid) + turn.action_start - turn.ids_start)
        laid += turn.conversation.ids[turn.ids_start : turn.ids_end]
    return tuple(laid), tuple(starts), tuple(actions)


def _sealed_ids(ids: tuple[int, ...]) -> NDArray[np.int32]:
    """Return ids as a read-only array; by way of bytes, which takes half as long as ``np.array``."""
    try:
        return np.frombuffer(Struct(f"{len(ids)}i").pack(*ids), np.int32)
    except error:
        return np.array(ids, np.int32)  # raises what says which id is none


def seal_events(turns: Sequence[RecordedTurn], steps: Steps) -> EventColumns:
    """Return one event a turn, and one for what was read after the last action.

    A call that no tool answered is recorded with its parse status, or as ``not_run``. What a program ran
    by itself is recorded with the result that the policy read.
    """
    count = len(turns)
    calls = list(map(_RECORDS, steps.outcomes))
    stepped = (True,) * count
    if steps.turns != list(range(count)):
        calls, stepped = _by_turn(steps, count)
    if any(map(_CALLS, turns)):
        results = _results(turns)
        for turn in turns:
            if turn.tool_calls:
                read = results.get(turn.index, {})
                calls[turn.index] = _call_records(turn, calls[turn.index], read)
    columns = EventColumns(
        turns=tuple(range(count)),
        observations=tuple([turn.observation for turn in turns]),
        actions=tuple([turn.text for turn in turns]),
        tool_calls=tuple(calls),
        stepped=stepped,
    )
    last = steps.outcomes[-1].observation if steps.outcomes else ""
    unread = bool(last) and (steps.turns[-1] is None or steps.turns[-1] == count - 1)
    return columns.with_final(str(last)) if unread else columns


def _by_turn(steps: Steps, count: int) -> tuple[list[tuple[ToolRecord, ...]], tuple[bool, ...]]:
    """Return what the environment's tools did in each turn, and whether it reached the environment."""
    found: dict[int | None, tuple[ToolRecord, ...]] = {}
    for turn, outcome, _ in steps:
        found[turn] = (*found.get(turn, ()), *outcome.tool_records)
    return [found.get(turn, ()) for turn in range(count)], tuple([turn in found for turn in range(count)])


def seal_reward_terms(
    steps: Steps, late: Sequence[tuple[int | None, RewardTerm]] = ()
) -> tuple[RewardTerm, ...]:
    """Return every reward term with the turn that earned it; ``late`` ones were scored without a step."""
    earned = zip(steps.turns, map(_TERMS, steps.outcomes), strict=True)
    terms = [_of_turn(term, turn) for turn, terms in earned for term in terms]
    return (*terms, *[_of_turn(term, turn) for turn, term in late])


def _of_turn(term: RewardTerm, turn: int | None) -> RewardTerm:
    return RewardTerm(
        name=term.name, score=term.score, weight=term.weight, turn=turn, error=term.error, cause=term.cause
    )


def compute_metrics(
    turns: Sequence[RecordedTurn], steps: Steps, roots: Mapping[str, int]
) -> dict[str, float]:
    """Return the numbers of an episode.

    ``turns``, ``steps``; ``context_tokens`` and ``action_tokens``; ``tool_calls`` and
    ``tool_calls_<status>``; ``new_root_rate``: roots after a seat's first, per turn, and
    ``new_roots_<reason>``; ``delivered_fraction``: sampled tokens that reach learning, of all that were
    sampled; ``endpoint_prompt_tokens`` and ``endpoint_completion_tokens`` where an endpoint
    reports them.
    """
    extra = {reason: count for reason, count in roots.items() if reason != "first"}
    action_tokens = _action_tokens(turns)
    metrics: dict[str, float] = {
        "turns": len(turns),
        "steps": len(steps),
        "context_tokens": sum([turn.action_start - turn.ids_start for turn in turns]),
        "action_tokens": action_tokens,
        "new_root_rate": sum(extra.values()) / len(turns) if extra and turns else 0.0,
    }
    records = list(chain.from_iterable(map(_RECORDS, steps.outcomes)))
    metrics["tool_calls"] = len(records)
    if records:
        statuses = Counter([record.status for record in records])
        metrics.update({f"tool_calls_{status}": count for status, count in statuses.items()})
    if extra:
        metrics.update({f"new_roots_{reason}": count for reason, count in extra.items()})
    if action_tokens:  # all sampled here: of what an endpoint answers there are no tokens
        unlearned = _action_tokens([turn for turn in turns if turn.use != "train"])
        metrics["delivered_fraction"] = (action_tokens - unlearned) / action_tokens
    reported = [turn.usage for turn in turns if turn.logprobs_start < 0 and turn.usage is not None]
    if reported:
        metrics["endpoint_prompt_tokens"] = sum(prompt for prompt, _ in reported)
        metrics["endpoint_completion_tokens"] = sum(completion for _, completion in reported)
    return metrics


def _action_tokens(turns: Sequence[RecordedTurn]) -> int:
    return sum([turn.ids_end - turn.action_start for turn in turns])


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
