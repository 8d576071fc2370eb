"""GSM8K: word problems of grade-school mathematics, with or without a calculator."""

from hyperrl_tasks.gsm8k.baseline import baseline
from hyperrl_tasks.gsm8k.env import GSM8K

__all__ = ["GSM8K", "baseline"]
