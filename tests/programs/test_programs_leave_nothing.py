"""Cancelled and killed episodes of real programs leave no process, port, file or task behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from real_programs import RealProgram, files_in, listening, note, open_files, processes_of
from repairs import RecordingSampler, Repair, plans_for, settings_for

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.agents.rollout import EnvPool, EpisodePlan, play_episode
from hyperrl.harness.gateway import Gateway
from hyperrl.sampling import Completion, RequestKey, SamplingParams
from hyperrl.trajectory import Trajectory

pytestmark = pytest.mark.slow
AT_ONCE = 10
MANY = (100, 20)
FEW = {"codex": (10, 4), "deepseek": (6, 2)}
ENDLESS = "setsid sleep 300 & sleep 300"
"""Never ends, nor does what it detaches from itself."""


class Asked(RecordingSampler):
    """Tells of each episode when it has asked for the first time."""

    def __init__(self, renderer: Any, script: Any, size: int) -> None:
        super().__init__(renderer, script)
        self.asked = [asyncio.Event() for _ in range(size)]

    async def generate(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int, request_id: RequestKey
    ) -> Completion:
        self.asked[request_id.sample_index].set()
        return await super().generate(prompt_ids, params, seed=seed, request_id=request_id)


def written(env: Repair, name: str) -> str:
    """Return what a file of the workspace holds; nothing where it is not there yet."""
    path = None if env.workspace is None else env.workspace / name
    return path.read_text().strip() if path is not None and path.exists() else ""


class Ending:
    """Ends episodes of one program in bad ways, ten at a time.

    Every other one ends while its program starts, the rest after the first request: its command runs.

    Attributes:
        in_a_command: how many ended after their first request.
        processes: most processes of theirs that were seen.
    """

    def __init__(self, real: RealProgram, renderer: TemplateRenderer, gateway: Gateway) -> None:
        self.in_a_command = 0
        self.processes = 0
        self._real = real
        self._renderer = renderer
        self._gateway = gateway
        self._chance = random.Random(1)
        self._room = asyncio.Semaphore(AT_ONCE)

    async def cancel(self, count: int) -> None:
        """Cancel episodes."""

        async def cancel(work: asyncio.Task[Trajectory], _: Repair) -> None:
            work.cancel()

        for work in await self._end(count, cancel):
            assert work.cancelled()

    async def kill(self, count: int) -> list[Trajectory]:
        """Kill programs, as a kernel without memory would; return their episodes."""

        async def kill(_: asyncio.Task[Trajectory], env: Repair) -> None:
            while not (number := written(env, "pid")):  # noqa: ASYNC110  # a program writes it
                await asyncio.sleep(0.02)
            os.kill(int(number), signal.SIGKILL)

        return [work.result() for work in await self._end(count, kill)]

    async def _end(
        self, count: int, end: Callable[[asyncio.Task[Trajectory], Repair], Awaitable[None]]
    ) -> list[asyncio.Task[Trajectory]]:
        sampler = Asked(self._renderer, [self._real.shell(ENDLESS)] * 50, count)
        program = self._real.program(lambda: ("/bin/sh", "-c", 'echo $$ > pid; exec "$@"', "sh"))
        settings = settings_for(program, sampler, self._renderer, gateway=self._gateway)

        async def one(plan: EpisodePlan, asked: asyncio.Event, early: bool) -> asyncio.Task[Trajectory]:
            async with self._room:
                env = Repair()
                envs = EnvPool(lambda env_id, env_kwargs: env)
                work = asyncio.create_task(play_episode(plan, settings, envs=envs))
                if not early:
                    await asked.wait()
                await asyncio.sleep(self._chance.uniform(0.0, self._real.starts_s if early else 2.0))
                self.processes = max(self.processes, len(processes_of(self._real.homes)))
                self.in_a_command += asked.is_set()
                await end(work, env)
                await asyncio.wait([work])
                return work

        plans = plans_for("Repair", count)
        return await asyncio.gather(*map(one, plans, sampler.asked, itertools.cycle([True, False])))


@pytest.mark.timeout(1200)
def test_cancelled_and_killed_episodes_leave_nothing_behind(
    real: RealProgram,
    full: bool,
    renderer: TemplateRenderer,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    cancelled, killed = MANY if full else FEW[real.name]

    async def main() -> tuple[Ending, list[Trajectory], dict[str, list[object]]]:
        async with Gateway() as gateway:  # what is opened once for all, such as threads, is open then
            await Ending(real, renderer, gateway).cancel(1)
        tasks, descriptors, ports = asyncio.all_tasks(), open_files(), listening()
        async with Gateway() as gateway:
            ending = Ending(real, renderer, gateway)
            await ending.cancel(cancelled)
            trajectories = await ending.kill(killed)
            assert len(listening() - ports) == 1
            sessions = list(gateway.sessions)
        left = {
            "sessions": sessions,
            "tasks": list(asyncio.all_tasks() - tasks),
            "descriptors": list(open_files() - descriptors),
            "ports": list(listening() - ports),
            "processes": processes_of(real.homes, tmp_path),
            "files": files_in(real.homes, tmp_path),
        }
        return ending, trajectories, left

    ending, trajectories, left = asyncio.run(main())
    note(
        record_property,
        program=real.name,
        cancelled=cancelled,
        cancelled_in_a_command=ending.in_a_command,
        killed=killed,
        left={kind: len(found) for kind, found in left.items()},
    )
    assert ending.in_a_command >= cancelled // 2
    assert ending.processes > 1
    kinds = [trajectory.failure.kind for trajectory in trajectories if trajectory.failure is not None]
    assert kinds == ["program_signal"] * killed
    assert not any(left.values()), left
