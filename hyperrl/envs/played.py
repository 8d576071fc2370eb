"""Episodes that have been played, as rewards that act after them may ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hyperrl.envs.messages import visible_text
from hyperrl.envs.taskset import Task
from hyperrl.envs.tool_calls import parse_tool_calls
from hyperrl.sampling import Message
from hyperrl.trajectory import Event, StopReason, ToolRecord, Trajectory

__all__ = ["Played", "PlayedGroup", "answer_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An episode that has ended. Its public names are what injection offers.

    Attributes:
        task: the task that was played.
        trajectory: the record of the episode.
    """

    task: Task
    trajectory: Trajectory

    @property
    def action(self) -> str:
        """The text of the answer turn; empty where nothing reached the environment."""
        event = _answer_event(self.trajectory)
        return "" if event is None else event.action

    @property
    def answer(self) -> str:
        """The same without reasoning and tool calls."""
        return answer_of(self.trajectory)

    @property
    def messages(self) -> list[Message]:
        """The conversation as it was recorded: what was read as ``user``, what was said as ``assistant``."""
        said: list[Message] = []
        for event in self.trajectory.events:
            said += [{"role": "user", "content": event.observation}] if event.observation else []
            said += [{"role": "assistant", "content": event.action}] if event.turn is not None else []
        return said

    @property
    def turn(self) -> int:
        """Position of the last action that reached the environment, from 0; -1 where none did."""
        return sum(event.stepped for event in self.trajectory.events) - 1

    @property
    def stop_reason(self) -> StopReason:
        """Why the sampler stopped in the answer turn."""
        turn = self.trajectory.answer_turn
        return StopReason.STOP if turn is None else self.trajectory.columns.stop_reasons[turn]

    @property
    def tool_records(self) -> tuple[ToolRecord, ...]:
        """The tool calls of the answer turn and what came of them."""
        event = _answer_event(self.trajectory)
        return () if event is None else event.tool_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedGroup:
    """Episodes of one task. Its public names are what injection offers to a reward of a group.

    Attributes:
        task: the task that all of them played.
        trajectories: the members.
    """

    task: Task
    trajectories: Sequence[Trajectory]

    @property
    def answers(self) -> list[str]:
        """The answer of each member, without reasoning and tool calls."""
        return [answer_of(trajectory) for trajectory in self.trajectories]


def answer_of(trajectory: Trajectory) -> str:
    """Return what an episode answered: its answer turn without reasoning and tool calls."""
    event = _answer_event(trajectory)
    return "" if event is None else parse_tool_calls(visible_text(event.action), id_prefix="").content


def _answer_event(trajectory: Trajectory) -> Event | None:
    turn = trajectory.answer_turn
    return (
        next((event for event in trajectory.events if event.turn == turn), None) if turn is not None else None
    )
