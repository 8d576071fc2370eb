"""Graders: what makes an answer right, decided exactly and in bounded time."""

from hyperrl.envs.grading.answers import AnswerPolicy, Verdict, grade_answer
from hyperrl.envs.grading.extraction import AnswerStyle, extract_answer, strip_reasoning
from hyperrl.envs.grading.math import agrade_math, grade_math
from hyperrl.envs.grading.qa import QaVerdict, grade_qa
from hyperrl.envs.grading.reading import is_number

__all__ = [
    "AnswerPolicy",
    "AnswerStyle",
    "QaVerdict",
    "Verdict",
    "agrade_math",
    "extract_answer",
    "grade_answer",
    "grade_math",
    "grade_qa",
    "is_number",
    "strip_reasoning",
]
