import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hyperrl.envs.grading import has_tags, is_json, matches_pattern, share_of, tag_share

GOOD = "<think>hm</think>\n<answer>4</answer>\n"


@pytest.mark.parametrize(
    ("text", "found", "alone", "share"),
    [
        (GOOD, True, True, 1.0),
        ("So: " + GOOD, True, False, 1.0),
        ("<think></think><answer></answer>", True, True, 1.0),
        ("<answer>4</answer><think>hm</think>", False, False, 5 / 6),
        ("<think>hm<answer>4</answer></think>", False, False, 5 / 6),
        ("<think>hm</think><answer>4", False, False, 4 / 6),
        ("<think>a</think><think>b</think><answer>4</answer>", False, False, 3 / 6),
        ("</think>hm<think><answer>4</answer>", False, False, 4 / 6),
        ("hm 4", False, False, 0.0),
        ("", False, False, 0.0),
        ("<THINK>hm</THINK><answer>4</answer>", False, False, 3 / 6),
    ],
)
def test_tags_stand_once_and_in_order(text, found, alone, share):
    assert has_tags(text, "think", "answer") is found
    assert has_tags(text, "think", "answer", alone=True) is alone
    assert tag_share(text, "think", "answer") == pytest.approx(share)


@given(st.text(alphabet="<>/think answer\n", max_size=80))
def test_all_of_the_format_is_what_its_share_says(text):
    assert has_tags(text, "think", "answer") == (tag_share(text, "think", "answer") == 1.0)


def test_no_tag_is_no_format():
    assert not has_tags("x")
    assert tag_share("x") == 0.0


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        (" 42 \n", r"\d+", True),
        ("42.", r"\d+", False),
        ("a\nb", r"a.b", True),
        ("a\nb", re.compile(r"a.b"), False),
    ],
)
def test_the_whole_text_matches(text, pattern, found):
    assert matches_pattern(text, pattern) is found


class Move(BaseModel):
    row: int
    column: int


@pytest.mark.parametrize(
    ("text", "of", "found"),
    [
        ("{}", None, True),
        (' [1, "a", null] \n', None, True),
        ("```json\n{}\n```", None, True),
        ("```\n{}\n```", None, True),
        ("```json\n{}\n``` done", None, False),
        ("Here: {}", None, False),
        ("{'a': 1}", None, False),
        ("[1,]", None, False),
        ("NaN", None, False),
        ('{"a": 1, "a": 2}', None, False),
        ("", None, False),
        ("[" * 100_000, None, False),
        ('{"row": 1, "column": 2}', Move, True),
        ('{"row": 1}', Move, False),
        ('{"row": "1", "column": 2}', Move, False),
        ('{"a": 1}', dict[str, int], True),
        ('{"a": "1"}', dict[str, int], False),
        ("[1, 2]", list[int], True),
    ],
)
def test_json_is_strict_and_of_a_type(text, of, found):
    assert is_json(text, of) is found


@given(st.text())
def test_no_text_makes_a_format_raise(text):
    has_tags(text, "a")
    tag_share(text, "a")
    is_json(text, Move)
    matches_pattern(text, "a+")


def test_the_share_of_parts():
    assert share_of(True, False, True, False) == 0.5
    assert share_of() == 0.0
