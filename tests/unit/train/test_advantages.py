"""Group-relative advantages."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperrl.errors import InvariantError
from hyperrl.train.advantages import compute_group_advantages

rewards = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=16)


def test_a_hand_computed_group():
    # mean 1/2, sample variance (4 * 1/4) / 3 = 1/3
    found = compute_group_advantages([1.0, 0.0, 0.0, 1.0])
    expected = 0.5 / (1 / math.sqrt(3) + 1e-6)
    assert found.tolist() == pytest.approx([expected, -expected, -expected, expected], rel=1e-12)


def test_without_scaling_only_the_mean_is_taken_away():
    assert compute_group_advantages([3.0, 1.0, 2.0], scale="none").tolist() == [1, -1, 0]


@pytest.mark.parametrize("value", [0.0, 1.0, 10000.1, -3.3, 1e-300, 1e300])
@pytest.mark.parametrize("scale", ["std", "none"])
def test_equal_rewards_have_exactly_no_advantage(value, scale):
    # six rewards of 10000.1 give -0.912 in float32 (verl)
    assert compute_group_advantages([value] * 6, scale=scale).tolist() == [0] * 6


def test_rewards_that_differ_only_by_rounding_are_equal():
    assert not compute_group_advantages([0.1 + 0.2, 0.3, 0.3]).any()
    assert compute_group_advantages([1.0, 1.0 + 1e-7]).any()


@settings(deadline=None)
@given(rewards)
def test_advantages_agree_with_plain_statistics(values):
    found = compute_group_advantages(values)
    if max(values) - min(values) <= 1e-8 * max(map(abs, values)):
        assert not found.any()
        return
    mean, std = statistics.fmean(values), statistics.stdev(values)
    expected = [(value - mean) / (std + 1e-6) for value in values]
    assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert abs(found.sum()) < 1e-6


@settings(deadline=None)
@given(rewards, st.randoms())
def test_the_order_of_episodes_does_not_matter(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    found = compute_group_advantages([values[i] for i in order])
    assert np.allclose(found, compute_group_advantages(values)[order], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_a_group_needs_two_members(values):
    with pytest.raises(InvariantError, match="at least 2"):
        compute_group_advantages(values)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rewards_must_be_finite(bad):
    with pytest.raises(InvariantError, match="finite"):
        compute_group_advantages([1.0, bad])
