"""A self-test of an agent program: one small episode against a scripted policy, and what to see in it."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hyperrl.agents.base import AgentProgram
from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.recorder import PolicySeat
from hyperrl.agents.rollout import EnvPool, EpisodePlan, RolloutLimits, RolloutSettings, play_episode
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs import TextEnv, reward, tool
from hyperrl.harness.cli_program import CliAdapter, CliProgram
from hyperrl.harness.gateway import Gateway
from hyperrl.harness.launching import Launch, Place
from hyperrl.harness.process import Ended
from hyperrl.sampling import EpisodeKey, RequestKey, SamplingParams
from hyperrl.trajectory import Trajectory

__all__ = ["SelfTest", "SelfTestCheck", "run_self_test"]

LIMIT_S = 120.0
WORD, ANSWER = "heron", "noreh"
TOOL = re.compile(r'"name": ?"([\w-]*say_backwards)"')
_STRACE = ("-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o")
_ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestCheck:
    """One thing that a self-test has looked at.

    Attributes:
        name: what.
        status: how it is; ``skip`` where it could not be seen here.
        detail: what was seen.
    """

    name: str
    status: Literal["pass", "fail", "skip"]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What a self-test has seen.

    Attributes:
        checks: in the order in which they are looked at.
    """

    checks: tuple[SelfTestCheck, ...]

    @property
    def failed(self) -> tuple[SelfTestCheck, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "fail")


class _Backwards(TextEnv):
    """Wants a word backwards, from a tool where it has one."""

    def tasks(self) -> Any:
        return [{"question": f"Have the tool say {WORD!r} backwards. Answer with what it says, alone."}]

    def start(self, task: Any) -> str:
        return str(task["question"])

    @reward
    def right(self, answer: str) -> float:
        return float(answer.strip() == ANSWER)


class _BackwardsWithTool(_Backwards):
    """Has the tool."""

    @tool
    def say_backwards(self, word: str) -> str:
        """Say a word backwards.

        Args:
            word: the word.
        """
        return word[::-1]


async def run_self_test(program: AgentProgram) -> SelfTest:
    """Have a program play a small episode against a scripted policy, and look at what was recorded.

    The policy calls a tool of the environment, reads its result, and answers. Where strace is installed, the
    connections of a command are looked at too.

    Args:
        program: what plays. One with ``takes_tools = False`` gets an environment without a tool.

    Raises:
        ConfigError, MissingExtraError: it could not be played at all.
    """
    tools = getattr(program, "takes_tools", True)
    with tempfile.TemporaryDirectory(prefix="hyperrl-self-test-") as folder:
        log = Path(folder) / "connections"
        traced = isinstance(program, CliProgram) and _can_trace()
        if traced and isinstance(program, CliProgram):
            program = CliProgram(_Traced(program.adapter, log), program.settings)
        seen = _Seen(await _play(program, tools=tools))
        checks = [
            seen.ends(),
            seen.asks(),
            *([seen.calls()] if tools else []),
            seen.extends(),
            seen.answers(),
        ]
        checks.append(_connections(log) if traced else _skipped("strace is not installed, or no command"))
    return SelfTest(checks=tuple(checks))


