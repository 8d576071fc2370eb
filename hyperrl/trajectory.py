"""What happened in an episode: frozen records over read-only numpy arrays.

Shapes: C context tokens of a turn, A action tokens of a turn, F final context tokens.

A :class:`Trajectory` is a forest of turns. A turn is what was read since its parent's last token
(``context_ids``) and then what one policy call sampled (``action_ids``). Ids are never made from
text again: concatenating ``context_ids`` and ``action_ids`` along a path gives exactly the tokens
that the policy saw. Every invariant is checked once, when the trajectory is built.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from hyperrl.arrays import identical, seal
from hyperrl.columns import (
    NOT_SAMPLED,
    EventColumns,
    TurnColumns,
    check_layout,
    columns_of,
    surely_valid,
)
from hyperrl.errors import TrajectoryError
from hyperrl.turn_checks import check_outcome, check_references, check_turns

__all__ = [
    "EXCLUDED",
    "NOT_SAMPLED",
    "Event",
    "Failure",
    "Group",
    "GroupId",
    "RewardTerm",
    "StopReason",
    "ToolRecord",
    "Trajectory",
    "TruncationReason",
    "Turn",
    "TurnUse",
]

Ids = NDArray[np.int32]
Logprobs = NDArray[np.float32]
_IDS, _LOGPROBS = np.dtype(np.int32), np.dtype(np.float32)
GroupId = tuple[int, int]
"""``(epoch, data position)``: names the task that the episodes of a group play."""

EXCLUDED = "excluded"
"""Kind of the failure by which the author of a reward leaves an episode out: it does not count."""


class StopReason(StrEnum):
    """Why the sampler stopped. Tool calls are a parse result, not a stop reason."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class TruncationReason(StrEnum):
    """Why we cut an episode short.

    An action cut by its token limit is still scored, so such an episode may count as terminated too.
    """

    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    WALL_CLOCK = "wall_clock"
    CONTEXT = "context"


