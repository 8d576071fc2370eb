"""Graders: what makes an answer right, decided exactly and in bounded time."""

from hyperrl.envs.grading.answers import AnswerPolicy, Verdict, grade_answer
from hyperrl.envs.grading.code import CODE_LIMITS, CodeTestResult, CodeVerdict, agrade_code, grade_code
from hyperrl.envs.grading.code_tests import CallTest, CodeTest, read_asserts, read_check
from hyperrl.envs.grading.code_text import extract_code
from hyperrl.envs.grading.extraction import AnswerStyle, extract_answer, strip_reasoning
from hyperrl.envs.grading.formats import has_tags, is_json, matches_pattern, share_of, tag_share
from hyperrl.envs.grading.math import agrade_math, grade_math
from hyperrl.envs.grading.qa import QaVerdict, grade_qa
from hyperrl.envs.grading.reading import is_number

__all__ = [
    "CODE_LIMITS",
    "AnswerPolicy",
    "AnswerStyle",
    "CallTest",
    "CodeTest",
    "CodeTestResult",
    "CodeVerdict",
    "QaVerdict",
    "Verdict",
    "agrade_code",
    "agrade_math",
    "extract_answer",
    "extract_code",
    "grade_answer",
    "grade_code",
    "grade_math",
    "grade_qa",
    "has_tags",
    "is_json",
    "is_number",
    "matches_pattern",
    "read_asserts",
    "read_check",
    "share_of",
    "strip_reasoning",
    "tag_share",
]
