"""CodeTests: write a function, judged by hidden unit tests."""

from hyperrl_tasks.code_tests.baseline import baseline
from hyperrl_tasks.code_tests.env import CodeTests

__all__ = ["CodeTests", "baseline"]
