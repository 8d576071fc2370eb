"""Records that a rollout makes of every episode, filled one attribute after the other and then frozen.

To set an attribute of a frozen dataclass takes 0.1 us, and keywords that are handed on are copied each time;
to set one of a draft takes 5 ns. What ``__init__`` and ``__post_init__`` see to is seen to here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

import numpy as np

from hyperrl.arrays import seal
from hyperrl.columns import EventColumns, TurnColumns, check_layout, surely_valid
from hyperrl.trajectory import RewardTerm, Trajectory, Turn
from hyperrl.turn_checks import check_outcome, check_references, check_turns

__all__ = ["ColumnsDraft", "TrajectoryDraft", "finish_columns", "finish_trajectory", "of_turn", "scored_term"]

_IDS = np.dtype(np.int32)
_NO_IDS = np.frombuffer(b"", _IDS)


def _draft_of(frozen: Any) -> type[Any]:
    """Return a class of the same layout, so that ``draft.__class__ = frozen`` freezes an instance."""
    return type(f"{frozen.__name__}Draft", frozen.__bases__, {"__slots__": frozen.__slots__})


ColumnsDraft = _draft_of(TurnColumns)
TrajectoryDraft = _draft_of(Trajectory)
_TermDraft = _draft_of(RewardTerm)


def finish_columns(draft: Any) -> TurnColumns:
    """Freeze a ``ColumnsDraft`` that has all attributes of :class:`hyperrl.columns.TurnColumns`."""
    draft.__class__ = TurnColumns
    return cast(TurnColumns, draft)


def finish_trajectory(draft: Any, columns: TurnColumns, events: EventColumns) -> Trajectory:
    """Freeze a ``TrajectoryDraft``, with all checks of :meth:`hyperrl.trajectory.Trajectory.from_columns`.

    Args:
        draft: has all attributes of a trajectory but ``turns``, ``final_context_ids`` and ``events``. Its
            ``metrics`` and ``timings`` are kept as they are, and must not be changed any more.
        columns: the turns, and what was read after the last action.
        events: the events.

    Raises:
        TrajectoryError: an invariant does not hold, as for a trajectory that is built of turns.
    """
    check_layout(columns)
    draft._columns, draft._event_columns = columns, events
    if not surely_valid(columns):
        draft.turns = tuple([Turn(**values) for values in columns.turn_fields()])
        check_turns(draft.turns)
    end = columns.starts[-1]
    final = _NO_IDS if end == len(columns.ids) else columns.ids[end:]
    draft.final_context_ids = seal(final, _IDS, "final_context_ids")
    draft.env_kwargs = MappingProxyType(dict(draft.env_kwargs))
    draft.reset_options = MappingProxyType(dict(draft.reset_options))
    draft.metrics, draft.timings = MappingProxyType(draft.metrics), MappingProxyType(draft.timings)
    check_outcome(draft)
    check_references(len(columns), [term.turn for term in draft.reward_terms], events.turns)
    draft.__class__ = Trajectory
    return cast(Trajectory, draft)


def scored_term(name: str, score: float, weight: float) -> RewardTerm:
    """Return ``RewardTerm(name=name, score=score, weight=weight)``."""
    draft = _TermDraft()
    draft.name, draft.score, draft.weight = name, score, weight
    draft.turn = draft.error = draft.cause = None
    draft.__class__ = RewardTerm
    return cast(RewardTerm, draft)


def of_turn(term: RewardTerm, turn: int | None) -> RewardTerm:
    """Return a copy of ``term`` that says which turn earned it."""
    draft = _TermDraft()
    draft.name, draft.score, draft.weight, draft.turn = term.name, term.score, term.weight, turn
    draft.error, draft.cause = term.error, term.cause
    draft.__class__ = RewardTerm
    return cast(RewardTerm, draft)
