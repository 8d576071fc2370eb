"""Sort digits: the smallest task that a fresh model learns on a CPU."""

from hyperrl_tasks.sort_digits.env import SortDigits

__all__ = ["SortDigits"]