async def _play(program: AgentProgram, *, tools: bool) -> Trajectory:
    renderer = ByteRenderer()

    def script(prompt: str, key: RequestKey) -> str:  # noqa: ARG001  # the prompt tells where it is
        offered = TOOL.search(prompt)
        if offered is None or ANSWER in prompt:
            return ANSWER
        return f'<tool_call>{{"name": "{offered[1]}", "arguments": {{"word": "{WORD}"}}}}</tool_call>'

    def make(env_id: str, env_kwargs: Mapping[str, Any]) -> TextEnv:  # noqa: ARG001
        return _BackwardsWithTool() if tools else _Backwards()

    params = SamplingParams(max_tokens=1024)
    seat = PolicySeat(sampler=ScriptedSampler(renderer, script), renderer=renderer, params=params)
    plan = EpisodePlan(key=EpisodeKey((0, 0), 0), env_id="self-test", task=0)
    async with Gateway() as gateway:
        settings = RolloutSettings(
            run_id="self-test",
            run_seed=0,
            seats={"main": seat},
            program=program,
            limits=RolloutLimits(max_turns=8, wall_clock_s=LIMIT_S),
            gateway=gateway,
        )
        with EnvPool(make) as envs:
            return await play_episode(plan, settings, envs=envs)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is to be seen in the trajectory of a self-test."""

    played: Trajectory

    def ends(self) -> SelfTestCheck:
        failure, cut = self.played.failure, self.played.truncation_reason
        text = "ended by itself" if cut is None else f"was cut: {cut.value}"
        if failure is not None:
            text = f"{failure.kind}: {failure.reason}"
        return _check("ends", failure is None and cut is None, text)

    def asks(self) -> SelfTestCheck:
        turns = self.played.turns
        side = [turn.use for turn in turns if turn.use != "train"]
        text = f"{len(turns)} requests to the policy, {len(side)} of them beside the task"
        return _check("asks", bool(turns) and not side, text)

    def calls(self) -> SelfTestCheck:
        records = [record for event in self.played.events for record in event.tool_calls]
        found = [record for record in records if record.name.endswith("say_backwards")]
        worked = any(record.status == "ok" and ANSWER in record.result for record in found)
        text = "called the environment's tool and read its result"
        if not worked:
            text = f"calls and results: {[(record.name, record.status, record.result) for record in records]}"
        return _check("calls", worked, text)

    def extends(self) -> SelfTestCheck:
        metrics = self.played.metrics
        roots = sum(turn.parent is None for turn in self.played.turns)
        share = metrics.get("delivered_fraction", 0.0)
        text = f"{roots} conversation, each prompt extends the last; {share:.0%} of the tokens reach learning"
        if roots != 1:
            text = f"{roots} conversations where one was expected"
        return _check("extends", roots == 1 and share == 1.0, text)

    def answers(self) -> SelfTestCheck:
        said = [event.action for event in self.played.events if event.stepped][-1:]
        text = f"the answer that reached the environment is {said[0]!r:.200}" if said else "no answer came"
        return _check("answers", self.played.reward == 1.0, text)


class _Traced:
    """An adapter whose program runs under strace, which writes its connections down."""

    def __init__(self, adapter: CliAdapter, log: Path) -> None:
        self._adapter = adapter
        self._log = log
        self.name = adapter.name

    async def check(self) -> None:
        await self._adapter.check()

    def launch(self, place: Place) -> Launch:
        launch = self._adapter.launch(place)
        strace = shutil.which("strace") or "strace"
        words = (strace, *_STRACE, str(self._log), *launch.words)
        return dataclasses.replace(launch, words=words)

    def answer(self, place: Place, ended: Ended) -> str | None:
        return self._adapter.answer(place, ended)


def _can_trace() -> bool:
    strace = shutil.which("strace")
    if strace is None:
        return False
    command = [strace, *_STRACE, "/dev/null", "true"]
    return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0


def _connections(log: Path) -> SelfTestCheck:
    text = log.read_text(errors="replace") if log.exists() else ""
    found = {first or second for first, second in _ADDRESS.findall(text)}
    if not found:  # it asked the gateway, so what watches is blind here
        return _skipped("strace saw no connection, not even the one to the gateway")
    away = sorted(address for address in found if not address.startswith("127.") and address != "::1")
    return _check("loopback", not away, f"connects to {', '.join(away or sorted(found))}")


def _check(name: str, fine: bool, detail: str) -> SelfTestCheck:
    return SelfTestCheck(name=name, status="pass" if fine else "fail", detail=detail)


def _skipped(why: str) -> SelfTestCheck:
    return SelfTestCheck(name="loopback", status="skip", detail=why)
