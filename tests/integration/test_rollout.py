"""Playing episodes: limits, failing pieces, cancellation, many at once, determinism."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playground import (
    CountingPool,
    Script,
    SpySampler,
    counting_script,
    plans,
    seat,
    settings,
    user,
)

from hyperrl.agents.base import EpisodeContext, FunctionProgram
from hyperrl.agents.episode import reset_seed
from hyperrl.agents.recorder import RemoteSeat
from hyperrl.agents.rollout import (
    EpisodePlan,
    RolloutLimits,
    RolloutSettings,
    play_episode,
    play_groups,
)
from hyperrl.agents.scripted import ScriptedPolicy
from hyperrl.agents.turn_loop import TurnLoop
from hyperrl.errors import ConfigError, InvariantError, RolloutError, SamplerClosedError, SamplingError
from hyperrl.sampling import Completion, EpisodeKey, RequestKey
from hyperrl.trajectory import Group, StopReason, Trajectory, TruncationReason

ADD = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'


def play(
    env_id: str, script: Script | list[str], limits: RolloutLimits | None = None, **kwargs: Any
) -> Trajectory:
    """Play one episode of a test environment."""
    (plan,) = plans(env_id, **kwargs)
    with CountingPool() as envs:
        return asyncio.run(play_episode(plan, settings(SpySampler(script), limits=limits), envs=envs))


def play_all(
    env_id: str, groups: int, size: int, sampler: Any = None, **options: Any
) -> tuple[list[Group], CountingPool]:
    limits, kwargs = options.pop("limits", None), options.pop("kwargs", {})
    shared = settings(sampler or SpySampler(counting_script), limits=limits, **options.pop("shared", {}))
    with CountingPool() as envs:
        found = asyncio.run(play_groups(plans(env_id, groups, size, **kwargs), shared, envs=envs, **options))
    return found, envs


# What a trajectory holds.


def test_an_episode_is_recorded_whole() -> None:
    sampler = SpySampler(counting_script, policy_version=4)
    (plan,) = plans("Echo", turns=3)
    trajectory = asyncio.run(play_episode(plan, settings(sampler), envs=CountingPool()))
    assert (trajectory.run_id, trajectory.group_id, trajectory.sample_index) == ("run", (0, 0), 0)
    assert (trajectory.env_id, trajectory.env_version, dict(trajectory.env_kwargs)) == (
        "Echo",
        "1",
        {"turns": 3},
    )
    assert dict(trajectory.reset_options) == {"task": 0}
    assert trajectory.seed == reset_seed(7, (0, 0))
    assert trajectory.program == "turn_loop"
    assert trajectory.terminated
    assert not trajectory.truncated
    assert trajectory.failure is None
    assert trajectory.usable
    assert trajectory.reward == 3.0
    assert [term.turn for term in trajectory.reward_terms] == [2]
    assert trajectory.answer_turn == 2
    assert [event.action for event in trajectory.events] == ["0/0/0", "0/0/1", "0/0/2"]
    assert [event.observation for event in trajectory.events][1:] == ["you said 0/0/0", "you said 0/0/1"]
    assert all(event.stepped for event in trajectory.events)
    for i, turn in enumerate(trajectory.turns):
        assert trajectory.prompt_ids(i).tolist() == sampler.prompts[RequestKey((0, 0), 0, "main", i)]
        assert set(turn.policy_versions.tolist()) == {4}
    assert trajectory.metrics["turns"] == trajectory.metrics["steps"] == 3
    assert trajectory.metrics["new_root_rate"] == 0
    assert trajectory.metrics["action_tokens"] == sum(len(turn.action_ids) for turn in trajectory.turns)
    assert set(trajectory.timings) == {"reset_s", "policy_s", "step_s", "total_s"}


def test_calls_of_a_cut_action_are_recorded_and_not_run() -> None:
    cut = play("Adder", [ADD, "5"], RolloutLimits(max_tokens=20))
    assert [record.status for record in cut.events[0].tool_calls] == ["not_run"]
    assert cut.events[0].stepped
    assert cut.reward == 0.0


def test_tools_answer_within_the_conversation() -> None:
    calls = (
        f'{ADD}<tool_call>{{"name": "explode", "arguments": {{}}}}</tool_call>'
        '<tool_call>{"name": "ad", "arguments": {}}</tool_call><tool_call>{bad</tool_call>'
    )
    sampler = SpySampler([calls, "5"])
    shared = settings(sampler, seats={"main": seat(sampler, max_tokens=500)})
    trajectory = asyncio.run(play_episode(plans("Adder")[0], shared, envs=CountingPool()))
    first, second = trajectory.events
    assert [record.status for record in first.tool_calls] == ["ok", "error", "unknown_tool", "invalid_json"]
    assert first.tool_calls[0].result == "5"
    assert len({record.call_id for record in first.tool_calls}) == 4
    assert "5" in second.observation
    assert trajectory.reward == 1.0
    assert trajectory.metrics["tool_calls"] == 4
    assert trajectory.metrics["tool_calls_unknown_tool"] == 1
    assert trajectory.turns[1].parent == 0


def test_what_was_read_after_the_last_action_is_kept() -> None:
    trajectory = play("Echo", counting_script, RolloutLimits(max_turns=2), turns=5)
    ids = trajectory.final_context_ids.tolist()
    assert bytes(i for i in ids if i < 256).decode() == "\nuser\nyou said 0/0/1\nassistant\n"
    assert trajectory.events[-1].turn is None
    assert trajectory.events[-1].observation == "you said 0/0/1"
    assert play("Echo", counting_script).final_context_ids.size == 0


# Limits.


def test_too_many_turns_truncate_and_are_scored() -> None:
    trajectory = play("Echo", counting_script, RolloutLimits(max_turns=2), turns=5)
    assert trajectory.truncation_reason is TruncationReason.MAX_TURNS
    assert not trajectory.terminated
    assert (len(trajectory.turns), trajectory.reward) == (2, 2.0)
    assert trajectory.reward_terms[0].turn == 1


def test_the_limit_of_the_environment_holds_if_it_is_lower() -> None:
    class Limited(CountingPool):
        def _make(self, env_id: str, env_kwargs: Any) -> Any:
            env = super()._make(env_id, env_kwargs)
            env.max_episode_steps = 2
            return env

    for limits, turns in (
        (RolloutLimits(), 2),
        (RolloutLimits(max_turns=1), 1),
        (RolloutLimits(max_turns=3), 2),
    ):
        plan = plans("Echo", turns=5)[0]
        shared = settings(SpySampler(counting_script), limits=limits)
        trajectory = asyncio.run(play_episode(plan, shared, envs=Limited()))
        assert len(trajectory.turns) == turns


def test_a_long_action_is_cut_and_scored() -> None:
    trajectory = play("Echo", lambda prompt, key: "x" * 100, RolloutLimits(max_tokens=10), turns=5)
    assert trajectory.truncation_reason is TruncationReason.MAX_TOKENS
    assert trajectory.turns[0].stop_reason is StopReason.LENGTH
    assert trajectory.events[0].stepped
    assert trajectory.reward == 1.0


def test_a_long_episode_is_cut_and_scored() -> None:
    trajectory = play("Echo", counting_script, RolloutLimits(max_episode_tokens=120), turns=9)
    assert trajectory.truncation_reason is TruncationReason.MAX_TOKENS
    assert trajectory.metrics["context_tokens"] + trajectory.metrics["action_tokens"] <= 120
    assert trajectory.reward is not None


def test_a_full_context_is_cut_and_scored() -> None:
    trajectory = play("Echo", counting_script, RolloutLimits(max_context=75), turns=9)
    assert trajectory.truncation_reason is TruncationReason.CONTEXT
    assert trajectory.final_context_ids.size > 0
    assert trajectory.reward == float(len(trajectory.turns))
    nothing = play("Echo", counting_script, RolloutLimits(max_context=5))
    assert nothing.truncation_reason is TruncationReason.CONTEXT
    assert not nothing.turns
    assert nothing.failure is None


def test_time_runs_out_in_a_policy_and_in_a_step() -> None:
    class Sleeper(SpySampler):
        async def generate(self, *args: Any, **names: Any) -> Completion:
            if names["request_id"].ordinal == 1:
                await asyncio.sleep(60)
            return await super().generate(*args, **names)

    limits = RolloutLimits(wall_clock_s=0.1)
    shared = settings(Sleeper(counting_script), limits=limits)
    trajectory = asyncio.run(play_episode(plans("Echo")[0], shared, envs=CountingPool()))
    assert trajectory.truncation_reason is TruncationReason.WALL_CLOCK
    assert (len(trajectory.turns), trajectory.reward) == (1, 1.0)

    trajectory = play("Slow", counting_script, limits, seconds=60)
    assert trajectory.truncation_reason is TruncationReason.WALL_CLOCK
    assert trajectory.reward is None
    assert trajectory.failure is None
    assert not trajectory.usable


def test_a_program_that_ignores_its_cancellation_is_out_of_time_too() -> None:
    async def stubborn(ctx: EpisodeContext) -> None:
        reply = await ctx.policy.respond(ctx.observation.messages)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await ctx.step(reply)

    program, limits = FunctionProgram("stubborn", stubborn), RolloutLimits(wall_clock_s=0.05)
    shared = settings(SpySampler(counting_script), program=program, limits=limits)
    trajectory = asyncio.run(play_episode(plans("Echo")[0], shared, envs=CountingPool()))
    assert trajectory.truncation_reason is TruncationReason.WALL_CLOCK
    assert trajectory.reward == 1.0


def test_limits_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="max_turns must be positive"):
        RolloutLimits(max_turns=0)


# Failing pieces.


def failing(script: Script) -> Script:
    """Fail in sample 1 of group 0, else answer."""

    def answer(prompt: str, key: RequestKey) -> str:
        return script(prompt, key) if key[:2] == ((0, 0), 1) else "fine"

    return answer


def raise_it(error: BaseException) -> Script:
    def script(prompt: str, key: RequestKey) -> str:
        raise error

    return script


def test_one_failing_policy_call_is_one_failure() -> None:
    sampler = SpySampler(failing(raise_it(SamplingError("the model tripped"))))
    groups, envs = play_all("Echo", 2, 2, sampler)
    failures = [trajectory.failure for group in groups for trajectory in group]
    assert [failure is None for failure in failures] == [True, False, True, True]
    assert failures[1] is not None
    assert (failures[1].kind, failures[1].stage, failures[1].exclude) == ("policy_error", "policy", True)
    assert failures[1].reason == "SamplingError: the model tripped"
    assert len(groups[0].usable) == 1
    assert envs.closed == envs.made


@pytest.mark.parametrize(("at", "stage"), [("reset", "reset"), ("step", "step")])
def test_a_broken_environment_is_a_failure(at: str, stage: str) -> None:
    (plan,) = plans("Broken", at=at)
    envs = CountingPool()
    trajectory = asyncio.run(_raises_for_all(plan, envs))
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.failure.stage) == (f"{stage}_error", stage)
    assert "RuntimeError: no" in trajectory.failure.reason
    assert envs.closed == 1


async def _raises_for_all(plan: EpisodePlan, envs: CountingPool) -> Trajectory:
    shared = settings(SpySampler(counting_script))
    with pytest.raises(RolloutError, match="all 1 episodes failed with"):
        await play_groups([plan], shared, envs=CountingPool())
    return await play_episode(plan, shared, envs=envs)


async def gives_up(ctx: EpisodeContext) -> None:
    await ctx.policy.respond(ctx.observation.messages)


async def trips(ctx: EpisodeContext) -> None:
    raise KeyError("oops")


async def swallows(ctx: EpisodeContext) -> None:
    messages = list(ctx.observation.messages)
    try:
        while True:
            reply = await ctx.policy.respond(messages)
            outcome = await ctx.step(reply)
            messages += [reply.message, *outcome.observation.messages]
    except Exception:  # noqa: BLE001  (what a careless program does)
        return


async def branches(ctx: EpisodeContext) -> None:
    async with asyncio.TaskGroup() as tasks:
        for i in range(9):
            tasks.create_task(ctx.policy.respond([user(str(i))]))


@pytest.mark.parametrize(
    ("function", "kind"),
    [(gives_up, "unfinished"), (trips, "program_error"), (swallows, None), (branches, None)],
)
def test_programs_that_end_early(function: Any, kind: str | None) -> None:
    program = FunctionProgram("mine", function)
    shared = settings(SpySampler(counting_script), program=program, limits=RolloutLimits(max_turns=2))
    trajectory = asyncio.run(play_episode(plans("Echo", turns=9)[0], shared, envs=CountingPool()))
    assert trajectory.program == "mine"
    assert (trajectory.failure and trajectory.failure.kind) == kind
    assert trajectory.truncated is (kind is None)


def test_an_environment_cannot_rewrite_what_the_built_in_loop_has_asked() -> None:
    class Forgetful(CountingPool):
        def _make(self, env_id: str, env_kwargs: Any) -> Any:
            env = super()._make(env_id, env_kwargs)
            reset, step = env.areset, env.astep
            shown: list[Any] = []

            async def areset(**options: Any) -> Any:
                outcome = await reset(**options)
                shown[:] = outcome.observation.messages
                return outcome

            async def astep(action: str) -> Any:
                shown[0]["content"] = "another past"
                return await step(action)

            env.areset, env.astep = areset, astep  # type: ignore[method-assign]
            return env

    shared = settings(SpySampler(counting_script))
    trajectory = asyncio.run(play_episode(plans("Echo")[0], shared, envs=Forgetful()))
    assert trajectory.failure is None
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1]
    assert "another past" not in "".join(event.observation for event in trajectory.events)


def test_the_built_in_loop_may_not_rewrite_history() -> None:
    class Rewriting(TurnLoop):
        async def run(self, ctx: EpisodeContext) -> None:
            reply = await ctx.policy.respond(ctx.observation.messages, ctx.tools)
            outcome = await ctx.step(reply)
            past = {"role": "user", "content": "another past"}
            await ctx.policy.respond([past, reply.message, *outcome.observation.messages], ctx.tools)

    shared = settings(SpySampler(counting_script), program=Rewriting())
    trajectory = asyncio.run(play_episode(plans("Echo")[0], shared, envs=CountingPool()))
    assert trajectory.failure is not None
    assert trajectory.failure.kind == "new_root"


class Odd(SpySampler):
    """Returns what breaks an invariant of trajectories, or an aborted action."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(["hi"])
        self.changes = changes

    async def generate(self, *args: Any, **names: Any) -> Completion:
        values = {"action_ids": [104, 257], "logprobs": [0.0, 0.0], "policy_versions": [0, 0]}
        values |= {"stop_reason": StopReason.STOP} | self.changes
        return Completion(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"logprobs": [0.0, float("nan")]}, "invalid_trajectory"),
        ({"policy_versions": [1, 0]}, "invalid_trajectory"),
        ({"action_ids": [2**40, 257]}, "policy_error"),
        ({"logprobs": [0.0]}, "policy_error"),
        ({"stop_reason": StopReason.ABORT}, "aborted"),
    ],
)
def test_a_sampler_that_answers_nonsense_is_a_failure(changes: dict[str, Any], kind: str) -> None:
    trajectory = asyncio.run(play_episode(plans("Echo")[0], settings(Odd(**changes)), envs=CountingPool()))
    assert trajectory.failure is not None
    assert trajectory.failure.kind == kind
    assert not trajectory.usable


