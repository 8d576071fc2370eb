"""Algorithms turn groups of trajectories into what the learner needs; the learner knows none of them."""

from __future__ import annotations

from hyperrl.train.algorithms.grpo import Grpo

__all__ = ["Grpo"]
