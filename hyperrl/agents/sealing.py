"""From recorded turns to the columns of a trajectory: once, at the end of the episode.

All ids of an episode are laid into one read-only array, turn after turn; so are logprobs and versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from struct import Struct, error
from typing import Any

import numpy as np

from hyperrl.agents.base import Steps
from hyperrl.agents.forest import Forest, RecordedTurn
from hyperrl.columns import EventColumns, TurnColumns, places
from hyperrl.drafts import ColumnsDraft, finish_columns, of_turn
from hyperrl.envs.messages import message_text
from hyperrl.sampling import ToolCall
from hyperrl.trajectory import RewardTerm, ToolRecord

__all__ = ["Gathered", "compute_metrics", "seal_events", "seal_reward_terms", "seal_turns"]

_IDS, _LOGPROBS = np.dtype(np.int32), np.dtype(np.float32)


class Gathered:
    """What the turns and steps of an episode hold, one tuple for each attribute; each is looked at once.

    Attributes:
        forest: the recorded turns.
        step_turns, outcomes: of what reached the environment: the turn, and what came of it.
        laid: the ids of all turns, in parts that follow each other.
        starts: n + 1 positions in them: where each turn begins, and where the last one ends.
        action_starts: n positions in them.
        sampled: whether each turn was sampled here.
        parents, temperatures, stop_reasons, seats, uses, observations, texts, tool_calls: of each turn.
        tool_records, reward_terms: of each step.
    """

    def __init__(self, forest: Forest, steps: Steps) -> None:
        self.forest, turns = forest, forest.turns
        self.step_turns, self.outcomes = steps.turns, steps.outcomes
        rows: list[tuple[Any, ...]] = [
            (
                turn.ids_start,
                turn.action_start,
                turn.logprobs_start,
                turn.parent_index,
                turn.temperature,
                turn.stop_reason,
                turn.seat,
                turn.use,
                turn.observation,
                turn.text,
                turn.tool_calls,
            )
            for turn in turns
        ]
        columns: Any = zip(*rows, strict=True) if rows else [()] * 11
        (
            starts,
            self.action_starts,
            drawn_starts,
            self.parents,
            self.temperatures,
            self.stop_reasons,
            self.seats,
            self.uses,
            self.observations,
            self.texts,
            self.tool_calls,
        ) = columns
        self.sampled = tuple([start >= 0 for start in drawn_starts])
        if rows and forest.is_chain:
            self.laid, self.starts = _chain_ids(turns[-1]), (*starts, turns[-1].ids_end)
        else:
            self.laid, self.starts, self.action_starts = _laid_out(turns)
        self.tool_records = [outcome.tool_records for outcome in self.outcomes]
        self.reward_terms = [outcome.reward_terms for outcome in self.outcomes]


Laid = Sequence[Sequence[int]]
"""Ids, in parts that follow each other."""


def seal_turns(gathered: Gathered, final_context_ids: Sequence[int]) -> TurnColumns:
    """Return the turns, and what was read after the last action."""
    laid = gathered.laid
    ids = b"".join(map(_packed, (*laid, final_context_ids) if final_context_ids else laid))
    draft = ColumnsDraft()
    draft.ids = np.frombuffer(ids, _IDS)
    draft.starts, draft.action_starts = gathered.starts, gathered.action_starts
    draft.logprobs = np.frombuffer(bytes(gathered.forest.logprobs), _LOGPROBS)
    draft.policy_versions = np.frombuffer(bytes(gathered.forest.policy_versions), _IDS)
    draft.sampled, draft.parents = gathered.sampled, gathered.parents
    draft.temperatures = gathered.temperatures
    draft.stop_reasons, draft.policies, draft.uses = gathered.stop_reasons, gathered.seats, gathered.uses
    return finish_columns(draft)


def _chain_ids(last: RecordedTurn) -> Laid:
    """Return the ids of turns that lie one after the other already, ``last`` being the last of them."""
    conversation = last.conversation
    if last.action_start == len(conversation.prompt):
        return conversation.prompt, conversation.said
    return (conversation.prompt[: last.ids_end],)  # what is more was of a request that was not answered


def _laid_out(turns: Sequence[RecordedTurn]) -> tuple[Laid, tuple[int, ...], tuple[int, ...]]:
    """Return the ids of each turn, and where turns and actions begin when they follow each other."""
    laid, starts, actions = [], [0], []
    for turn in turns:
        laid.append(turn.conversation.ids[turn.ids_start : turn.ids_end])
        actions.append(starts[-1] + turn.action_start - turn.ids_start)
        starts.append(starts[-1] + len(laid[-1]))
    return laid, tuple(starts), tuple(actions)


def _packed(ids: Sequence[int]) -> bytes:
    """Return ids as C integers; it takes half as long as ``np.array``."""
    try:
        return Struct(f"{len(ids)}i").pack(*ids)
    except error:
        return np.array(ids, np.int32).tobytes()  # raises what says which id is none


def seal_events(gathered: Gathered) -> EventColumns:
    """Return one event a turn, and one for what was read after the last action.

    A call that no tool answered is recorded with its parse status, or as ``not_run``. What a program ran
    by itself is recorded with the result that the policy read.
    """
    turns, stepping, calls = gathered.forest.turns, gathered.step_turns, gathered.tool_records
    every = places(len(turns))
    stepped: tuple[bool, ...] = (True,) * len(turns)
    if tuple(stepping) != every:
        calls, stepped = _by_turn(gathered)
    if any(gathered.tool_calls):
        calls, results = list(calls), _results(turns)
        for turn in turns:
            if turn.tool_calls:
                read = results.get(turn.index, {})
                calls[turn.index] = _call_records(turn, calls[turn.index], read)
    columns = EventColumns(every, gathered.observations, gathered.texts, tuple(calls), stepped)
    last = gathered.outcomes[-1].observation if stepping else ""
    unread = bool(last) and (stepping[-1] is None or stepping[-1] == len(turns) - 1)
    return columns.with_final(str(last)) if unread else columns


def _by_turn(gathered: Gathered) -> tuple[list[tuple[ToolRecord, ...]], tuple[bool, ...]]:
    """Return what the environment's tools did in each turn, and whether it reached the environment."""
    every, found = gathered.forest.turns, dict[int | None, tuple[ToolRecord, ...]]()
    for turn, records in zip(gathered.step_turns, gathered.tool_records, strict=True):
        found[turn] = (*found.get(turn, ()), *records)
    return [found.get(turn.index, ()) for turn in every], tuple([turn.index in found for turn in every])


