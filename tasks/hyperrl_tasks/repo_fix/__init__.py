"""Find and mend a bug in a small Python repository, over several turns."""

from hyperrl_tasks.repo_fix.baseline import baseline
from hyperrl_tasks.repo_fix.env import RepoFix

__all__ = ["RepoFix", "baseline"]
