"""Wordle: find a word of five letters by guessing."""

from hyperrl_tasks.wordle.baseline import baseline
from hyperrl_tasks.wordle.env import Wordle

__all__ = ["Wordle", "baseline"]
