"""What every agent program can rely on, and how a config names one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playground import CountingPool, SpySampler, counting_script, plans, seat, settings

from hyperrl.agents.base import AgentProgram, EpisodeContext, FunctionProgram, load_program, program_name
from hyperrl.agents.rollout import RolloutLimits, play_episode
from hyperrl.agents.turn_loop import TurnLoop
from hyperrl.errors import ConfigError
from hyperrl.trajectory import Trajectory


async def one_shot(ctx: EpisodeContext) -> None:
    """A user's program: ask once, hand in the text."""
    reply = await ctx.policy.respond(ctx.observation.messages, ctx.tools)
    await ctx.step(reply)
    await ctx.step("stop")


class Debate:
    """A user's program with two seats that read each other."""

    name = "debate"

    async def run(self, ctx: EpisodeContext) -> None:
        said = list(ctx.observation.messages)
        pro = await ctx.policies["pro"].respond(said)
        contra = await ctx.policies["contra"].respond([*said, {"role": "user", "content": pro.text}])
        await ctx.recorder.policy("pro", use="side").respond([{"role": "user", "content": "a title?"}])
        await ctx.step(contra)
        await ctx.step("stop")


class NeedsArguments:
    def __init__(self, value: int) -> None:
        self.value = value

    async def run(self, ctx: EpisodeContext) -> None:
        """Never reached."""


debate = Debate()
not_a_program = 3
HERE = __name__


def play(program: AgentProgram, seats: tuple[str, ...] = ("main",), **limits: Any) -> Trajectory:
    sampler = SpySampler(counting_script)
    shared = settings(
        sampler,
        seats={name: seat(sampler) for name in seats},
        program=program,
        limits=RolloutLimits(**limits),
    )
    return asyncio.run(play_episode(plans("Echo", turns=9)[0], shared, envs=CountingPool()))


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("turn_loop", "turn_loop"),
        ("codex", "codex"),
        ("deepseek", "deepseek"),
        ("hyperrl.agents.turn_loop:TurnLoop", "turn_loop"),
        ("hyperrl.agents.turn_loop.TurnLoop", "turn_loop"),
        (f"{HERE}:one_shot", f"{HERE}:one_shot"),
        (f"{HERE}:debate", "debate"),
        (f"{HERE}:Debate", "debate"),
        (f"{HERE}:debate.run", f"{HERE}:debate.run"),
    ],
)
def test_programs_are_found_by_name(name: str, recorded: str) -> None:
    program = load_program(name)
    assert isinstance(program, AgentProgram)
    assert program_name(program) == recorded


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("turn_lop", "Did you mean 'turn_loop'"),
        ("", "unknown agent program"),
        ("nowhere.at.all:run", "cannot be imported"),
        (f"{HERE}:one_shop", "Did you mean 'one_shot'"),
        (f"{HERE}:not_a_program", "must be an 'async def run"),
        (f"{HERE}:play", "must be an 'async def run"),
        (f"{HERE}:NeedsArguments", "cannot be made without arguments"),
    ],
)
def test_what_is_no_program_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_program(name)


@pytest.mark.parametrize("program", [TurnLoop(), FunctionProgram("mine", one_shot)])
def test_every_program_leaves_a_trajectory_that_learning_may_use(program: AgentProgram) -> None:
    trajectory = play(program)
    assert trajectory.usable
    assert trajectory.answer_turn == len(trajectory.turns) - 1
    assert trajectory.metrics["new_root_rate"] == 0


def test_limits_hold_for_every_program() -> None:
    async def endless(ctx: EpisodeContext) -> None:
        while True:
            await ctx.policy.respond(ctx.observation.messages)

    trajectory = play(FunctionProgram("endless", endless), max_turns=3)
    assert trajectory.truncated
    assert len(trajectory.turns) == 3
    assert trajectory.metrics["new_roots_resampled"] == 2


def test_a_program_may_end_the_episode_itself() -> None:
    async def works_elsewhere(ctx: EpisodeContext) -> None:
        await ctx.policy.respond(ctx.observation.messages)
        (ctx.workspace / "result").write_text("done")
        await ctx.finish()
        assert ctx.terminated

    trajectory = play(FunctionProgram("cli", works_elsewhere))
    assert trajectory.failure is None
    assert trajectory.terminated
    assert [(term.name, term.score, term.turn) for term in trajectory.reward_terms] == [("said", 0.0, 0)]


def test_seats_and_side_requests() -> None:
    trajectory = play(debate, ("pro", "contra"))
    assert [(turn.policy, turn.use) for turn in trajectory.turns] == [
        ("pro", "train"),
        ("contra", "train"),
        ("pro", "side"),
    ]
    assert [event.stepped for event in trajectory.events] == [False, True, False]
    assert trajectory.metrics["new_roots_new_conversation"] == 1
    assert trajectory.failure is None


def test_the_context_says_what_there_is() -> None:
    seen: dict[str, Any] = {}

    async def look(ctx: EpisodeContext) -> None:
        seen.update(task=ctx.task["start"], tools=ctx.tools, left=ctx.remaining_s, ended=ctx.terminated)
        seen["workspace"] = ctx.workspace
        (ctx.workspace / "note").write_text("x")
        assert ctx.workspace == seen["workspace"]
        with pytest.raises(ConfigError, match="no seat is called 'main'"):
            _ = ctx.policy
        await ctx.step("stop")
        seen["after"] = ctx.terminated

    trajectory = play(FunctionProgram("look", look), ("a", "b"), wall_clock_s=50)
    assert trajectory.failure is None
    assert trajectory.reward == 1.0
    assert (seen["task"], seen["tools"], seen["ended"], seen["after"]) == ("task 0", (), False, True)
    assert 0 < seen["left"] <= 50
    assert isinstance(seen["workspace"], Path)
    assert not seen["workspace"].exists()
