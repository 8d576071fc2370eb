"""What a class of environments consists of, read once when the class is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hyperrl.envs.injection import EPISODE_NAMES, GROUP_NAMES, START_NAMES, Injected, inject
from hyperrl.envs.rewards import Reward
from hyperrl.envs.tools import Tool
from hyperrl.errors import ConfigError, EnvError, RewardDefinitionError, ToolDefinitionError, nearest

__all__ = ["Blueprint", "check_part_names", "read_blueprint"]

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The parts of a class.

    Attributes:
        start: makes the first observation.
        reply: answers an action, where the class has one.
        rewards: the rewards of an episode's end, each with how to call it, in the order of definition.
        step_rewards: those of every step.
        last_rewards: those of the last step: of every step, then of the end.
        group_rewards: those of a whole group.
        tools: the tools by name, in the order of definition.
        suspends: some part waits for something, so that an event loop is needed.
        takes_options: some part asks for the options of the reset.
    """

    start: Injected
    reply: Injected | None
    rewards: tuple[tuple[Reward, Injected], ...]
    step_rewards: tuple[tuple[Reward, Injected], ...]
    last_rewards: tuple[tuple[Reward, Injected], ...]
    group_rewards: tuple[tuple[Reward, Injected], ...]
    tools: dict[str, Tool]
    suspends: bool
    takes_options: bool

    @property
    def replies_at_once(self) -> bool:
        """Whether a plain function answers an action, and nothing scores the step."""
        return self.reply is not None and not self.reply.is_async and not self.step_rewards

    @property
    def reward_names(self) -> list[str]:
        """The names of all rewards."""
        return [part.name for part, _ in (*self.rewards, *self.step_rewards, *self.group_rewards)]

    def check_options(self, owner: type, options: Mapping[str, Any]) -> None:
        """Refuse reset options that no part of the class ``owner`` asks for. Raises ConfigError."""
        if self.takes_options or len(options) == ("task" in options):
            return
        strangers = sorted(options.keys() - {"task"}, key=str)
        if strangers:
            raise ConfigError(
                f"{owner.__name__} has no reset option {strangers[0]!r}, only 'task'."
                f"{nearest(str(strangers[0]), ['task'])}"
            )

    def check_weights(self, owner: type, weights: Mapping[str, float]) -> None:
        """Refuse weights of rewards that the class ``owner`` does not have. Raises ConfigError."""
        names = self.reward_names
        for name in weights:
            if name not in names and name.partition("/")[0] not in names:
                raise ConfigError(
                    f"{owner.__name__}.reward_weights names {name!r}, but the rewards are {names}."
                    f"{nearest(name, names)}"
                )


def read_blueprint(cls: type, *, silent_reply: Callable[..., Any]) -> Blueprint:
    """Read the parts of an environment class.

    Args:
        cls: the class.
        silent_reply: the ``reply`` of a class that has none of its own.

    Raises:
        EnvError: a part asks for something that cannot be given, or two parts share a name.
    """
    _refuse_slips(cls)
    start = inject(cls.start, START_NAMES, where=f"{cls.__name__}.start")  # type: ignore[attr-defined]
    own: Callable[..., Any] = cls.reply  # type: ignore[attr-defined]
    reply = None if own is silent_reply else inject(own, EPISODE_NAMES, where=f"{cls.__name__}.reply")
    rewards = tuple((part, _inject_reward(cls, part)) for part in _parts(cls, Reward))
    _check_names(cls, [part.name for part, _ in rewards], RewardDefinitionError)
    tools = _parts(cls, Tool)
    _check_names(cls, [part.name for part in tools], ToolDefinitionError)
    of_end, of_step, of_group = (
        tuple(pair for pair in rewards if pair[0].at == moment) for moment in ("end", "step", "group")
    )
    injected = [start, *([reply] if reply else []), *(call for part, call in rewards if part.at != "group")]
    return Blueprint(
        start=start,
        reply=reply,
        rewards=of_end,
        step_rewards=of_step,
        last_rewards=(*of_step, *of_end),
        group_rewards=of_group,
        tools={part.name: part for part in tools},
        suspends=any(part.is_async for part in injected) or any(part.suspends for part in tools),
        takes_options=any("options" in part.names for part in injected),
    )


def check_part_names(cls: type, base: type, set_by_init: frozenset[str]) -> None:
    """Refuse a tool or reward of ``cls`` that hides what ``base`` has or sets. Raises EnvError."""
    for name, part in vars(cls).items():
        if isinstance(part, (Tool, Reward)) and (name in set_by_init or hasattr(base, name)):
            raise EnvError(
                f"{cls.__name__}.{name} hides a part of {base.__name__} of that name; call the function"
                f" otherwise and keep its name with name={name!r}"
            )


def _refuse_slips(cls: type) -> None:
    """Refuse what gymnasium's habits suggest, and what would silently mean something else."""
    faces = [name for name in ("reset", "step", "areset", "astep") if name in vars(cls)]
    if faces:
        raise EnvError(
            f"{cls.__name__} defines {faces[0]}, which belongs to TextEnv; write start and reply, tools and"
            " rewards, or wrap the environment"
        )
    if isinstance(cls.splits, str):  # type: ignore[attr-defined]
        raise EnvError(f"{cls.__name__}.splits must be a tuple of names, such as ({cls.splits!r},)")  # type: ignore[attr-defined]


def _inject_reward(cls: type, part: Reward) -> Injected:
    where = f"reward {part.name!r} of {cls.__name__}"
    names = GROUP_NAMES if part.at == "group" else EPISODE_NAMES
    return inject(part.function, names, where=where, error=RewardDefinitionError)


def _parts(cls: type, kind: type[K]) -> list[K]:
    """The attributes of one kind, parents first; a subclass replaces one by defining its name again."""
    names = dict.fromkeys(name for owner in reversed(cls.__mro__) for name in vars(owner))
    return list(_of_kind(cls, names, kind))


def _of_kind(cls: type, names: dict[str, None], kind: type[K]) -> Iterator[K]:
    for name in names:
        found = next(vars(owner)[name] for owner in cls.__mro__ if name in vars(owner))
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__  # @staticmethod above @tool hides nothing
        if isinstance(found, kind):
            yield found


def _check_names(cls: type, names: list[str], error: type[EnvError]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise error(f"{cls.__name__} defines {twice[0]!r} twice; give one of them another name=")
