"""What a few samples of each task say about all of them: pass@k, means, and their 95 % intervals.

Shapes: T tasks, K samples of each. Samples of one task are not independent of each other, so the
task, not the episode, is the unit that an interval counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hyperrl.errors import ConfigError

__all__ = ["Estimate", "compute_mean", "compute_rate", "estimate_pass_at_k", "wilson_interval"]

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over tasks and how far it may be off.

    Attributes:
        mean: mean of the tasks' values; NaN if there is no task.
        low, high: 95 % interval; NaN where the tasks are too few to tell.
        tasks: tasks that it stands on.
    """

    mean: float
    low: float
    high: float
    tasks: int


def estimate_pass_at_k(samples: int, successes: int, k: int) -> float:
    """Return the unbiased estimate that at least one of ``k`` samples of a task succeeds.

    ``1 - C(n - c, k) / C(n, k)`` for n samples of which c succeeded (Chen et al. 2021, "Evaluating Large
    Language Models Trained on Code", equation 1): the share of all subsets of k samples that hold a success.

    Raises:
        ConfigError: k is not between 1 and ``samples``, or ``successes`` not between 0 and ``samples``.
    """
    if not 1 <= k <= samples:
        raise ConfigError(f"pass@{k} needs at least {max(k, 1)} samples of a task and k >= 1, got {samples}")
    if not 0 <= successes <= samples:
        raise ConfigError(f"successes must be between 0 and {samples}, got {successes}")
    return 1 - math.comb(samples - successes, k) / math.comb(samples, k)


def wilson_interval(rate: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of ``count`` independent trials (Wilson 1927); NaN for none."""
    if not count:
        return math.nan, math.nan
    z = _Z95
    centre = (rate + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, min(rate, centre - half)), min(1.0, max(rate, centre + half))


def compute_mean(values: Sequence[float]) -> Estimate:
    """Return the mean of one value a task, with the interval of the central limit theorem.

    ``m +- 1.96 s / sqrt(T)`` with the standard deviation s over tasks (T - 1 in its denominator). With the
    means of K samples as values this is the standard error clustered by task of Miller 2024, "Adding Error
    Bars to Evals", section 2.2, times ``sqrt(T / (T - 1))``. Fewer than two tasks give no interval.
    """
    count = len(values)
    if not count:
        return Estimate(mean=math.nan, low=math.nan, high=math.nan, tasks=0)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean=mean, low=math.nan, high=math.nan, tasks=count)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = _Z95 * math.sqrt(variance / count)
    return Estimate(mean=mean, low=mean - half, high=mean + half, tasks=count)


def compute_rate(rates: Sequence[float]) -> Estimate:
    """Return the mean of one share a task, each between 0 and 1.

    Where every share is 0 or 1 (one sample a task; or all samples of each task agree) the interval is
    Wilson's over tasks, which keeps its width at rates of 0 and 1; else that of :func:`compute_mean`,
    cut to [0, 1].
    """
    clustered = compute_mean(rates)
    if all(rate in (0, 1) for rate in rates):
        low, high = wilson_interval(clustered.mean, clustered.tasks)
    else:
        low, high = max(0.0, clustered.low), min(1.0, clustered.high)
        if math.isnan(clustered.low):
            low = high = math.nan
    return Estimate(mean=clustered.mean, low=low, high=high, tasks=clustered.tasks)
