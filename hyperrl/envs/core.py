"""TextEnv: a genuine ``gymnasium.Env`` over text, with tools and rewards in plain Python.

There is one implementation, the coroutines behind ``areset`` and ``astep``. ``reset`` and ``step``
are its synchronous face: an environment of plain functions is driven in place, one that waits for
something runs on the process's background loop.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from gymnasium.error import ResetNeeded

from hyperrl.envs.blueprint import Blueprint, check_part_names, read_blueprint
from hyperrl.envs.driving import drive_in_place, drive_on_loop, in_event_loop
from hyperrl.envs.episode import Episode
from hyperrl.envs.messages import Observation, as_messages
from hyperrl.envs.outcome import Outcome
from hyperrl.envs.played import PlayedGroup
from hyperrl.envs.random_source import RandomSource, SeededEnv
from hyperrl.envs.scoring import score_episode, score_members
from hyperrl.envs.set_by_init import SetByInit, SpaceOnDemand
from hyperrl.envs.taskset import Task, Taskset, as_taskset, find_task
from hyperrl.envs.tool_turn import choose_tools, run_calls, tool_messages, unrun_records
from hyperrl.envs.tools import Tool
from hyperrl.errors import ConfigError, EnvError, nearest
from hyperrl.sampling import Message, ToolCall, ToolSchema
from hyperrl.trajectory import RewardTerm, ToolRecord, Trajectory

if TYPE_CHECKING:
    from hyperrl.envs.sandbox.base import Sandbox

__all__ = ["TextEnv", "score_as_it_stands"]

T = TypeVar("T")
_new = tuple.__new__  # makes a named tuple of all its values in half the time of its own constructor
Face = Literal["sync", "async"]
_NOTHING = Observation("", ())
_NO_TURN = "the episode has ended (or failed, or another step is running); call reset"
_SET_BY_INIT = frozenset({"split", "render_mode", "observation_space", "action_space"})


class TextEnv(SeededEnv, ABC):
    """Base of environments that are written in text.

    An author writes :meth:`tasks` and :meth:`start`, any number of ``@tool`` and ``@reward`` methods,
    and :meth:`reply` if the environment answers. Arguments are injected by name, and each function
    may be ``def`` or ``async def``:

    ========================  ============================================================
    ``task``                  the :class:`Task` that is played
    ``rng``                   the environment's ``numpy.random.Generator``
    ``options``               the mapping given to ``reset``
    ``action``                the last action, a ``str``
    ``answer``                the same without reasoning and tool calls
    ``messages``              the whole conversation, as chat messages
    ``turn``                  position of the last action, from 0
    ``stop_reason``           why the sampler stopped
    ``tool_records``          the tool calls of the last action and what came of them
    ========================  ============================================================

    (``start`` may ask for the first three.) An episode goes on while an action holds tool calls or
    ``reply`` answers; otherwise the action was the answer, the rewards run and the episode
    terminates. An action that was cut off (``StopReason.LENGTH``) always is the answer, and its tool
    calls are not run.

    What an episode needs for its own time, such as a file, a process or an MCP server, is opened in
    ``start`` through :attr:`resources` and closed when the episode ends, however it ends. Tools that
    such a thing brings along are offered by :meth:`offered_tools`.

    Attributes:
        version: raised by the author whenever a change makes scores incomparable.
        system_prompt: a system message before the first observation.
        splits: the splits that there are.
        floor: the most that an empty or a wrong answer may score.
        gold_score: what the gold actions score; set in ``__init__`` where weights are options.
        shows_answer: the first observation may hold the gold: it lists choices, or is a text to quote from.
        reward_weights: weights by term name that replace those of ``@reward``; set in ``__init__``
            where a weight is an option of the environment.
        max_episode_steps: the turn limit that it was registered with; set by ``make_env``.
        sandbox: where code of the policy runs; set in ``__init__``, with ``make_sandbox``. Its level is
            recorded in every trajectory.
        workspace: a directory that programs which work on files are started in; set in ``start``, with
            :attr:`resources` to remove it.

    Args:
        split: which tasks to play.
        render_mode: ``"ansi"`` lets ``render`` return the transcript.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # gymnasium's name and type
    version: ClassVar[str] = "1"
    system_prompt: str | None = None
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    floor: ClassVar[float] = 0.0
    gold_score: float = 1.0
    shows_answer: ClassVar[bool] = False
    reward_weights: Mapping[str, float] = MappingProxyType({})
    max_episode_steps: int | None = None
    sandbox: Sandbox | None = None
    workspace: Path | None = None
    _blueprint: ClassVar[Blueprint]
    _call_reply: ClassVar[Callable[[Any, Episode], Any]]
    observation_space: Any = SpaceOnDemand()
    action_space: Any = SpaceOnDemand()
    split: str = cast(str, SetByInit())
    _taskset: Taskset | None = cast("Taskset | None", SetByInit())
    _face: Face | None = cast("Face | None", SetByInit())

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_part_names(cls, TextEnv, _SET_BY_INIT)
        if not getattr(cls.start, "__isabstractmethod__", False):
            cls._blueprint = read_blueprint(cls, silent_reply=TextEnv.reply)
            if cls._blueprint.reply is not None:
                cls._call_reply = cls._blueprint.reply.call

    def __init__(self, *, split: str = "train", render_mode: str | None = None) -> None:
        if split not in self.splits:
            raise ConfigError(
                f"{type(self).__name__} has no split {split!r}; it has {', '.join(self.splits)}."
                f"{nearest(str(split), self.splits)}"
            )
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        self.split = split
        self.render_mode = render_mode
        self._taskset = None
        self._episode: Episode | None = None
        self._offered: dict[str, Tool] | None = None
        self._suspends = self._blueprint.suspends
        self._replies_at_once = self._blueprint.replies_at_once
        self._face = None
        self._awaiting: Episode | None = None  # the episode that an action may be taken in
        self._ending = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the class gives again, since neither tools nor generated tasks can be pickled."""
        if self._episode is not None and self._episode.holds_resources:
            raise EnvError(
                f"this {type(self).__name__} plays an episode that holds resources open, so it cannot be"
                " copied; copy it before reset, or after the episode"
            )
        known = self._blueprint.tools
        offered = None if self._offered is None else tuple(n for n in self._offered if n in known)
        return {**self.__dict__, "_taskset": None, "_offered": offered}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._offered is not None:
            self._offered = {name: self._blueprint.tools[name] for name in self._offered}

    # What authors write.

    @abstractmethod
    def tasks(self) -> Taskset | Sequence[Task | Mapping[str, Any]]:
        """Return the tasks of ``self.split``. Called once, at the first reset (a copy calls it again)."""

    @abstractmethod
    def start(self, *args: Any, **kwargs: Any) -> Any:
        """Begin an episode: return the first user message as a ``str``, or a list of messages."""

    def reply(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002  # authors name what they ask for
        """Answer an action without tool calls (a ``str`` or messages), or ``None``: it was the answer."""
        return None

    def offered_tools(self) -> Iterable[str | Tool]:
        """Return the tools offered in this episode, by default all of the class. Called after ``start``.

        A tool of the class goes by its name; any other, made for this episode or taken from an MCP server,
        is given itself.
        """
        return self._blueprint.tools

    def gold(self, task: Task) -> str | Sequence[str] | None:  # noqa: ARG002  # authors use it
        """Return the action, or actions, that score ``gold_score``; ``None`` if nobody knows.

        Called after a reset to ``task``, so it may read what ``start`` drew.
        """
        return None

    def end_episode(self) -> None:
        """Let the episode end after this step. For a tool that takes the answer, or a last ``reply``."""
        self._ending = True

    @property
    def resources(self) -> AsyncExitStack:
        """What this episode holds open: a :class:`contextlib.AsyncExitStack`, closed when the episode ends.

        That is after its rewards, at the next reset, at :meth:`close`, and at once where the episode fails or
        is cancelled; what takes over 10 s to close is given up. An async ``start`` opens with
        ``await self.resources.enter_async_context(...)``, a plain one with
        ``self.resources.enter_context(...)`` or ``self.resources.callback(...)``.

        Raises:
            EnvError: there is no episode, or it has ended.
        """
        return self._playing.resources

    # What authors and drivers read.

    @property
    def task(self) -> Task:
        """The task that is played. Raises EnvError before the first reset."""
        return (self._episode or self._playing).task

    @property
    def taskset(self) -> Taskset:
        """The tasks of the split."""
        if self._taskset is None:
            self._taskset = as_taskset(self.tasks())
            if not len(self._taskset):
                raise EnvError(f"{type(self).__name__}.tasks() has no task in the split {self.split!r}")
        return self._taskset

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """Schemas of the tools offered in this episode, made anew at each call."""
        offered = self._choose_tools() if self._offered is None else self._offered
        return () if not offered else tuple(copy.deepcopy(tool.schema) for tool in offered.values())

    @property
    def messages(self) -> list[Message]:
        """The whole conversation of the episode so far, as chat messages, made anew at each call."""
        return self._playing.messages

    def render(self) -> str | None:
        """Return the transcript of the episode in the mode ``"ansi"``, else ``None``."""
        if self.render_mode is None:
            return None
        return "" if self._episode is None else self._episode.transcript()

    # The two faces.

    def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        """Begin an episode when awaited.

        Args:
            seed: seeds the environment's generator; ``None`` goes on with it.
            options: ``{"task": ...}`` names the task: a position, a task id, a :class:`Task`, or a
                mapping with the fields of a new one. Else the generator draws one.

        Raises:
            ConfigError: an unknown task or option.
            EnvError: the instance was first reset through ``reset``.
        """
        self._take_face("async")
        return self._reset(seed, options)

    def astep(self, action: str) -> Coroutine[Any, Any, Outcome]:
        """Take an action when awaited.

        Raises:
            ResetNeeded: the episode has ended, failed, or never begun.
            EnvError: the instance was first reset through ``reset``.
        """
        if self._face != "async":
            self._take_face("async", begun=False)
        return self._step(action)

    async def ascore(self) -> tuple[RewardTerm, ...]:
        """End an episode that is cut before its end, and score it as it stands.

        For drivers that limit turns, tokens or time. The last action counts as the answer.

        Raises:
            ResetNeeded: the episode has ended already.
        """
        episode, self._awaiting = self._awaiting, None
        if episode is None:
            raise ResetNeeded(_NO_TURN)
        try:
            return await score_episode(self, self._blueprint.rewards, episode, self.reward_weights)
        finally:
            await episode.release()

    async def aclose_episode(self) -> None:
        """End the episode as it stands, and close what it opened. Twice is no error."""
        self._awaiting = None
        if self._episode is not None and self._episode.ends():
            await self._episode.release()

    def close(self) -> None:
        """End the episode and close what it opened.

        Raises:
            EnvError: called from async code while something is open; await :meth:`aclose_episode` first.
        """
        if self._episode is not None and self._episode.holds_resources:
            if self._face == "async" and in_event_loop():
                raise EnvError(
                    f"this {type(self).__name__} holds resources open that only async code can close;"
                    " await env.aclose_episode() before env.close()"
                )
            self._drive(self.aclose_episode())
        super().close()

    @property
    def scores_groups(self) -> bool:
        """Whether the class has a ``@reward(at="group")``."""
        return bool(self._blueprint.group_rewards)

    async def ascore_group(
        self, task: Task, trajectories: Sequence[Trajectory]
    ) -> list[tuple[RewardTerm, ...]]:
        """Return what the rewards of a group give to each of ``trajectories``, which all played ``task``.

        Needs no reset, and leaves an episode that is played meanwhile alone.
        """
        group = PlayedGroup(task=task, trajectories=tuple(trajectories))
        rewards = self._blueprint.group_rewards
        return await score_members(self, rewards, group, len(trajectories), self.reward_weights)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, as :meth:`areset` does. ``info`` holds the ``task_id``."""
        self._take_face("sync")
        outcome = self._drive(self._reset(seed, options))
        return outcome.observation, outcome.info

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action, as :meth:`astep` does.

        The reward is NaN, and ``info["unscored"]`` says why, where a term could not be computed.
        """
        if self._face != "sync":
            self._take_face("sync", begun=False)
        outcome = self._drive(self._step(action))
        return outcome.observation, outcome.reward, outcome.terminated, False, outcome.info

    def _take_face(self, face: Face, *, begun: bool = True) -> None:
        if self._face is None and not begun:
            raise ResetNeeded("call reset before the first step")
        if self._face is None:
            self._face = face
        if self._face != face:
            raise EnvError(
                f"this {type(self).__name__} was first reset through its {self._face} face and keeps it;"
                f" make another instance for {'areset and astep' if face == 'async' else 'reset and step'}"
            )

    def _drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return drive_on_loop(coroutine) if self._suspends else drive_in_place(coroutine)

    # The one implementation.

    async def _reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Outcome:
        if self._episode is not None:
            await self.aclose_episode()
        try:
            episode = self._begin(seed, options)
            start = self._blueprint.start
            said = start.call(self, episode)
            if start.is_async:
                said = await said
            observation = self._start_conversation(episode, said)
        except BaseException:
            await self.aclose_episode()
            raise
        self._awaiting = episode
        return _new(Outcome, ("reset", observation, episode.task.task_id, False, (), ()))

    def _begin(self, seed: int | None, options: Mapping[str, Any] | None) -> Episode:
        self._seed(seed)
        self._ending = False
        options = dict(options) if options else {}
        if options:
            self._blueprint.check_options(type(self), options)
        if self.reward_weights:
            self._blueprint.check_weights(type(self), self.reward_weights)
        random = self._random_source()
        episode = Episode(self._pick_task(options.get("task"), random), random, options)
        self._episode, self._offered = episode, None
        return episode

    def _start_conversation(self, episode: Episode, said: object) -> Observation:
        """Choose the tools, and return what ``start`` said."""
        offered = self._offered = self._choose_tools()
        known, suspends = self._blueprint.tools, self._blueprint.suspends
        self._suspends = suspends or (offered is not known and any(t.suspends for t in offered.values()))
        if type(said) is str and self.system_prompt is None:
            return episode.hear_text(said)
        messages = as_messages(said, f"{type(self).__name__}.start")
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        observation = Observation.from_messages(messages)
        episode.hear(observation)
        return observation

    async def _step(self, action: str) -> Outcome:
        if not isinstance(action, str):
            raise TypeError(f"an action is a str, got {type(action).__name__}")
        episode = self._awaiting
        if episode is None:
            raise ResetNeeded(_NO_TURN)
        self._awaiting = None
        try:
            calls = episode.act(action, self._offered)
            if calls or episode.cut or not self._replies_at_once:
                outcome = await self._step_at_length(episode, calls)
            else:
                said = self._call_reply(episode)
                if type(said) is str and not self._ending:
                    if episode is self._episode:  # else a reset meanwhile has begun another
                        self._awaiting = episode
                    observation = episode.hear_text(said)
                    return _new(Outcome, ("reply", observation, episode.task.task_id, False, (), ()))
                outcome = await self._answer(episode, said)
        except BaseException:
            await episode.release()
            raise
        if outcome.terminated and episode.ends():
            await episode.release()
        return outcome

    def _step_at_length(self, episode: Episode, calls: tuple[ToolCall, ...]) -> Coroutine[Any, Any, Outcome]:
        """Take an action that is more than one text answered by another."""
        if episode.cut:
            records = episode.tool_records = unrun_records(calls)
            return self._end(episode, records)
        if calls:
            return self._run_tools(episode, calls)
        reply = self._blueprint.reply
        return self._answer(episode, None if reply is None else reply.call(self, episode))

    async def _answer(self, episode: Episode, said: Any) -> Outcome:
        """Go on after a reply, or end: without one the action was the answer."""
        reply = self._blueprint.reply
        if reply is not None and reply.is_async:
            said = await said
        if said is None:
            return await self._end(episode)
        observation = Observation.from_messages(as_messages(said, f"{type(self).__name__}.reply"))
        episode.hear(observation)
        if self._ending:
            return await self._end(episode, observation=observation)
        return await self._go_on(episode, "reply", observation)

    async def _run_tools(self, episode: Episode, calls: tuple[ToolCall, ...]) -> Outcome:
        records = episode.tool_records = await run_calls(calls, self._offered or {}, self)
        observation = Observation.from_messages(tool_messages(records))
        episode.hear(observation)
        if self._ending:
            return await self._end(episode, records, observation)
        return await self._go_on(episode, "tools", observation, records)

    async def _go_on(
        self,
        episode: Episode,
        kind: Literal["tools", "reply"],
        observation: Observation,
        records: tuple[ToolRecord, ...] = (),
    ) -> Outcome:
        rewards = self._blueprint.step_rewards
        terms = await score_episode(self, rewards, episode, self.reward_weights) if rewards else ()
        if episode is self._episode:  # else a reset meanwhile has begun another
            self._awaiting = episode
        return Outcome(kind, observation, episode.task.task_id, False, terms, records)

    async def _end(
        self,
        episode: Episode,
        records: tuple[ToolRecord, ...] = (),
        observation: Observation = _NOTHING,
    ) -> Outcome:
        rewards = self._blueprint.last_rewards
        terms = await score_episode(self, rewards, episode, self.reward_weights)
        return _new(Outcome, ("final", observation, episode.task.task_id, True, terms, records))

    @property
    def _playing(self) -> Episode:
        if self._episode is None:
            raise EnvError(f"{type(self).__name__} plays no task yet; reset it first")
        return self._episode

    def _pick_task(self, wanted: object, random: RandomSource) -> Task:
        # Always draw: the same seed then gives the same episode, however its task was named.
        tasks = self.taskset
        drawn = random.draw_task(len(tasks), needed=wanted is None)
        return tasks[drawn] if wanted is None else find_task(tasks, wanted)

    def _choose_tools(self) -> dict[str, Tool]:
        known, wanted = self._blueprint.tools, self.offered_tools()
        if wanted is known:
            return known
        return choose_tools(known, wanted, where=f"{type(self).__name__}.offered_tools")


def score_as_it_stands(env: TextEnv) -> tuple[RewardTerm, ...]:
    """Cut an episode of the synchronous face and score it, as :meth:`TextEnv.ascore` does."""
    return env._drive(env.ascore())
