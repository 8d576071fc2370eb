"""Countdown: reach a target with given numbers and arithmetic."""

from hyperrl_tasks.countdown.baseline import baseline
from hyperrl_tasks.countdown.env import Countdown

__all__ = ["Countdown", "baseline"]
