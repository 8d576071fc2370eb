"""Finding the answer in a response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs.grading import extract_answer, strip_reasoning


@pytest.mark.parametrize(
    ("response", "style", "expected"),
    [
        ("#### 18", "gsm8k", "18"),
        ("####18", "gsm8k", "18"),
        ("a #### 3 b #### 4", "gsm8k", "4"),
        ("####\n18\nmore", "gsm8k", "18"),
        ("#### 18 apples\nDone.", "gsm8k", "18 apples"),
        ("####", "gsm8k", None),
        ("the answer is 18", "gsm8k", None),
        ("<think>#### 18</think> unsure", "gsm8k", None),
        ("<think>#### 17</think>#### 18", "gsm8k", "18"),
        ("#### 18 <think>hm", "gsm8k", "18"),
        ("\\boxed{4}", "boxed", "4"),
        ("\\boxed {4}", "boxed", "4"),
        ("\\fbox{4}", "boxed", "4"),
        ("\\boxed{3} \\boxed{4}", "boxed", "4"),
        ("\\boxed{\\frac{1}{2}} or so", "boxed", "\\frac{1}{2}"),
        ("\\boxed{\\{1\\}}", "boxed", "\\{1\\}"),
        ("\\boxed{3} and \\boxed{4", "boxed", None),
        ("\\boxed{}", "boxed", None),
        ("\\boxed 4", "boxed", "4"),
        ("$\\boxed4$.", "boxed", "4"),
        ("\\boxed 4x", "boxed", None),
        ("\\boxed{3}, as \\boxed asks", "boxed", None),
        ("4", "boxed", None),
        ("first 3, then -4.5.", "last_number", "-4.5"),
        ("1,234 in all", "last_number", "1,234"),
        ("none", "last_number", None),
        ("it is −7", "last_number", "−7"),
        ("a loss of -$5.00", "last_number", "-5.00"),
        ("a loss of $-5", "last_number", "-5"),
        ("3-7", "last_number", "7"),
        ("5 - 3", "last_number", "3"),
        ("x=-7.", "last_number", "-7"),
        ("  18 ", "whole", "18"),
        ("", "whole", None),
    ],
)
def test_extract(response, style, expected):
    assert extract_answer(response, style) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a<think>b</think>c<think>d</think>e", "ace"),
        ("a<think>b", "a"),
        ("opened in the prompt</think>a", "a"),
        ("x</think>a<think>b</think>c", "ac"),
        ("<think>a</think>b</think>c", "c"),
        ("<think>a<think>b</think>c", "c"),
        ("<think></think>", ""),
        ("a think> b", "a think> b"),
        ("<Think>a</THINK>b", "b"),
        ("<thinking>a</thinking>b", "b"),
    ],
)
def test_strip_reasoning(text, expected):
    assert strip_reasoning(text) == expected


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "b"]), max_size=12))
def test_stripped_text_holds_no_complete_block(parts):
    stripped = strip_reasoning("".join(parts))
    assert "</think>" not in stripped
    assert "<think>" not in stripped


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("**#### 18**", "18"),
        ("#### <b>18</b>", "18"),
        ("<answer>#### 18</answer>", "18"),
        ("#### 18<|im_end|>", "18"),
        ("#### **18**", "**18**"),
        ("#### $**18**", "$**18**"),
    ],
)
def test_markup_that_opened_before_the_hashes_is_no_part_of_the_answer(response, answer):
    assert extract_answer(response, "gsm8k") == answer


def test_a_frame_may_say_how_wide_it_is():
    assert extract_answer(r"\framebox[2cm][c]{4}", "boxed") == "4"
