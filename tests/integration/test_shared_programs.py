"""Many episodes in one process of a program: started once, its death, its end, what it refuses."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from repairs import RecordingSampler, plans_for, pool, settings_for

from hyperrl.agents import ByteRenderer
from hyperrl.agents.rollout import RolloutLimits, play_episode, play_groups
from hyperrl.errors import ConfigError
from hyperrl.harness.adapters.deepseek import DeepSeekSettings
from hyperrl.harness.adapters.deepseek_shared import SharedDeepSeekProgram
from hyperrl.harness.cli_program import CliSettings
from hyperrl.harness.gateway import Gateway
from hyperrl.trajectory import Trajectory, TruncationReason

FAKE = Path(__file__).parents[1] / "fake_dsh.py"


@pytest.fixture
def binary(tmp_path: Path) -> str:
    path = tmp_path / "dsh"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    folder = tmp_path / "homes"
    folder.mkdir()
    return folder


def program(binary: str, homes: Path, *, sessions: int = 64, **limits: Any) -> SharedDeepSeekProgram:
    settings = CliSettings(homes=homes, **limits)
    return SharedDeepSeekProgram(DeepSeekSettings(binary=binary), settings, sessions=sessions)


def running(homes: Path) -> list[int]:
    """Processes that were started with one of the homes."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if str(homes).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def left_in(homes: Path) -> list[Path]:
    """Directories of sessions."""
    return list(homes.glob("*/sessions/*"))


def told(trajectory: Trajectory) -> str:
    """What the fake said of its process and directory."""
    return ByteRenderer().decode(trajectory.turns[-1].context_ids.tolist())


def play(
    shared: SharedDeepSeekProgram, script: Any, homes: Path, *, size: int = 1, **options: Any
) -> list[Trajectory]:
    async def main() -> list[Trajectory]:
        renderer, before = ByteRenderer(), asyncio.all_tasks()
        async with Gateway() as gateway:
            concurrent = options.pop("max_concurrent", 0)
            settings = settings_for(
                shared, RecordingSampler(renderer, script), renderer, gateway=gateway, **options
            )
            plans, envs = plans_for("Question", size), pool()
            if size == 1:
                played = [await play_episode(plans[0], settings, envs=envs)]
            else:
                [group] = await play_groups(plans, settings, envs=envs, max_concurrent=concurrent)
                played = list(group.trajectories)
        assert asyncio.all_tasks() == before
        return played

    try:
        return asyncio.run(main())
    finally:
        assert list(homes.iterdir()) == []
        assert running(homes) == []


def processes(trajectories: Sequence[Trajectory]) -> set[str]:
    return {told(trajectory).split(" in ")[0].split()[-1] for trajectory in trajectories}


def test_one_process_plays_all_episodes_each_in_a_directory_of_its_own(binary: str, homes: Path) -> None:
    played = play(program(binary, homes), ["call", "5"], homes, size=6)
    assert [trajectory.reward for trajectory in played] == [1.0] * 6
    assert {trajectory.program for trajectory in played} == {"deepseek_shared"}
    assert all([turn.parent for turn in trajectory.turns] == [None, 0] for trajectory in played)
    assert len(processes(played)) == 1
    assert len({told(trajectory).split(" in ")[1].split()[0] for trajectory in played}) == 6


def test_a_process_that_has_played_its_share_gives_way_to_another(binary: str, homes: Path) -> None:
    played = play(program(binary, homes, sessions=2), ["call", "5"], homes, size=5, max_concurrent=2)
    assert [trajectory.reward for trajectory in played] == [1.0] * 5
    assert len(processes(played)) == 3


def test_the_death_of_the_process_fails_its_episodes_and_the_next_gets_another(
    binary: str, homes: Path
) -> None:
    ready = []

    def script(prompt: str, key: Any) -> str:
        if key.sample_index < 3:
            ready.append(key)
            return "die" if len(ready) == 3 else "hang"
        return "5"

    played = play(program(binary, homes), script, homes, size=4, max_concurrent=3)
    kinds = [
        trajectory.failure and (trajectory.failure.kind, trajectory.failure.stage) for trajectory in played
    ]
    assert kinds == [("program_signal", "program")] * 3 + [None]
    assert played[3].reward == 1.0