TurnUse = Literal["train", "context", "side"]
"""``train``: learned from; ``context``: never sampled, only read; ``side``: outside the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an episode or a reward term has no result.

    Attributes:
        kind: short name that failures are counted by, such as ``reward_error`` or ``tool_timeout``.
        stage: where it happened: ``reset``, ``policy``, ``step``, ``tool``, ``reward``, ``program``.
        reason: what a person should read.
        exclude: leave the whole trajectory out of learning.
    """

    kind: str
    stage: str
    reason: str
    exclude: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTerm:
    """One part of the reward; the only place where reward is stored.

    Attributes:
        name: the term's name, unique within a turn.
        score: its value, or ``None`` while it is unscored. Never NaN or infinite.
        weight: factor in the sum; a term of weight 0 is recorded and asked for nothing.
        turn: index of the turn that earned it; ``None`` means the answer turn.
        error: why ``score`` is ``None``.
        cause: short name of why a score is what it is, where the reward says so: ``unparsed`` for a
            0 that means "no answer could be read"; see :mod:`hyperrl.causes`.
    """

    name: str
    score: float | None
    weight: float = 1.0
    turn: int | None = None
    error: Failure | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecord:
    """One tool call of a turn: what was asked, what came back.

    Attributes:
        call_id: id of the call, unique within the episode.
        name: the tool's name as written; empty if none could be read.
        arguments: the arguments exactly as written, before any repair.
        status: ``ok``, a parse status (``invalid_json``, ``unclosed``, ``missing_name``,
            ``malformed``) or an execution status (``unknown_tool``, ``bad_arguments``, ``too_long``,
            ``timeout``, ``error``, ``not_run``).
        result: the text that the policy read as the answer.
        duration_s: seconds spent in the tool.
        repairs: what was mended before the call was understood, in order.
    """

    call_id: str
    name: str
    arguments: str
    status: str
    result: str
    duration_s: float = 0.0
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The readable side of one turn.

    Attributes:
        turn: the turn it belongs to; ``None`` for what was read after the last action.
        observation: the new text that was read before the action.
        action: the text of the action (decoded; never encoded again).
        tool_calls: the calls in the action, in order.
        stepped: the action reached ``env.step``.
    """

    turn: int | None
    observation: str
    action: str = ""
    tool_calls: tuple[ToolRecord, ...] = ()
    stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """What was read, then the one policy call that answered it.

    Attributes:
        parent: index of the turn whose tokens this prompt extends; ``None`` starts a fresh context.
        context_ids: i32[C], read since the parent's last token (the whole prompt for a root).
        action_ids: i32[A], exactly what the policy sampled.
        behavior_logprobs: f32[A] in nats, under the distribution that drew the token:
            ``log_softmax(logits / temperature)``, untruncated; at temperature 0 reported at 1;
            ``None`` if the action was not sampled by us.
        policy_versions: i32[A], the published version that drew each token; ``NOT_SAMPLED``
            throughout where ``behavior_logprobs`` is ``None``.
        temperature: the temperature that drew the action.
        stop_reason: why the sampler stopped.
        policy: the seat that spoke.
        use: whether it is learned from.
    """

    parent: int | None
    context_ids: Ids
    action_ids: Ids
    behavior_logprobs: Logprobs | None
    policy_versions: Ids
    temperature: float = 1.0
    stop_reason: StopReason = StopReason.STOP
    policy: str = "main"
    use: TurnUse = "train"

    @property
    def sampled(self) -> bool:
        """Whether our own sampler drew the action."""
        return self.behavior_logprobs is not None

    def __eq__(self, other: object) -> bool:
        """Compare bit for bit: two NaNs with the same bits are equal, 0.0 and -0.0 are not."""
        if not isinstance(other, Turn):
            return NotImplemented
        return all(identical(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))


class _Deferred:
    """Where a trajectory keeps what its turns and events are made of."""

    __slots__ = ("_columns", "_event_columns")
    _columns: TurnColumns | None
    _event_columns: EventColumns | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory(_Deferred):
    """The immutable record of one episode. Building one checks every invariant.

    Attributes:
        run_id: the run that played it.
        group_id: ``(epoch, data position)`` of the task; the members of a group share it.
        sample_index: position within the group, from 0.
        task_id: the task's own name.
        env_id, env_version, env_kwargs: the environment and how it was made.
        reset_options: the ``options`` given to ``reset``.
        seed: the seed given to ``reset``.
        program: name of the agent program that played.
        sandbox_level: the isolation that tools ran in.
        turns: the forest of turns, parents before children.
        final_context_ids: i32[F], what was read after the last action.
        events: the readable side of the turns.
        reward_terms: every term of the reward.
        terminated: the task ended.
        truncated: we cut it; ``truncation_reason`` says why.
        failure: why the episode is not usable, if it is not.
        metrics: numbers about the episode.
        timings: seconds by stage; never part of an environment's ``info``.

    Raises:
        TrajectoryError: an invariant does not hold; the message names the turn and the values.
    """

    run_id: str
    group_id: GroupId
    sample_index: int
    task_id: str
    env_id: str
    env_version: str = "0"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reset_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    program: str = "turn_loop"
    sandbox_level: str = "none"
    turns: tuple[Turn, ...] = ()
    final_context_ids: Ids = field(default_factory=lambda: np.zeros(0, np.int32))
    events: tuple[Event, ...] = ()
    reward_terms: tuple[RewardTerm, ...] = ()
    terminated: bool = False
    truncated: bool = False
    truncation_reason: TruncationReason | None = None
    failure: Failure | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_columns(cls, columns: TurnColumns, events: EventColumns, **values: Any) -> Self:
        """Build a trajectory whose turns and events are made when they are first asked for.

        Args:
            columns: the turns, and what was read after the last action.
            events: the events.
            values: the other attributes.

        Raises:
            TrajectoryError: an invariant does not hold, as for a trajectory that is built of turns.
        """
        turns: Any = columns
        seen: Any = events
        final = columns.ids[columns.starts[-1] :]
        return cls(turns=turns, events=seen, final_context_ids=final, **values)

    def __post_init__(self) -> None:
        put = object.__setattr__
        turns: Any = self.turns
        events: Any = self.events
        if type(turns) is TurnColumns:
            put(self, "_columns", turns)
            object.__delattr__(self, "turns")
            check_layout(turns)
            if not surely_valid(turns):
                check_turns(self.turns)
        else:
            turns = _sealed_turns(turns)
            put(self, "_columns", None)
            put(self, "turns", turns)
        by_columns = type(events) is EventColumns
        put(self, "_event_columns", events if by_columns else None)
        if by_columns:
            object.__delattr__(self, "events")
        put(self, "final_context_ids", seal(self.final_context_ids, _IDS, "final_context_ids"))
        put(self, "env_kwargs", MappingProxyType(dict(self.env_kwargs)))
        put(self, "reset_options", MappingProxyType(dict(self.reset_options)))
        put(self, "metrics", MappingProxyType(dict(self.metrics)))
        put(self, "timings", MappingProxyType(dict(self.timings)))
        check_outcome(self)
        named = [term.turn for term in self.reward_terms]
        check_references(len(turns), named, events.turns if by_columns else [event.turn for event in events])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Make ``turns`` or ``events`` of their columns; asked only where they are not there yet."""
            if name not in _MADE_OF_COLUMNS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            made = _MADE_OF_COLUMNS[name](self)
            object.__setattr__(self, name, made)
            return made

    @property
    def columns(self) -> TurnColumns:
        """The turns as columns; made once, unless the trajectory was built of them."""
        if self._columns is None:
            object.__setattr__(self, "_columns", columns_of(self.turns))
        return cast(TurnColumns, self._columns)

    @property
    def tool_records(self) -> list[ToolRecord]:
        """Every tool call of the episode, in order."""
        if self._event_columns is not None:
            return list(chain.from_iterable(self._event_columns.tool_calls))
        return [record for event in self.events for record in event.tool_calls]

    @property
    def reward(self) -> float | None:
        """Sum of ``score * weight``; ``None`` while a term that counts is unscored, or none exists."""
        counted = [term for term in self.reward_terms if term.weight != 0]
        if not counted or any(term.score is None for term in counted):
            return None
        return math.fsum(cast(float, term.score) * term.weight for term in counted)

    @property
    def excluded(self) -> Failure | None:
        """Why the episode does not count, where a reward says so, whatever that term's weight is."""
        errors = (term.error for term in self.reward_terms)
        return next((error for error in errors if error is not None and error.kind == EXCLUDED), None)

    @property
    def usable(self) -> bool:
        """Whether learning may use it: scored, not excluded by its author, nor by a failure."""
        failed = self.failure is not None and self.failure.exclude
        return not failed and self.excluded is None and self.reward is not None

    @property
    def answer_turn(self) -> int | None:
        """The last turn of the main path whose action reached ``env.step``."""
        path, events = set(self.main_path), self._event_columns
        if events is not None:
            stepped = [t for t, stepped in zip(events.turns, events.stepped, strict=True) if stepped]
        else:
            stepped = [event.turn for event in self.events if event.stepped]
        return max((turn for turn in stepped if turn in path), default=None)

    @property
    def main_path(self) -> tuple[int, ...]:
        """Root-to-leaf indices of the path that ends in the last ``train`` turn of the main seat.

        The main seat is the one that spoke the first ``train`` turn.
        """
        policies = self.columns.policies
        learned = [i for i, use in enumerate(self.columns.uses) if use == "train"]
        if not learned:
            return ()
        seat = policies[learned[0]]
        return self.path(next(i for i in reversed(learned) if policies[i] == seat))

    def path(self, turn: int) -> tuple[int, ...]:
        """Indices from the root to ``turn``, both included."""
        found, parents = [turn], self.columns.parents
        while (parent := parents[found[-1]]) is not None:
            found.append(parent)
        return tuple(reversed(found))

    def prompt_ids(self, turn: int) -> Ids:
        """i32[T]: every token that stood before the first action token of ``turn``."""
        path, columns = self.path(turn), self.columns
        starts, own = columns.starts, slice(columns.starts[turn], columns.action_starts[turn])
        parts = [columns.ids[starts[i] : starts[i + 1]] for i in path[:-1]]
        return np.concatenate([*parts, columns.ids[own]])

    def with_terms(self, *terms: RewardTerm) -> Trajectory:
        """Return a copy with more reward terms (group rewards, judges, reward models)."""
        columns, events = self._columns, self._event_columns
        built: Any = {} if events is None else {"turns": columns, "events": events}
        return dataclasses.replace(self, reward_terms=(*self.reward_terms, *terms), **built)

    def __eq__(self, other: object) -> bool:
        """Compare bit for bit, like :class:`Turn`."""
        if not isinstance(other, Trajectory):
            return NotImplemented
        return all(identical(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))

    def __repr__(self) -> str:
        """Name the episode; its arrays would fill pages."""
        return (
            f"<Trajectory {self.env_id} task {self.task_id!r} group {self.group_id}"
            f" sample {self.sample_index}: {len(self.columns)} turns, reward {self.reward}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain: dict[str, Any] = {
            k: dict(v) if isinstance(v, MappingProxyType) else v for k, v in values.items()
        }
        return functools.partial(Trajectory, **plain), ()