@pytest.mark.parametrize(
    "error", [SamplerClosedError("closed"), InvariantError("broken"), ConfigError("bad")]
)
def test_what_no_episode_is_to_blame_for_ends_the_rollout(error: Exception) -> None:
    sampler = SpySampler(failing(raise_it(error)))
    envs = CountingPool()

    async def run() -> None:
        with pytest.raises(type(error)):
            await play_groups(plans("Echo", 3, 3), settings(sampler), envs=envs)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    envs.close()
    assert envs.closed == envs.made


def test_a_batch_in_which_everything_fails_alike_is_an_error() -> None:
    sampler = SpySampler(raise_it(OSError("no route to the sampler")))
    with pytest.raises(RolloutError, match=r"all 4 episodes failed with policy_error.*no route") as caught:
        play_all("Echo", 2, 2, sampler)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_observer_that_fails_ends_the_rollout() -> None:
    def observe(trajectory: Trajectory) -> None:
        raise OSError("disk full") from KeyError("why")

    with pytest.raises(OSError, match="disk full") as caught:
        play_all("Echo", 2, 2, on_episode=observe)
    assert isinstance(caught.value.__cause__, KeyError)


def test_unknown_environments_end_the_rollout() -> None:
    plan = EpisodePlan(key=EpisodeKey((0, 0), 0), env_id="hyperrl/SortDigit-v0")
    with pytest.raises(ConfigError, match="SortDigits-v0"):
        asyncio.run(play_episode(plan, settings(SpySampler(counting_script))))


