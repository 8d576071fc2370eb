"""An episode that a person plays: typed lines become actions, and the episode is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from hyperrl.envs.core import TextEnv
from hyperrl.envs.gold_actions import gold_actions
from hyperrl.envs.outcome import Outcome
from hyperrl.errors import ConfigError, nearest
from hyperrl.sampling import ToolSchema
from hyperrl.trajectory import RewardTerm

__all__ = ["PersonEpisode", "cause_of", "describe_tool", "write_tool_call"]


_NESTED = 3
"""How deep the fields of objects in arguments are shown."""


@dataclass(slots=True)
class PersonEpisode:
    """One episode, played action by action from code without an event loop.

    Attributes:
        env: what is played.
        task: position or id of the task; ``None`` lets the seed draw one.
        seed: of the reset.
        turns: what was said and what came back, in order.
        terms: the rewards so far: those of steps, and once it has ended those of the episode.
        ended: the environment ended it, or its turns are used up.
        cut: it was ended by its limit of turns.
    """

    env: TextEnv
    task: int | str | None = None
    seed: int | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)
    terms: tuple[RewardTerm, ...] = ()
    ended: bool = False
    cut: bool = False
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)

    def begin(self) -> Outcome:
        """Reset the environment. Raises ConfigError for an unknown task."""
        options = {} if self.task is None else {"task": self.task}
        outcome = self._runner.run(self.env.areset(seed=self.seed, options=options))
        self.turns.append({"observation": str(outcome.observation)})
        return outcome

    def act(self, action: str) -> Outcome:
        """Take an action; score the episode where it ends."""
        outcome = self._runner.run(self.env.astep(action))
        self.turns.append(
            {
                "action": action,
                "tools": [{"name": r.name, "status": r.status} for r in outcome.tool_records],
                "observation": str(outcome.observation),
            }
        )
        self.terms += outcome.reward_terms
        self.ended = outcome.terminated
        limit = self.env.max_episode_steps
        if not self.ended and limit is not None and self.actions >= limit:
            self.terms += self._runner.run(self.env.ascore())
            self.ended = self.cut = True
        return outcome

    @property
    def actions(self) -> int:
        """How many actions were taken."""
        return len(self.turns) - 1

    def next_gold(self) -> str | None:
        """Return the gold action of this turn; ``None`` where nobody knows it or it is used up."""
        known = gold_actions(self.env) or ()
        return known[self.actions] if self.actions < len(known) else None

    @property
    def reward(self) -> float | None:
        """Weighted sum of the terms; ``None`` while one that counts has no score."""
        counted = [term for term in self.terms if term.weight != 0]
        if not self.ended or not counted or any(term.score is None for term in counted):
            return None
        return sum(term.score * term.weight for term in counted if term.score is not None)

    def transcript(self, env_id: str) -> dict[str, Any]:
        """Return the episode for a JSON file."""
        return {
            "env": env_id,
            "version": self.env.version,
            "task_id": self.env.task.task_id,
            "seed": self.seed,
            "turns": self.turns,
            "ended": self.ended,
            "reward": self.reward,
            "rewards": [
                {
                    "name": term.name,
                    "score": term.score,
                    "weight": term.weight,
                    "cause": cause_of(term),
                }
                for term in self.terms
            ],
        }

    def close(self) -> None:
        """Close what the episode opened, the environment and the event loop."""
        try:
            self._runner.run(self.env.aclose_episode())
            self.env.close()
        finally:
            self._runner.close()


def cause_of(term: RewardTerm) -> str | None:
    """Return why a term has no score, or the score it has; ``None`` where nobody says."""
    return term.cause if term.error is None else f"{term.error.kind}: {term.error.reason}"


def describe_tool(schema: ToolSchema) -> str:
    """Return how to call a tool, and what it does, in a line or two."""
    function = schema["function"]
    parameters = function.get("parameters", {})
    parts = _fields(parameters, parameters.get("$defs", {}))
    lines = [" ".join(["/tool", function["name"], *parts]), f"    {function.get('description', '')}".rstrip()]
    for name, about in parameters.get("properties", {}).items():
        lines.append(f"    {name}: {about.get('description', '')}".rstrip())
    return "\n".join(filter(None, lines))


def write_tool_call(text: str, tools: Sequence[ToolSchema]) -> str:
    """Return the action of a typed call such as ``count_boxes shelf=2``, as a policy would write it.

    Values are read as YAML, those of text parameters as they stand; lists and objects may be JSON with spaces
    in it, and so may all arguments together. A tool with one parameter takes its value without the name.

    Raises:
        ConfigError: there is no such tool, or the text cannot be read.
    """
    name, _, rest = text.strip().partition(" ")
    known = {str(tool["function"]["name"]): tool["function"] for tool in tools}
    if name not in known:
        offered = f"only {', '.join(known)}" if known else "there are no tools here"
        raise ConfigError(f"no tool {name!r}: {offered}.{nearest(name, known)}")
    properties = known[name].get("parameters", {}).get("properties", {})
    arguments = _read_arguments(rest.strip(), properties)
    return (
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    )


def _read_arguments(text: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    only = next(iter(properties)) if len(properties) == 1 else None
    if only is not None and text and not text.startswith(f"{only}="):
        return {only: _value(text, properties[only])}
    if text.startswith("{"):
        return _read_object(text)
    text, arguments = _take_json(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the arguments cannot be read: {error}") from error
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            names = ", ".join(f"{name}=..." for name in properties) or "none"
            raise ConfigError(f"{word!r} must look like name=value; the arguments are {names}")
        arguments[name] = _value(value, properties.get(name, {}))
    return arguments


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the arguments are no JSON object: {error}") from error
    return dict(found)


def _take_json(text: str) -> tuple[str, dict[str, Any]]:
    """Take every ``name=`` with a list or an object in JSON out of ``text``; return the rest, and those."""
    taken: dict[str, Any] = {}
    rest, end = "", 0
    for match in re.finditer(r"(?:^|(?<=\s))(\w+)=(?=[\[{])", text):
        if match.start() < end:
            continue  # inside one that was taken
        with contextlib.suppress(ValueError):  # not JSON: read as YAML, like other values
            value, after = json.JSONDecoder().raw_decode(text, match.end())
            taken[match[1]] = value
            rest, end = rest + text[end : match.start()], after
    return rest + text[end:], taken


def _value(text: str, about: Mapping[str, Any]) -> Any:
    if about.get("type") == "string":
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _fields(shape: Mapping[str, Any], known: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Return the fields of an object, those in brackets that may be left out."""
    required = shape.get("required", ())
    parts = [(name, _kind(about, known, depth)) for name, about in shape.get("properties", {}).items()]
    return [f"{name}={kind}" if name in required else f"[{name}={kind}]" for name, kind in parts]


def _kind(about: Mapping[str, Any], known: Mapping[str, Any], depth: int = 0) -> str:
    if "$ref" in about:
        about = known.get(about["$ref"].rpartition("/")[2], {})
    if "enum" in about:
        return "|".join(map(str, about["enum"]))
    if "const" in about:
        return str(about["const"])
    if choices := about.get("anyOf") or about.get("oneOf"):
        return "|".join(dict.fromkeys(_kind(choice, known, depth) for choice in choices))
    if depth < _NESTED and about.get("properties"):
        return f"{{{', '.join(_fields(about, known, depth + 1))}}}"
    if depth < _NESTED and about.get("items"):
        return f"[{_kind(about['items'], known, depth + 1)}, ...]"
    return str(about.get("type", "value"))
