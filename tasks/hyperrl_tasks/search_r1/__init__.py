"""Search-R1: multi-hop questions with a local search tool."""

from hyperrl_tasks.search_r1.baseline import baseline
from hyperrl_tasks.search_r1.env import SearchR1

__all__ = ["SearchR1", "baseline"]
