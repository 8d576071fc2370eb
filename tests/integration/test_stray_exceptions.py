"""What a program, a tool or an environment lets escape stays in its own episode."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from playground import CountingPool, SpySampler, plans, settings

from hyperrl.agents import EnvPool, EpisodePlan, FunctionProgram, RolloutLimits, play_groups
from hyperrl.envs import TextEnv, reward, tool
from hyperrl.errors import RolloutError
from hyperrl.sampling import Completion, EpisodeKey
from hyperrl.trajectory import StopReason, Trajectory, TruncationReason


class Stray(TextEnv):
    """Raises CancelledError where the task says, as code does that waits for something cancelled."""

    def tasks(self) -> Any:
        return [{"at": place} for place in ("start", "tool", "reply", "reward", "nowhere")]

    def raise_at(self, place: str) -> None:
        if self.task["at"] == place:
            raise asyncio.CancelledError

    async def start(self) -> str:
        self.raise_at("start")
        return "go"

    @tool
    async def wait(self) -> str:
        """Wait."""
        self.raise_at("tool")
        return "waited"

    async def reply(self) -> str | None:
        self.raise_at("reply")
        return None

    @reward
    async def fine(self) -> float:
        self.raise_at("reward")
        return 1.0


def play(*, limits: RolloutLimits | None = None, program: Any = None, env: Any = Stray) -> list[Trajectory]:
    script = ['<tool_call>{"name": "wait", "arguments": {}}</tool_call>', "done"]
    shared = {} if program is None else {"program": FunctionProgram("own", program)}
    setup = settings(SpySampler(script), limits=limits, **shared)
    each = [dataclasses.replace(plan, task=task) for task, plan in enumerate(plans("Stray", 5))]
    with EnvPool(lambda *_: env()) as envs:
        groups = asyncio.run(play_groups(each, setup, envs=envs, max_concurrent=1))
    return [trajectory for group in groups for trajectory in group]


def test_a_stray_cancelled_error_is_a_failure_of_its_episode_alone() -> None:
    found = {t.reset_options["task"]: t for t in play()}
    failures = [found[i].failure for i in range(5)]
    assert [f and (f.kind, f.stage) for f in failures] == [
        ("reset_error", "reset"),
        None,
        ("step_error", "step"),
        None,
        None,
    ]
    assert [found[i].reward for i in range(5)] == [None, 1.0, None, None, 1.0]
    assert found[1].events[0].tool_calls[0].status == "error"


def test_a_program_that_awaits_a_cancelled_task_fails_alone() -> None:
    async def awaits_cancelled(ctx: Any) -> None:
        if ctx.task["at"] == "nowhere":
            await ctx.step(await ctx.policy.respond(ctx.observation.messages))
            await ctx.finish()
            return
        other = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        other.cancel()
        await other

    *failed, fine = play(program=awaits_cancelled)
    assert {t.failure.stage for t in failed[1:] if t.failure} == {"program"}
    assert fine.failure is None


def test_a_program_that_ignores_every_refusal_is_cut_by_the_clock() -> None:
    async def never_gives_up(ctx: Any) -> None:
        while True:
            try:
                await ctx.policy.respond(ctx.observation.messages)
            except Exception:  # noqa: BLE001  # the mistake itself
                continue

    limits = RolloutLimits(max_turns=1, wall_clock_s=0.2)
    with CountingPool() as envs:
        setup = settings(SpySampler(["a"]), limits=limits, program=FunctionProgram("own", never_gives_up))
        (group,) = asyncio.run(play_groups(plans("Echo"), setup, envs=envs))
    assert group.trajectories[0].truncation_reason is TruncationReason.MAX_TURNS


def test_an_environment_that_was_cut_in_its_reset_is_not_lent_again() -> None:
    class Endless(Stray):
        closed = 0

        async def start(self) -> str:
            await asyncio.sleep(60)
            return "never"

        def close(self) -> None:
            Endless.closed += 1

    with EnvPool(lambda *_: Endless()) as envs:
        setup = settings(SpySampler(["a"]), limits=RolloutLimits(wall_clock_s=0.02))
        (group,) = asyncio.run(play_groups(plans("Endless"), setup, envs=envs))
        assert Endless.closed == 1
    (trajectory,) = group
    assert trajectory.truncation_reason is TruncationReason.WALL_CLOCK
    assert trajectory.reward is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (RolloutLimits(max_tokens=20), TruncationReason.MAX_TOKENS),
        (RolloutLimits(max_context=60), TruncationReason.CONTEXT),
        (RolloutLimits(max_episode_tokens=60), TruncationReason.MAX_TOKENS),
    ],
)
def test_a_cut_action_names_the_limit_that_cut_it(limits: RolloutLimits, reason: TruncationReason) -> None:
    with CountingPool() as envs:
        setup = settings(SpySampler(["x" * 200]), limits=limits)
        (group,) = asyncio.run(play_groups(plans("Echo"), setup, envs=envs))
    assert group.trajectories[0].truncation_reason is reason


def test_a_sampler_may_name_the_stop_reason_in_plain_text() -> None:
    class Plain(SpySampler):
        async def generate(self, *args: Any, **kwargs: Any) -> Completion:
            completion = await super().generate(*args, **kwargs)
            return dataclasses.replace(completion, stop_reason="length")  # type: ignore[arg-type]

    with CountingPool() as envs:
        (group,) = asyncio.run(play_groups(plans("Echo"), settings(Plain(["a"])), envs=envs))
    (trajectory,) = group
    assert trajectory.turns[0].stop_reason is StopReason.LENGTH
    assert trajectory.truncated


def test_finishing_an_episode_that_has_ended_does_nothing() -> None:
    async def always_finishes(ctx: Any) -> None:
        await ctx.step(await ctx.policy.respond(ctx.observation.messages))
        await ctx.finish()
        await ctx.finish()

    with CountingPool() as envs:
        setup = settings(SpySampler(["a"]), program=FunctionProgram("own", always_finishes))
        ended, cut = asyncio.run(play_groups([*plans("Echo", turns=1), *_second_group()], setup, envs=envs))
    assert [(t.failure, t.terminated, len(t.reward_terms)) for g in (ended, cut) for t in g] == [
        (None, True, 1),
        (None, True, 1),
    ]


def _second_group() -> list[EpisodePlan]:
    (plan,) = plans("Echo", turns=9)
    return [dataclasses.replace(plan, key=EpisodeKey((0, 1), 0))]


def test_messages_that_cannot_be_bridged_are_named_with_the_reason() -> None:
    class Speaks(Stray):
        async def start(self) -> str:
            return "go"

        async def reply(self) -> Any:
            return [{"role": "assistant", "content": "I answer for you"}]

    with pytest.raises(RolloutError, match="cannot follow the recorded conversation: a reply that was not"):
        play(env=Speaks)
