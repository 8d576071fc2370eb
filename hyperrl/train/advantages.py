"""Advantages: how much better an episode did than what it is compared with.

Statistics are float64 on the host. In float32 six equal rewards of 10000.1 have a standard
deviation that is not zero, and every one of them an advantage of -0.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hyperrl.errors import InvariantError

__all__ = ["EQUAL_REWARDS", "STD_EPS", "compute_group_advantages"]

STD_EPS = 1e-6
"""Added to the standard deviation before dividing by it, as verl does."""

EQUAL_REWARDS = 1e-8
"""Rewards whose range is at most this share of the largest magnitude count as equal."""


def compute_group_advantages(
    rewards: Sequence[float] | NDArray[np.float64], *, scale: Literal["std", "none"] = "std"
) -> NDArray[np.float64]:
    """Compare the episodes of one group with their mean (GRPO, Shao et al. 2024, section 4.1.2).

    ``std`` gives (r - mean) / (std + STD_EPS) with the sample standard deviation (ddof 1); ``none``
    gives r - mean (Dr. GRPO, Liu et al. 2025). Equal rewards give exactly 0.

    Args:
        rewards: f64[G], one for each episode, G at least 2.
        scale: what the differences are divided by.

    Returns:
        f64[G].

    Raises:
        InvariantError: fewer than two rewards, or one that is not finite.
    """
    values = np.asarray(rewards, np.float64)
    if len(values) < 2:
        raise InvariantError(f"a group needs at least 2 scored episodes to be compared, got {len(values)}")
    if not np.isfinite(values).all():
        raise InvariantError(f"rewards must be finite, got {values.tolist()}")
    if np.ptp(values) <= EQUAL_REWARDS * np.abs(values).max():
        return np.zeros_like(values)
    centred: NDArray[np.float64] = values - values.mean()
    if scale == "none":
        return centred
    return np.asarray(centred / (values.std(ddof=1) + STD_EPS))
