"""The garbage collector is patient while episodes are played, and as before afterwards."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from playground import CountingPool, SpySampler, plans, settings

from hyperrl.agents.collector import YOUNG_OBJECTS, YOUNG_PER_EPISODE, patient_collector
from hyperrl.agents.rollout import play_groups
from hyperrl.errors import RolloutError


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_patient_until_the_last_has_left() -> None:
    with patient_collector():
        with patient_collector():
            assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10)
        assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_it_is_as_patient_as_the_most_patient_asks() -> None:
    with patient_collector(10):
        assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10)
        with patient_collector(8000):
            assert gc.get_threshold() == (YOUNG_PER_EPISODE * 8000, 10, 10)
        with patient_collector(4000):
            assert gc.get_threshold() == (YOUNG_PER_EPISODE * 8000, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_it_is_restored_after_an_exception() -> None:
    with pytest.raises(KeyError), patient_collector():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("young", [0, YOUNG_OBJECTS * 2])
def test_a_collector_that_is_off_or_more_patient_is_left_alone(young: int) -> None:
    gc.set_threshold(young, 5, 5)
    with patient_collector():
        assert gc.get_threshold() == (young, 5, 5)
    assert gc.get_threshold() == (young, 5, 5)


def test_thresholds_that_somebody_sets_meanwhile_stay() -> None:
    with patient_collector():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_a_rollout_is_played_patiently() -> None:
    seen = []

    def script(prompt: str, key: object) -> str:
        seen.append(gc.get_threshold()[0])
        return "stop"

    with CountingPool() as envs:
        asyncio.run(play_groups(plans("Echo", 2, 2), settings(SpySampler(script)), envs=envs))
    assert seen == [YOUNG_OBJECTS] * 4
    assert gc.get_threshold() == (700, 10, 10)


def test_a_rollout_that_is_cancelled_or_fails_restores_it() -> None:
    asked = asyncio.Event()

    def script(prompt: str, key: object) -> str:
        asked.set()
        return "go"

    sampler = SpySampler(script)

    async def cancelled(envs: CountingPool) -> None:
        slow = plans("Slow", 2, 2, seconds=60.0)
        rollout = asyncio.create_task(play_groups(slow, settings(sampler), envs=envs))
        await asked.wait()
        assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10)
        rollout.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rollout

    with CountingPool() as envs:
        asyncio.run(cancelled(envs))
        assert gc.get_threshold() == (700, 10, 10)
        with pytest.raises(RolloutError, match="all 4 episodes failed"):
            asyncio.run(play_groups(plans("Broken", 2, 2, at="reset"), settings(sampler), envs=envs))
    assert gc.get_threshold() == (700, 10, 10)


def test_cycles_are_still_freed_while_episodes_are_played() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    with patient_collector(1):
        first = weakref.ref(Node())
        kept: list[list[int]] = [[] for _ in range(YOUNG_OBJECTS + 1)]
        assert first() is None
    assert len(kept) > YOUNG_OBJECTS
