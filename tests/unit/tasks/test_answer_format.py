"""The dense term: the share of the answer format that is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl_tasks.gsm8k.answer_format import FULL_LENGTH_CHARS, format_share


def sevenths(count: float) -> float:
    return pytest.approx(count / 7)


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("", 0),
        (" \n", 0),
        ("I do not know.", 1),
        ("3 apples", 2),
        ("It is 3", 3),
        ("It is 3.", 3),
        ("# 3", 3.25),
        ("### 3", 3.75),
        ("#### three", 4),
        ("#### 3 #### 3", 6),
        ("#### 3\nGood luck", 5),
        ("#### 3 apples", 6),
        ("work\n#### 3", 7),
        ("work\n#### $1,234.50", 7),
    ],
)
def test_share(answer, share):
    assert format_share(answer) == sevenths(share)


def test_an_answer_cut_off_or_with_an_open_call_loses_the_part_for_length():
    assert format_share("#### 3", complete=False) == sevenths(6)
    assert format_share("<tool_call>\n#### 3") == sevenths(6)


def test_long_answers_lose_share_steadily():
    shares = [format_share("x" * length + "\n#### 3") for length in (100, 500, 1_000, 5_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert len(set(shares)) == 4
    assert format_share("x" * (2 * FULL_LENGTH_CHARS)) == sevenths(0.5)


@given(st.text(max_size=2_000), st.booleans())
def test_share_is_in_range_for_any_text(text, complete):
    assert 0.0 <= format_share(text, complete=complete) <= 1.0
