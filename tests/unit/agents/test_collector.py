"""The garbage collector is patient while episodes are played, and as before afterwards."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from playground import CountingPool, SpySampler, plans, settings

from hyperrl.agents.collector import YOUNG_OBJECTS, patient_collector
from hyperrl.agents.rollout import play_groups


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
