"""Algorithms turn groups of trajectories into what the learner needs; the learner knows none of them."""

from __future__ import annotations

from hyperrl.train.algorithms.preparation import Algorithm

__all__ = ["Algorithm"]
