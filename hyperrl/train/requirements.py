"""What a run must show, or it fails: gradients, differences between rewards, a gain on held-out tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hyperrl.train.config import RequireConfig
from hyperrl.train.estimates import Estimate

__all__ = ["Requirements"]

_MISSING = {
    "nonzero_gradients": "no update with a gradient above 0",
    "reward_differences": "no group with unequal rewards",
}
"""What was not seen, by the option that demands it."""


class Requirements:
    """Watches a run and notes what it does not show.

    What shows within a few iterations is checked as they end, so that a run that cannot learn stops early;
    the rest is checked when it has ended.

    Args:
        config: what is demanded.
        skipped: iterations at the start in which only a critic learns; nothing is demanded of them.

    Attributes:
        unmet: what was demanded and not shown, in words; empty while all is well.
    """

    def __init__(self, config: RequireConfig, *, skipped: int = 0) -> None:
        self.config = config
        self.unmet: list[str] = []
        self._skipped = skipped
        self._seen: set[str] = set()
        self._since_seen = dict.fromkeys(_MISSING, 0)
        self._groups = self._groups_with_signal = 0.0

    def see(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a finished iteration, named as in ``metrics.METRICS``."""
        if iteration <= self._skipped:
            return
        signal = metrics.get("groups/kept", 0.0) * (1 - metrics.get("groups/zero_std_fraction", 1.0))
        self._groups += metrics.get("groups/played", 0.0)
        self._groups_with_signal += signal
        lost = sum(metrics.get(f"{model}/updates_skipped", 0.0) for model in ("actor", "critic"))
        if self.config.finite_gradients and lost:
            self.unmet.append(
                f"finite_gradients: {lost:.0f} updates of iteration {iteration} were left out, because loss"
                " or gradient was not finite"
            )
        moved = metrics.get("actor/updates_applied", 0.0) > 0 and metrics.get("actor/grad_norm", 0.0) > 0
        self._watch("nonzero_gradients", iteration, seen=moved)
        self._watch("reward_differences", iteration, seen=signal > 0)

    def _watch(self, name: str, iteration: int, *, seen: bool) -> None:
        if seen:
            self._seen.add(name)
        self._since_seen[name] = 0 if seen else self._since_seen[name] + 1
        if getattr(self.config, name) and self._since_seen[name] == self.config.patience:
            self.unmet.append(
                f"{name}: {_MISSING[name]} in the {self.config.patience} iterations up to {iteration}"
            )

    def finish(self, *, success: float, gain: Estimate) -> None:
        """Check what the whole run must show.

        Args:
            success: sampled held-out success after the last iteration.
            gain: what was gained since before the first, task by task.
        """
        config = self.config
        for name, missing in _MISSING.items():
            if getattr(config, name) and name not in self._seen:
                self.unmet.append(f"{name}: {missing} in the whole run")
        share = self._groups_with_signal / self._groups if self._groups else 0.0
        self._demand("signal_fraction", share, "of the groups had unequal rewards")
        self._demand("success", success, "held-out success after the last iteration")
        interval = f"gained on held-out tasks, 95 % interval {gain.low:.3f} to {gain.high:.3f}"
        self._demand("gain", gain.mean, interval)
        self._demand("gain_low", gain.low, f"is the lower end of {gain.mean:.3f} {interval}")

    def _demand(self, name: str, found: float, what: str) -> None:
        least = getattr(self.config, name)
        if least is not None and not found >= least:  # NaN is not enough either
            value = "not known" if math.isnan(found) else f"{found:.3f}"
            self.unmet.append(f"{name}: {value} {what}; at least {least:g} is required")
