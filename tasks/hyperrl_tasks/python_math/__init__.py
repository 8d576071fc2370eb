"""Word problems that are hard in the head and easy with a Python tool."""

from hyperrl_tasks.python_math.baseline import baseline
from hyperrl_tasks.python_math.env import PythonMath

__all__ = ["PythonMath", "baseline"]
