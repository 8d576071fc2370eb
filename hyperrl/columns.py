"""The turns and events of an episode as columns: how a rollout hands over what it recorded.

Shapes: n turns, T tokens, S sampled tokens.

An episode of many turns is a handful of arrays and tuples here, not a hundred small objects, so that it is
checked all at once, takes little memory and leaves the garbage collector little to look at.
:class:`hyperrl.trajectory.Trajectory` makes its turns and events of them when they are first asked for.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hyperrl.arrays import is_sealed, seal
from hyperrl.errors import TrajectoryError

__all__ = [
    "NOT_SAMPLED",
    "EventColumns",
    "TurnColumns",
    "check_layout",
    "columns_of",
    "places",
    "surely_valid",
]

NOT_SAMPLED = -1
"""Policy version of a token that no published policy drew (gold text, a remote endpoint)."""

_IDS, _LOGPROBS = np.dtype(np.int32), np.dtype(np.float32)
_SIGN = 3 if sys.byteorder == "little" else 0
_BELOW_ZERO = bytes(range(0x80, 0xFF))  # 0xFF begins -inf, half of the NaNs, and what is below -1.7e38


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnColumns:
    """The turns of an episode: what is said of each in :class:`hyperrl.trajectory.Turn`, turn after turn.

    Attributes:
        ids: i32[T], context and action of every turn, then what was read after the last action.
        starts: n + 1 positions in ``ids``: where each turn begins, and where the last one ends.
        action_starts: n positions in ``ids``: where each action begins.
        logprobs: f32[S], of the actions that were sampled, turn after turn.
        policy_versions: i32[S], of the same tokens.
        sampled: whether each action was sampled by us.
        parents, temperatures, stop_reasons, policies, uses: n values each.
    """

    ids: NDArray[np.int32]
    starts: tuple[int, ...]
    action_starts: tuple[int, ...]
    logprobs: NDArray[np.float32]
    policy_versions: NDArray[np.int32]
    sampled: tuple[bool, ...]
    parents: tuple[int | None, ...]
    temperatures: tuple[float, ...]
    stop_reasons: tuple[Any, ...]
    policies: tuple[str, ...]
    uses: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def context_lengths(self) -> list[int]:
        """Tokens of the context of each turn."""
        return list(map(operator.sub, self.action_starts, self.starts))

    @property
    def action_lengths(self) -> list[int]:
        """Tokens of the action of each turn."""
        return list(map(operator.sub, self.starts[1:], self.action_starts))

    @property
    def drawn_starts(self) -> list[int]:
        """Where the action of each turn begins in ``logprobs``, were it sampled; n + 1 positions."""
        lengths = map(operator.mul, self.action_lengths, self.sampled)
        return list(accumulate(lengths, initial=0))

    def turn_fields(self) -> Iterator[dict[str, Any]]:
        """Yield the attributes of each turn, its arrays as views of the columns."""
        ids, starts, drawn = self.ids, self.starts, self.drawn_starts
        for index, action in enumerate(self.action_starts):
            end, of_action = starts[index + 1], slice(drawn[index], drawn[index + 1])
            sampled = self.sampled[index]
            yield {
                "parent": self.parents[index],
                "context_ids": ids[starts[index] : action],
                "action_ids": ids[action:end],
                "behavior_logprobs": self.logprobs[of_action] if sampled else None,
                "policy_versions": self.policy_versions[of_action] if sampled else _not_sampled(end - action),
                "temperature": self.temperatures[index],
                "stop_reason": self.stop_reasons[index],
                "policy": self.policies[index],
                "use": self.uses[index],
            }


class EventColumns(NamedTuple):
    """The events of an episode: what is said of each in :class:`hyperrl.trajectory.Event`."""

    turns: Sequence[int | None]
    observations: Sequence[str]
    actions: Sequence[str]
    tool_calls: Sequence[tuple[Any, ...]]
    stepped: Sequence[bool]

    def with_final(self, observation: str) -> EventColumns:
        """Return columns that also hold what was read after the last action."""
        turns, observations, actions, calls, stepped = self
        observations = (*observations, observation)
        return EventColumns((*turns, None), observations, (*actions, ""), (*calls, ()), (*stepped, False))


def columns_of(turns: Sequence[Any]) -> TurnColumns:
    """Return turns as columns; their arrays are copied, and read-only."""
    parts = [part for turn in turns for part in (turn.context_ids, turn.action_ids)]
    bounds = list(accumulate(map(len, parts), initial=0))
    drawn = [turn for turn in turns if turn.behavior_logprobs is not None]
    return TurnColumns(
        ids=_joined(parts, np.int32),
        starts=tuple(bounds[::2]),
        action_starts=tuple(bounds[1::2]),
        logprobs=_joined([turn.behavior_logprobs for turn in drawn], np.float32),
        policy_versions=_joined([turn.policy_versions for turn in drawn], np.int32),
        sampled=tuple([turn.behavior_logprobs is not None for turn in turns]),
        parents=tuple([turn.parent for turn in turns]),
        temperatures=tuple([turn.temperature for turn in turns]),
        stop_reasons=tuple([turn.stop_reason for turn in turns]),
        policies=tuple([turn.policy for turn in turns]),
        uses=tuple([turn.use for turn in turns]),
    )


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    joined = np.concatenate([np.zeros(0, dtype), *parts])
    joined.flags.writeable = False
    return joined


def check_layout(columns: TurnColumns) -> None:
    """Check that columns describe turns: read-only arrays, positions in order, one value a turn.

    Raises:
        TrajectoryError: they do not.
    """
    ids, logprobs, versions = columns.ids, columns.logprobs, columns.policy_versions
    if not (is_sealed(ids, _IDS) and is_sealed(logprobs, _LOGPROBS) and is_sealed(versions, _IDS)):
        named = ((ids, _IDS, "ids"), (logprobs, _LOGPROBS, "logprobs"), (versions, _IDS, "policy_versions"))
        for array, dtype, name in named:
            if seal(array, dtype, name) is not array:
                raise TrajectoryError(f"columns: {name} must be a read-only array of {dtype.name}")
    count, starts, actions, sampled = (
        len(columns.parents),
        columns.starts,
        columns.action_starts,
        columns.sampled,
    )
    temperatures, uses = columns.temperatures, columns.uses
    even = count == len(actions) == len(sampled) == len(temperatures) == len(uses) == len(starts) - 1
    if not (even and count == len(columns.stop_reasons) == len(columns.policies)):
        raise TrajectoryError(f"columns: {count} parents need one value a turn in every other column")
    positions = [0] * (2 * count + 1)
    positions[::2], positions[1::2] = starts, actions
    if positions != sorted(positions) or starts[0] != 0 or starts[-1] > len(ids):
        raise TrajectoryError(f"columns: turns must lie one after the other in the {len(ids)} ids")
    if False in sampled:
        drawn = sum(map(operator.mul, columns.action_lengths, sampled))
    else:
        drawn = sum(starts) - sum(actions)
    if len(logprobs) != drawn or len(versions) != drawn:
        raise TrajectoryError(
            f"columns: {drawn} sampled action_ids but {len(logprobs)} behavior_logprobs and"
            f" {len(versions)} policy_versions"
        )


def surely_valid(columns: TurnColumns) -> bool:
    """Whether all turns were sampled by one version and keep every invariant, decided at once.

    False says nothing: then each turn must be looked at.
    """
    parents, versions = columns.parents, columns.policy_versions
    if not len(versions) or False in columns.sampled or "context" in columns.uses:
        return False
    in_order = parents[0] is None and parents[1:] == places(len(parents) - 1)
    if not in_order and not _in_order(parents):
        return False
    temperatures = columns.temperatures
    alike = temperatures.count(temperatures[0]) == len(temperatures)
    for temperature in temperatures[:1] if alike else temperatures:
        if not 0 <= temperature < math.inf:
            return False
    drawn = versions.tobytes()
    if versions.item(0) < 0 or drawn != drawn[:4] * len(versions):
        return False
    return _signs(columns.ids).isascii() and _all_logprobs(columns.logprobs)


def _signs(values: NDArray[Any]) -> bytes:
    """Return the byte of each 4-byte value that begins with its sign."""
    return values.tobytes()[_SIGN::4]


def _all_logprobs(values: NDArray[np.float32]) -> bool:
    """Whether all are finite and at most 0: told by their first byte, but for 0.0 and what is below -1e38."""
    if not _signs(values).translate(None, _BELOW_ZERO):
        return True
    least, greatest = values.item(values.argmin()), values.item(values.argmax())
    return least > -math.inf and greatest <= 0  # a NaN is found as either, and fails its comparison


@lru_cache(maxsize=1024)
def places(count: int) -> tuple[int, ...]:
    """Return 0, 1, ... up to ``count``: the same tuple for every episode of so many turns."""
    return tuple(range(count))


def _in_order(parents: Sequence[int | None]) -> bool:
    return all(parent is None or 0 <= parent < index for index, parent in enumerate(parents))


def _not_sampled(count: int) -> NDArray[np.int32]:
    return seal(np.full(count, NOT_SAMPLED, np.int32), _IDS, "policy_versions")
