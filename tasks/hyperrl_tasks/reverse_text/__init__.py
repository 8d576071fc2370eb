"""Reverse text: write the letters of a word backwards."""

from hyperrl_tasks.reverse_text.baseline import baseline
from hyperrl_tasks.reverse_text.env import ReverseText

__all__ = ["ReverseText", "baseline"]