def test_a_cancelled_episode_ends_its_session_alone(binary: str, homes: Path) -> None:
    async def main() -> None:
        renderer = ByteRenderer()
        hung = asyncio.Event()

        def script(prompt: str, key: Any) -> str:
            if key.sample_index == 0:
                hung.set()
                return "hang"
            return "5"

        async with Gateway() as gateway:
            sampler = RecordingSampler(renderer, script)
            settings = settings_for(program(binary, homes), sampler, renderer, gateway=gateway)
            first, second = plans_for("Question", 2)
            work = asyncio.create_task(play_episode(first, settings, envs=pool()))
            await hung.wait()
            before = set(running(homes))
            work.cancel()
            await asyncio.wait([work])
            assert work.cancelled()
            trajectory = await play_episode(second, settings, envs=pool())
            assert trajectory.reward == 1.0
            assert set(running(homes)) == before
            assert left_in(homes) == []

    asyncio.run(main())
    assert running(homes) == []
    assert list(homes.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "limits", "kind", "said"),
    [
        (["refuse"], {}, "program_error", "its turn ended with error: the model refused"),
        ([""], {}, "no_answer", "ended without an answer"),
        (["hang"], {"timeout_s": 3}, "program_timeout", "did not end within 3 s"),
    ],
)
def test_a_session_that_fails_is_a_failure_of_its_own_kind(
    script: list[str], limits: dict[str, float], kind: str, said: str, binary: str, homes: Path
) -> None:
    [trajectory] = play(program(binary, homes, **limits), script, homes)
    assert trajectory.failure is not None
    assert trajectory.failure.kind == kind
    assert said in trajectory.failure.reason


def test_limits_of_an_episode_cut_it_and_it_is_scored(binary: str, homes: Path) -> None:
    for reason, script, limits, closing_s in (
        (TruncationReason.MAX_TURNS, ["call"] * 9, RolloutLimits(max_turns=2, wall_clock_s=60), 10.0),
        (TruncationReason.WALL_CLOCK, ["hang"], RolloutLimits(wall_clock_s=4), 10.0),
    ):
        played = program(binary, homes, closing_s=closing_s)
        [trajectory] = play(played, script, homes, limits=limits)
        assert trajectory.failure is None
        assert trajectory.truncation_reason is reason
        assert trajectory.reward == 0.0


def test_a_program_that_does_not_start_is_a_failure_with_its_output(binary: str, homes: Path) -> None:
    Path(binary).write_text("#!/bin/sh\n[ $1 = --version ] && echo 0.2.1 && exit\necho broken >&2; exit 3\n")
    [trajectory] = play(program(binary, homes), ["5"], homes)
    assert trajectory.failure is not None
    assert trajectory.failure.kind == "program_exit"
    assert "exit code 3" in trajectory.failure.reason
    assert "broken" in trajectory.failure.reason


def test_an_environment_with_something_of_its_own_is_refused(binary: str, homes: Path) -> None:
    async def main() -> None:
        renderer = ByteRenderer()
        async with Gateway() as gateway:
            sampler = RecordingSampler(renderer, ["5"])
            settings = settings_for(program(binary, homes), sampler, renderer, gateway=gateway)
            await play_episode(plans_for("Repair", 1)[0], settings, envs=pool())

    with pytest.raises(ConfigError, match=r"tools and a workspace of its own.*use env.program: deepseek"):
        asyncio.run(main())


def test_such_an_environment_is_refused_before_a_run_starts(
    make_run: Callable[..., Any], binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hyperrl.wiring.preflight import check_run

    monkeypatch.setenv("HYPERRL_DSH", binary)
    kwargs = {"mode": "calculator"}
    config = make_run(env={"id": "hyperrl/GSM8K-v0", "kwargs": kwargs, "program": "deepseek_shared"})
    with pytest.raises(ConfigError, match="the environment has tools of its own"):
        check_run(config)
    assert not config.run.dir.exists()


def test_a_process_needs_room_for_a_session() -> None:
    with pytest.raises(ConfigError, match="sessions=0"):
        SharedDeepSeekProgram(sessions=0)


DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
from repairs import RecordingSampler, plans_for, pool, settings_for
from hyperrl.agents import ByteRenderer
from hyperrl.harness.adapters.deepseek import DeepSeekSettings
from hyperrl.harness.adapters.deepseek_shared import SharedDeepSeekProgram
from hyperrl.harness.cli_program import CliSettings
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.served import play_served_groups

def script(prompt, key):
    print("hangs", flush=True)
    return "hang"

shared = SharedDeepSeekProgram(DeepSeekSettings(binary=sys.argv[1]), CliSettings(homes=Path(sys.argv[2])))
renderer = ByteRenderer()
settings = settings_for(shared, RecordingSampler(renderer, script), renderer)
with RolloutThread() as thread:
    thread.run(play_served_groups(plans_for("Question", 2), settings, envs=pool()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_survives_the_rollout_however_it_is_stopped(
    number: signal.Signals, binary: str, homes: Path
) -> None:
    paths = os.pathsep.join([str(FAKE.parent), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, binary, str(homes)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        assert [driver.stdout.readline() for _ in range(2)] == ["hangs\n"] * 2
        assert running(homes)
        driver.send_signal(number)
        driver.wait(60)
    deadline = time.monotonic() + 20
    while running(homes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(homes) == []
    if number is not signal.SIGKILL:
        assert list(homes.iterdir()) == []
