"""The garbage collector is patient while episodes are played, and as before afterwards."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from playground import CountingPool, SpySampler, plans, settings

from hyperrl.agents.collector import MANY_YOUNG, YOUNG_OBJECTS, YOUNG_PER_EPISODE, patient_collector
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


def _collections() -> list[int]:
    return [generation["collections"] for generation in gc.get_stats()]


def _lists(count: int) -> list[list[int]]:
    return [[] for _ in range(count)]


def test_many_records_are_old_at_the_end_without_a_look_at_them() -> None:
    gc.collect()
    before = _collections()
    with patient_collector():
        kept = _lists(MANY_YOUNG * 2)
    more = _lists(100)
    assert _collections() == before
    assert gc.is_tracked(kept[0])
    young = {id(found) for generation in (0, 1) for found in gc.get_objects(generation)}
    assert id(more[0]) in young
    assert not young & {id(one) for one in kept}


def test_few_records_age_as_ever() -> None:
    gc.collect()
    with patient_collector():
        kept = _lists(MANY_YOUNG // 2)
    _lists(1000)
    assert id(kept[-1]) in {id(found) for found in gc.get_objects(1)}


def test_garbage_in_cycles_stays_bounded_over_rollouts() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    seen = []
    gc.collect()
    for _ in range(20):
        with patient_collector():
            garbage = [Node() for _ in range(MANY_YOUNG)]
            seen.append(weakref.ref(garbage[0]))
            del garbage
    alive = sum(ref() is not None for ref in seen)
    assert alive * MANY_YOUNG <= YOUNG_OBJECTS


def test_what_somebody_froze_stays_frozen() -> None:
    gc.collect()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with patient_collector():
            kept = _lists(MANY_YOUNG * 2)
        assert gc.get_freeze_count() > frozen * 0.9  # what is freed meanwhile leaves it
        assert id(kept[-1]) not in {id(found) for found in gc.get_objects(2)}
    finally:
        gc.unfreeze()