def test_plans_must_differ_and_somebody_must_sit() -> None:
    with pytest.raises(ConfigError, match="2 episodes have only 1"):
        asyncio.run(play_groups(plans("Echo") * 2, settings(SpySampler(counting_script))))
    with pytest.raises(ConfigError, match="at least one seat"):
        RolloutSettings(run_id="r", run_seed=0, seats={})


# Many at once.


def test_results_keep_the_order_of_the_plans() -> None:
    seen: list[EpisodeKey] = []
    groups, _ = play_all(
        "Echo",
        4,
        3,
        on_episode=lambda t: seen.append(EpisodeKey(t.group_id, t.sample_index)),
        max_concurrent=5,
    )
    assert [group.group_id for group in groups] == [(0, i) for i in range(4)]
    assert [[t.sample_index for t in group] for group in groups] == [[0, 1, 2]] * 4
    assert sorted(seen) == [plan.key for plan in plans("Echo", 4, 3)]
    assert asyncio.run(play_groups([], settings(SpySampler(counting_script)))) == []


def test_members_of_a_group_play_the_same_instance() -> None:
    groups, _ = play_all("Echo", 6, 4)
    first = [[t.events[0].observation for t in group] for group in groups]
    assert all(len(set(texts)) == 1 for texts in first)
    assert len({texts[0] for texts in first}) > 1
    assert len({t.seed for group in groups for t in group}) == 6


