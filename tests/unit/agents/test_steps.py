"""The steps of an episode: columns that read like a list of records."""

from __future__ import annotations

import asyncio

import pytest
from playground import CountingPool, SpySampler, plans, settings

from hyperrl.agents.base import EpisodeContext, FunctionProgram, StepRecord, Steps
from hyperrl.agents.rollout import play_groups
from hyperrl.envs.messages import Observation
from hyperrl.envs.outcome import Outcome
from hyperrl.trajectory import StopReason


def some_steps(count: int) -> tuple[Steps, list[StepRecord]]:
    steps, records = Steps(), []
    for turn in range(count):
        outcome = Outcome("reply", Observation(f"say {turn}"), "t")
        steps.parts += [turn, outcome, StopReason.STOP]
        records.append(StepRecord(turn, outcome, StopReason.STOP))
    return steps, records


def test_steps_read_like_a_list_of_records() -> None:
    steps, records = some_steps(3)
    assert list(steps) == records
    assert [steps[0], steps[-1]] == [records[0], records[-1]]
    assert steps[1:] == records[1:]
    assert steps[::-1] == records[::-1]
    assert len(steps) == 3
    assert (steps.turns, steps.outcomes) == ([0, 1, 2], [record.outcome for record in records])
    assert steps[-1].outcome.observation == "say 2"
    assert not Steps()
    with pytest.raises(IndexError):
        steps[3]


def test_a_program_sees_the_steps_grow() -> None:
    seen: list[tuple[int, int | None, StopReason]] = []

    async def run(ctx: EpisodeContext) -> None:
        steps = ctx.steps
        reply = await ctx.policy.respond(ctx.observation.messages)
        outcome = await ctx.step(reply)
        seen.append((len(steps), steps[-1].turn, steps[-1].stop_reason))
        await ctx.policy.follow_up(reply, outcome.observation.messages)
        await ctx.step("stop")
        seen.append((len(steps), steps[-1].turn, steps[-1].stop_reason))

    with CountingPool() as envs:
        rollout = settings(SpySampler(lambda prompt, key: "go"), program=FunctionProgram("seen", run))
        asyncio.run(play_groups(plans("Echo"), rollout, envs=envs))
    assert seen == [(1, 0, StopReason.STOP), (2, 1, StopReason.STOP)]
