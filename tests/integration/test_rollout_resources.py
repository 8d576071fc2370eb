"""What an episode opened is closed when a rollout is done with it, however the episode ended."""

import asyncio
import contextlib

import pytest
from playground import CountingPool, Echo, plans, settings

from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.rollout import RolloutLimits, play_groups
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.envs import episode

LOG = []


class Holding(Echo):
    """Holds a room for each episode; leaving it takes a while, or forever."""

    def __init__(self, *, slow=False, hang=False, **kwargs):
        super().__init__(**kwargs)
        self.slow, self.hang = slow, hang

    @contextlib.asynccontextmanager
    async def _room(self):
        LOG.append("enter")
        try:
            yield
        finally:
            await asyncio.sleep(3600 if self.hang else 0)
            LOG.append("leave")

    async def start(self, task, rng):
        await self.resources.enter_async_context(self._room())
        return Echo.start(self, task, rng)

    async def reply(self, action, turn):
        await asyncio.sleep(3600 if self.slow else 0)
        return Echo.reply(self, action, turn)


class Pool(CountingPool):
    def _make(self, env_id, env_kwargs):
        self.made += 1
        return Holding(**env_kwargs)


class Leaves:
    """A program that fails between two steps."""

    name = "leaves"

    async def run(self, ctx):
        await ctx.step(await ctx.policy.respond([{"role": "user", "content": "go"}], ()))
        raise RuntimeError("I leave")


def play(pool=None, *, limits=None, program=None, **env_kwargs):
    sampler = ScriptedSampler(ByteRenderer(), ["a", "b", "c", "d"])
    values = {} if program is None else {"program": program}
    configured = settings(sampler, limits=limits, **values)
    return play_groups(plans("Holding", groups=1, size=2, **env_kwargs), configured, envs=pool or Pool())


@pytest.fixture(autouse=True)
def log():
    LOG.clear()
    return LOG


def test_an_episode_that_ends_by_itself(log):
    [group] = asyncio.run(play())
    assert [trajectory.terminated for trajectory in group.trajectories] == [True, True]
    assert sorted(log) == ["enter", "enter", "leave", "leave"]


def test_an_episode_that_is_cut_at_a_turn(log):
    [group] = asyncio.run(play(limits=RolloutLimits(max_turns=1)))
    assert [trajectory.truncated for trajectory in group.trajectories] == [True, True]
    assert sorted(log) == ["enter", "enter", "leave", "leave"]


def test_an_episode_that_runs_out_of_time_in_a_step(log):
    [group] = asyncio.run(play(limits=RolloutLimits(wall_clock_s=0.3), slow=True))
    assert [trajectory.truncated for trajectory in group.trajectories] == [True, True]
    assert sorted(log) == ["enter", "enter", "leave", "leave"]


def test_a_program_that_fails_between_two_steps(log):
    with pytest.raises(Exception, match="I leave"):
        asyncio.run(play(program=Leaves()))
    assert sorted(log) == ["enter", "enter", "leave", "leave"]


def test_a_cancelled_rollout(log):
    async def run():
        playing = asyncio.create_task(play(slow=True))
        async with asyncio.timeout(30):
            while len(log) < 2:  # noqa: ASYNC110  # until both have begun
                await asyncio.sleep(0.01)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    asyncio.run(run())
    assert sorted(log) == ["enter", "enter", "leave", "leave"]


def test_a_clean_up_that_hangs_is_given_up_and_the_score_stands(log, monkeypatch, caplog):
    monkeypatch.setattr(episode, "RELEASE_LIMIT_S", 0.1)
    [group] = asyncio.run(play(hang=True))
    assert [trajectory.reward for trajectory in group.trajectories] == [3.0, 3.0]
    assert log == ["enter"] * 2
    assert "had opened failed" in caplog.text
    assert "TimeoutError" in caplog.text
