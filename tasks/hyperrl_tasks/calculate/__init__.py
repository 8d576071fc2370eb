"""Calculate: the value of an expression, in the head or with a calculator."""

from hyperrl_tasks.calculate.baseline import baseline
from hyperrl_tasks.calculate.env import Calculate

__all__ = ["Calculate", "baseline"]