def seal_reward_terms(
    gathered: Gathered, late: Sequence[tuple[int | None, RewardTerm]] = ()
) -> tuple[RewardTerm, ...]:
    """Return every reward term with the turn that earned it; ``late`` ones were scored without a step."""
    turns = gathered.step_turns
    earned = [(turns[step], terms) for step, terms in enumerate(gathered.reward_terms) if terms]
    terms = [of_turn(term, turn) for turn, terms in earned for term in terms]
    return (*terms, *[of_turn(term, turn) for turn, term in late]) if late else tuple(terms)


def compute_metrics(gathered: Gathered, roots: Mapping[str, int]) -> dict[str, float]:
    """Return the numbers of an episode.

    ``turns``, ``steps``; ``context_tokens`` and ``action_tokens``; ``tool_calls`` and
    ``tool_calls_<status>``; ``new_root_rate``: roots after a seat's first, per turn, and
    ``new_roots_<reason>``; ``delivered_fraction``: sampled tokens that reach learning, of all that were
    sampled; ``endpoint_prompt_tokens`` and ``endpoint_completion_tokens`` where an endpoint
    reports them.
    """
    turns, starts = len(gathered.parents), gathered.starts
    action_tokens = sum(starts) - sum(gathered.action_starts)  # the first turn starts at 0
    extra = dict(roots)
    extra.pop("first", None)
    records = list(chain.from_iterable(filter(None, gathered.tool_records)))
    metrics: dict[str, float] = {
        "turns": turns,
        "steps": len(gathered.tool_records),
        "context_tokens": starts[-1] - action_tokens,
        "action_tokens": action_tokens,
        "new_root_rate": sum(extra.values()) / turns if extra and turns else 0.0,
        "tool_calls": len(records),
    }
    if records:
        statuses = Counter([record.status for record in records])
        metrics.update({f"tool_calls_{status}": count for status, count in statuses.items()})
    if extra:
        metrics.update({f"new_roots_{reason}": count for reason, count in extra.items()})
    if action_tokens:  # all sampled here: of what an endpoint answers there are no tokens
        metrics["delivered_fraction"] = (action_tokens - _unlearned_tokens(gathered)) / action_tokens
    if False in gathered.sampled:
        metrics.update(_reported_tokens(gathered.forest.turns))
    return metrics


def _unlearned_tokens(gathered: Gathered) -> int:
    """Return how many tokens were sampled in turns that are not learned from."""
    if gathered.uses.count("train") == len(gathered.uses):
        return 0
    rows = zip(gathered.uses, gathered.action_starts, gathered.starts[1:], strict=True)
    return sum([end - start for use, start, end in rows if use != "train"])


def _reported_tokens(turns: Sequence[RecordedTurn]) -> dict[str, float]:
    """Return the tokens that endpoints read and sampled, where they reported them."""
    reported = [turn.usage for turn in turns if turn.logprobs_start < 0 and turn.usage is not None]
    if not reported:
        return {}
    prompt, completion = map(sum, zip(*reported, strict=True))
    return {"endpoint_prompt_tokens": prompt, "endpoint_completion_tokens": completion}


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