@dataclass(frozen=True, slots=True)
class Group:
    """Trajectories of one task that are compared with each other."""

    group_id: GroupId
    trajectories: tuple[Trajectory, ...]

    def __post_init__(self) -> None:
        strangers = [t.group_id for t in self.trajectories if t.group_id != self.group_id]
        if strangers:
            raise TrajectoryError(f"group {self.group_id} holds a trajectory of {strangers[0]}")

    def __repr__(self) -> str:
        return f"<Group {self.group_id}: {len(self.trajectories)} trajectories>"

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    def __len__(self) -> int:
        return len(self.trajectories)

    @property
    def usable(self) -> tuple[Trajectory, ...]:
        """The members that learning may use."""
        return tuple(t for t in self.trajectories if t.usable)


def _turns_of(columns: TurnColumns) -> tuple[Turn, ...]:
    return tuple([Turn(**fields) for fields in columns.turn_fields()])


def _events_of(columns: EventColumns) -> tuple[Event, ...]:
    return tuple(
        [
            Event(turn=turn, observation=observation, action=action, tool_calls=calls, stepped=stepped)
            for turn, observation, action, calls, stepped in zip(*columns, strict=True)
        ]
    )


_MADE_OF_COLUMNS = {
    "turns": lambda trajectory: _turns_of(trajectory._columns),
    "events": lambda trajectory: _events_of(trajectory._event_columns),
}


def _sealed_turn(turn: Turn, index: int) -> Turn:
    """Return the turn itself where its arrays are sealed already, as those of a rollout are."""
    context = seal(turn.context_ids, _IDS, "context_ids", index)
    action = seal(turn.action_ids, _IDS, "action_ids", index)
    versions = seal(turn.policy_versions, _IDS, "policy_versions", index)
    drawn = turn.behavior_logprobs
    logprobs = None if drawn is None else seal(drawn, _LOGPROBS, "behavior_logprobs", index)
    same = context is turn.context_ids and action is turn.action_ids and versions is turn.policy_versions
    if same and logprobs is drawn:
        return turn
    return dataclasses.replace(
        turn, context_ids=context, action_ids=action, policy_versions=versions, behavior_logprobs=logprobs
    )


def _sealed_turns(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    sealed = tuple([_sealed_turn(turn, index) for index, turn in enumerate(turns)])
    check_turns(sealed)
    return sealed