def test_the_result_depends_on_nothing_but_plans_and_seed() -> None:
    def without_time(groups: list[Group]) -> list[Any]:
        return [
            (t.turns, t.events, t.reward_terms, dict(t.metrics), t.seed, t.final_context_ids.tolist())
            for group in groups
            for t in group
        ]

    alone = without_time(play_all("Echo", 5, 4, max_concurrent=1)[0])
    together = without_time(play_all("Echo", 5, 4)[0])
    some = without_time(play_all("Echo", 5, 4, max_concurrent=3)[0])
    assert alone == together == some


def test_environments_are_made_once_and_used_again() -> None:
    _, envs = play_all("Echo", 10, 4, max_concurrent=3)
    assert (envs.made, envs.closed) == (3, 3)
    groups, envs = play_all("Echo", 10, 4)
    assert (envs.made, envs.closed) == (40, 40)
    assert len(groups) == 10


def test_five_hundred_episodes_at_once() -> None:
    groups, _ = play_all("Echo", 125, 4, kwargs={"turns": 10})
    trajectories = [t for group in groups for t in group]
    assert len(trajectories) == 500
    assert {len(t.turns) for t in trajectories} == {10}
    assert {t.reward for t in trajectories} == {10.0}
    for t in trajectories[::50]:
        expected = [f"{t.group_id[1]}/{t.sample_index}/{i}" for i in range(10)]
        assert [event.action for event in t.events] == expected


