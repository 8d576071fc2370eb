"""Sort digits: the smallest task that a fresh model learns on a CPU."""

from hyperrl_tasks.sort_digits.baseline import baseline
from hyperrl_tasks.sort_digits.env import SortDigits

__all__ = ["SortDigits", "baseline"]