def test_cancelling_leaves_nothing_behind() -> None:
    started = asyncio.Event()

    class Hanging(SpySampler):
        async def generate(self, *args: Any, **names: Any) -> Completion:
            if names["request_id"].ordinal == 1:
                started.set()
                await asyncio.sleep(3600)
            return await super().generate(*args, **names)

    sampler = AttendingSampler(Hanging(counting_script))
    envs = CountingPool()

    async def run() -> None:
        task = asyncio.create_task(
            play_groups(plans("Echo", 5, 4), settings(sampler), envs=envs, max_concurrent=7)
        )
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert envs.closed == envs.made == 7
    assert not sampler.live


def test_cancelling_before_anything_ran_leaves_nobody_attending() -> None:
    sampler = AttendingSampler(SpySampler(counting_script))

    async def run() -> None:
        task = asyncio.create_task(play_groups(plans("Echo", 5, 4), settings(sampler), envs=CountingPool()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert not sampler.live


class AttendingSampler:
    """Knows who is live, and keeps how many were at each request."""

    def __init__(self, inner: SpySampler) -> None:
        self.inner = inner
        self.live: set[EpisodeKey] = set()
        self.seen: list[int] = []
        self.policy_version = 0

    @asynccontextmanager
    async def attend(self, episode: EpisodeKey) -> AsyncIterator[None]:
        self.live.add(episode)
        try:
            yield
        finally:
            self.live.discard(episode)

    async def generate(
        self, prompt_ids: Any, params: Any, *, seed: int, request_id: RequestKey
    ) -> Completion:
        assert request_id.episode in self.live
        self.seen.append(len(self.live))
        return await self.inner.generate(prompt_ids, params, seed=seed, request_id=request_id)


def test_an_attended_sampler_always_knows_who_may_still_ask() -> None:
    sampler = AttendingSampler(SpySampler(counting_script))
    both = {"main": seat(sampler), "second": seat(sampler)}
    play_all("Echo", 4, 3, sampler, max_concurrent=5, shared={"seats": both})
    assert not sampler.live
    assert max(sampler.seen) == 5
    assert sampler.seen[: 12 * 3 - 5 * 3] == [5] * 21


class WaveSampler(AttendingSampler):
    """Answers once every episode that is live asks."""

    def __init__(self, inner: SpySampler) -> None:
        super().__init__(inner)
        self.waiting: set[EpisodeKey] = set()

    async def generate(
        self, prompt_ids: Any, params: Any, *, seed: int, request_id: RequestKey
    ) -> Completion:
        if self.live:
            self.waiting.add(request_id.episode)
        while request_id.episode in self.waiting:
            if self.live <= self.waiting:
                self.waiting.clear()
            await asyncio.sleep(0)
        return await self.inner.generate(prompt_ids, params, seed=seed, request_id=request_id)


@pytest.mark.parametrize("frozen", [True, False])
def test_waves_of_two_seats_never_wait_for_each_other(frozen: bool) -> None:
    started = iter(range(100))

    async def talk(ctx: EpisodeContext) -> None:
        orders = [("main", "main", "other"), ("main", "other", "main"), ("other", "main", "main")]
        for speaker in orders[next(started) % 3]:
            await ctx.policies[speaker].respond([{"role": "user", "content": "go"}])
        await ctx.step("stop")

    samplers = [WaveSampler(SpySampler(counting_script)) for _ in range(2)]
    other = dataclasses.replace(seat(samplers[1]), frozen=frozen)
    shared = settings(
        None,
        seats={"main": seat(samplers[0]), "other": other},
        program=FunctionProgram("talk", talk),
        limits=RolloutLimits(wall_clock_s=10),
    )
    [group] = asyncio.run(play_groups(plans("Echo", 1, 3), shared, envs=CountingPool()))
    assert [trajectory.terminated for trajectory in group] == [True] * 3
    assert not any(trajectory.truncated for trajectory in group)
    assert not samplers[0].live | samplers[1].live


# Other policies, and what comes after.


def test_a_policy_without_tokens_plays_for_evaluation() -> None:
    shared = settings(None, seats={"main": RemoteSeat(policy=ScriptedPolicy([ADD, "5"]))})
    trajectory = asyncio.run(play_episode(plans("Adder")[0], shared, envs=CountingPool()))
    assert trajectory.reward == 1.0
    assert trajectory.answer_turn == 1
    assert [turn.sampled for turn in trajectory.turns] == [False, False]
    assert [event.action for event in trajectory.events] == [ADD, "5"]


def test_trajectories_survive_the_store(tmp_path: Any) -> None:
    from hyperrl.store import TrajectoryWriter, read_trajectories

    odd = SpySampler(lambda prompt, key: "\ud800 \x00 🙂" if key.sample_index else ADD)
    groups, _ = play_all("Adder", 2, 2, odd, limits=RolloutLimits(max_turns=2))
    trajectories = [t for group in groups for t in group]
    TrajectoryWriter(tmp_path).write_part(trajectories, iteration=1)
    assert list(read_trajectories(tmp_path)) == trajectories
