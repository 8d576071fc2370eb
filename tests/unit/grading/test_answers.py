"""Exact grading of short answers."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs.grading import AnswerPolicy, grade_answer
from hyperrl.errors import ConfigError

CASES = Path(__file__).parents[2] / "data" / "answers.json"


def boxed(answer: str) -> str:
    return f"So the answer is \\boxed{{{answer}}}."


def equal(answer: str, gold: str, **policy) -> bool:
    return grade_answer(boxed(answer), gold, policy=AnswerPolicy(**policy)).equal


@pytest.mark.parametrize("family", ["gsm8k", "boxed"])
def test_answers_from_bug_reports(family):
    rows = [row for row in json.loads(CASES.read_text(encoding="utf-8")) if row["family"] == family]
    differ = [
        row["id"]
        for row in rows
        if grade_answer(row["response"], row["gold"], style=family).equal != row["expected"]
    ]
    assert rows
    assert differ == []


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        # thousands marks in every form
        ("1,234,567", "1234567"),
        ("1{,}000", "1000"),
        ("1,\\!000", "1000"),
        ("1\\,234", "1234"),
        ("1 234", "1234"),
        ("1\u202f234", "1234"),
        ("1'234", "1234"),
        ("1’234", "1234"),
        ("1_000", "1000"),
        ("12,34,567", "1234567"),
        ("1.234,5", "1234.5"),
        ("1.234.567", "1234567"),
        ("١٬٢٣٤", "1234"),
        ("1\\thinspace234", "1234"),
        ("1\\text{,}234", "1234"),
        ("1{\\,}234", "1234"),
        ("12 345,67", "12345.67"),
        # currency, percent, units, scales
        ("$5.00$", "5"),
        ("\\$1,234.00", "1234"),
        ("-\\$5", "-5"),
        ("$-5", "-5"),
        ("5€", "5"),
        ("US$5", "$5"),
        ("￥500", "500"),
        ("₩500", "500"),
        ("Rs. 500", "500"),
        ("\\text{\\$}5", "5"),
        ("\\pounds 5", "£5"),
        ("5\\,\\text{€}", "5"),
        ("$1.5M", "1500000"),
        ("25\\text{\\%}", "25"),
        ("12 cm²", "12\\text{ cm}^2"),
        ("12\\mathrm{~cm}^2", "12 \\mathrm{cm}^{2}"),
        ("12 square centimeters", "12 cm^2"),
        ("5\\,\\frac{\\text{m}}{\\text{s}}", "5 meters per second"),
        ("25 °C", "25 degrees Celsius"),
        ("25°F", "25"),
        ("12th", "12"),
        ("10 dollars", "$10"),
        ("\\$3 \\text{ million}", "3000000"),
        ("0.5\\%", "0.005"),
        ("25 percent", "25%"),
        ("２５％", "0.25"),
        ("12\\text{ cm}", "12 centimeters"),
        ("12\\text{ cm}^2", "12"),
        ("30 miles per hour", "30 mph"),
        ("5cm", "5"),
        ("90 degrees", "90^\\circ"),
        ("90°", "90"),
        ("1 1/2 cups", "1.5"),
        # spellings of numbers
        ("42.", "42"),
        ("+42", "42"),
        ("–7", "-7"),
        ("−7", "-7"),
        (".5", "1/2"),
        ("1 / 2", "0.5"),
        ("½", "0.5"),
        ("3½", "3.5"),
        ("3 1/2", "7/2"),
        ("-3\\frac{1}{2}", "-3.5"),
        ("\\frac12", "0.5"),
        ("\\tfrac{1}{2}", "0.5"),
        ("\\frac{63}{400}", "63/400"),
        ("1.2e3", "1200"),
        ("1.2 \\times 10^{3}", "1200"),
        ("1.2×10³", "1200"),
        ("1.2x10^3", "1200"),
        ("1.2*10**3", "1200"),
        ("1.2×10⁻³", "0.0012"),
        ("0.1\\overline{6}", "1/6"),
        ("33.\\overline{3}\\%", "1/3"),
        ("{1 \\over 2}", "0.5"),
        ("1 \\over 2", "0.5"),
        ("\\nicefrac{1}{2}", "0.5"),
        ("{-}7", "-7"),
        ("negative 7", "-7"),
        ("= 42", "42"),
        ("\\approx 42", "42"),
        ('"42"', "42"),
        ("42 \\\\", "42"),
        ("\\boldsymbol{42}", "42"),
        ("\\bf 42", "42"),
        ("{\\Large 42}", "42"),
        ("\\textcolor{red}{42}", "42"),
        ("\\underline{\\textit{42}}", "42"),
        ("**42**", "42"),
        ("\\mathbf{42}", "42"),
        ("\\boxed{42}", "42"),
        ("४२", "42"),
        # exact arithmetic
        ("5!", "120"),
        ("2^{10}", "1024"),
        ("-2^2", "-4"),
        ("(-2)^2", "4"),
        ("(-1)^{101}", "-1"),
        ("0^2", "0"),
        ("2(3)", "6"),
        ("\\sqrt[3]{27}", "3"),
        ("\\sqrt{12}+\\sqrt{27}", "5\\sqrt{3}"),
        ("\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"),
        ("\\frac{1}{1+\\sqrt2}", "\\sqrt{2}-1"),
        ("8^{1/2}", "2\\sqrt2"),
        ("27^{2/3}", "9"),
        ("16^{-1/4}", "0.5"),
        ("O'Brien", "o'brien"),
        ("2\\pi", "2π"),
        ("2pi", "\\pi \\cdot 2"),
        ("\\frac{1}{2004!}", "1/2004!"),
        # collections, names, words
        ("(1, 2)", "(1,2)"),
        ("(1,234)", "(1, 234)"),
        ("\\left(\\frac{1}{2},2\\right)", "(0.5, 2)"),
        ("\\left\\{1,2\\right\\}", "\\{2,1\\}"),
        ("(-\\infty, 3]", "(-∞,3]"),
        ("1, 2, 3", "1,2,3"),
        ("x = 5", "5"),
        ("area = 5 cm", "5"),
        ("1 and 2", "1, 2"),
        ("1, 2, \\text{ or } 3", "1,2,3"),
        ("x = 1 or x = 2", "1, 2"),
        ("x = 1, x = 2", "x = 1, 2"),
        ("\\{2, 1\\}", "1, 2"),
        ("±5", "-5, 5"),
        ("1 \\pm \\sqrt{2}", "\\{1-\\sqrt2, 1+\\sqrt2\\}"),
        ("salt and pepper", "Salt and pepper"),
        ("5", "x=5"),
        ("\\text{(A)}", "A"),
        ("Yes", "yes"),
        ("\\text{blue whale}", "Blue  Whale"),
        ("x²+1", "x^{2} + 1"),
        # more spellings of marks, numbers and units
        ("1\\mathord{,}234", "1234"),
        ("1 {,} 234", "1234"),
        ("1 \\, 234", "1234"),
        ("1\\hspace{0.1cm}234", "1234"),
        ("\\num{1234}", "1234"),
        ("\\textdollar{}5", "5"),
        ("\\$5 \\text{ per week}", "5"),
        ("\\$5 \\text{ per week}", "5 dollars per week"),
        ("\\$18 profit", "18"),
        ("\\$5 per week", "\\$5"),
        ("\\$5/hour", "\\$5 per hour"),
        ("⌊3.7⌋", "3"),
        ("$12$ cm", "12"),
        ("\\(12\\) cm", "12"),
        ("\\boxed{12} apples", "12"),
        ("5元", "5"),
        ("5‰", "0.005"),
        ("25\\ \\mathrm{percent}", "25"),
        ("12\\text{ m}/\\text{s}", "12 m/s"),
        ("12\\text{ m s}^{-1}", "12"),
        ("12\\,\\Omega", "12 ohms"),
        ("12 N", "12"),
        ("12 (apples)", "12"),
        ("12 times", "12"),
        ("12^{\\text{th}}", "12"),
        ("about 12", "12"),
        ("\\mathbf{12} \\text{ cm}", "12"),
        ("\\text{Answer: }12", "12"),
        ("The answer is 12.", "12"),
        ("12 \\checkmark", "12"),
        ("\\phantom{0}12", "12"),
        ("√144", "12"),
        ("⁷⁄₂", "3.5"),
        ("1.2\\mathrm{e}3", "1200"),
        ("1.2 times 10^3", "1200"),
        ("\\text{negative }7", "-7"),
        ("\\left|-7\\right|", "7"),
        ("\\lfloor 3.7 \\rfloor + \\lceil 3.2 \\rceil", "7"),
        ("0.333\\ldots", "1/3"),
        ("0.1666...", "1/6"),
        ("0.(3)", "1/3"),
        ("0.1(6)", "1/6"),
        ("0.3\u0305", "1/3"),
        ("0.\\dot{1}4285\\dot{7}", "1/7"),
        # equations
        ("x_1 = 12", "12"),
        ("f(3) = 12", "12"),
        ("\\angle ABC = 12^\\circ", "12"),
        ("(x,y) = (1,2)", "(1,2)"),
        ("12 = x", "x = 12"),
        ("10 + 2 = 12", "12"),
        ("x = 10 + 2 = 12", "12"),
        # intervals, unions, matrices
        ("x \\in \\left[0, 1\\right)", "[0,1)"),
        ("\\big[0,1\\big)", "[0,1)"),
        ("(5,\\infty)\\cup(-\\infty,3)", "(-∞, 3) ∪ (5, +\\infty)"),
        ("\\lbrace 1,2\\rbrace", "\\{2,1\\}"),
        ("x \\geqslant 3", "x≥3"),
        ("∅", "\\varnothing"),
        (
            "\\begin{pmatrix}1&\\frac12\\\\3&4\\end{pmatrix}",
            "\\begin{bmatrix} 1 & 0.5 \\\\ 3 & 4 \\end{bmatrix}",
        ),
        (
            "\\left(\\begin{array}{cc}1&2\\\\3&4\\end{array}\\right)",
            "\\begin{pmatrix}1&2\\\\ 3&4\\end{pmatrix}",
        ),
        # times of day, choices, words
        ("12:30 p.m.", "12:30 PM"),
        ("07:05", "7:05"),
        ("9 a.m.", "9 AM"),
        ("[A]", "A"),
        ("Option A", "\\textbf{(A)}"),
        ("YES!", "yes"),
    ],
)
def test_equal(answer, gold):
    assert equal(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("-7", "7"),
        ("1/3", "0.333"),
        ("123456789012345678901", "123456789012345678902"),
        ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
        ("\\frac1{2^{99}}", "\\frac1{2^{98}}"),
        ("n=2,3,4", "n=1,2,3"),
        ("n=2", "m=2"),
        ("12:00", "1:00"),
        ("1-\\frac1e", "1+\\frac1e"),
        ("\\pm 2021", "2021"),
        ("2021", "±2021"),
        ("x = 1, y = 2", "x = 2, y = 1"),
        ("salt and pepper", "salt, pepper"),
        ("25°C", "25°F"),
        ("12 cm^2", "12 cm^3"),
        ("1/0", "0"),
        ("1,2", "12"),
        ("3,5", "3.5"),
        ("2,1", "1,2"),
        ("(1,2)", "[1,2]"),
        ("\\{1,1,2\\}", "\\{1,2,2\\}"),
        ("-\\infty", "\\infty"),
        # a variable is not a unit; two units must agree; a hedge is not a unit
        ("2x", "2"),
        ("2", "2x"),
        ("12 cm", "12 m"),
        ("12 apples", "12 pears"),
        ("5 pm", "5 am"),
        ("12 or 13", "12"),
        ("12 or less", "12"),
        ("7 out of 10", "7"),
        ("0x10", "16"),
        ("\\$5 \\text{ per week}", "5 dollars per month"),
        ("\\$50", "50 cents"),
        ("12 times x", "12"),
        ("5 km", "5 km/h"),
        ("n!", "n"),
        ("(-8)^{1/3}", "-2"),
        ("$5$ or $6$", "5"),
        ("3\\text{x}", "3"),
        ("1, 2, 3, ...", "1, 2, 3"),
        ("5万", "5"),
        ("5 x", "5"),
        ("12 (or 13)", "12"),
        ("2x = 12", "12"),
        ("x + 2 = 12", "12"),
        ("10 + 3 = 12", "12"),
        ("x = 10 + 3 = 12", "12"),
        ("12 = 2x", "12"),
        ("x = y = 12", "12"),
        ("f(3) = 12", "f(4) = 12"),
        ("2.5(3)", "2.5333"),
        ("0.333...", "0.333"),
        ("2024-03-05", "2016"),
        ("3/5/2024", "6/10/2024"),
        ("7:05 am", "7:05 pm"),
        ("3:04", "4:03"),
        ("(-\\infty,3)\\cup(5,\\infty)", "(-\\infty,3]\\cup(5,\\infty)"),
        ("(-\\infty,3)\\cup(5,\\infty)", "(-\\infty,3)"),
        ("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
        ("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{vmatrix}1&2\\end{vmatrix}"),
        ("\\begin{pmatrix}-1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"),
        ("Option B", "A"),
        ("x>3", "x\\ge3"),
        ("A", "a"),
        ("", ""),
    ],
)
def test_not_equal(answer, gold):
    assert not equal(answer, gold)


@pytest.mark.parametrize(
    "answer",
    [
        "9^{9^{9^{9}}}",
        "9**9**9",
        "100000000!",
        "\\frac{1}{100000!}",
        "\\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}",
        "1e999999999",
        "(((2^{9999})^{9999})^{9999})",
        "(" * 5_000 + "1" + ")" * 5_000,
        "\\frac{1}{" * 500 + "1" + "}" * 500,
        "-" * 900 + "4",
        "9" * 1_000_000,
        "\\binom{1000000}{500000}",
        "\\sqrt{" + "7" * 200 + "}",
        "1," * 900 + "4",
    ],
)
def test_what_is_too_large_is_not_equal(answer):
    assert not equal(answer, "4")


def test_what_is_too_large_equals_its_own_spelling():
    assert not equal("9^{9^{9^{9}}}", "9^{9^{9^{8}}}")
    assert equal("9^{9^{9^{9}}}", "9^{9^{9^9}}")


@pytest.mark.parametrize(
    ("policy", "answer", "gold", "expected"),
    [
        ("either", "25%", "25", True),
        ("either", "25%", "0.25", True),
        ("value", "25%", "25", False),
        ("value", "25%", "1/4", True),
        ("number", "25%", "25", True),
        ("number", "25%", "0.25", False),
        ("value", "0.25", "25%", True),
        ("value", "25%", "25\\%", True),
    ],
)
def test_percent_policy(policy, answer, gold, expected):
    assert equal(answer, gold, percent=policy) is expected


def test_order_and_tolerance_policies():
    assert equal("2,1", "1,2", ordered_lists=False)
    assert not equal("2,2", "1,2", ordered_lists=False)
    assert equal("0.333", "1/3", tolerance=Fraction(1, 1000))
    assert equal("99", "100", tolerance=1)
    assert not equal("98", "100", tolerance=1)


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("3+4", "7", False),
        ("3\\,+\\,4 = 7", "7", False),
        ("3**2", "9", False),
        ("5!", "120", False),
        ("6(7)", "42", False),
        ("\\sqrt{144}", "12", False),
        ("1/5+1/9", "14/45", False),
        ("1 234 - 1", "1233", False),
        ("3a/a+4b/b", "7", False),
        ("3+4 \\approx 7", "7", False),
        ("7", "7", True),
        ("-3 1/2", "-3.5", True),
        ("\\frac{14}{45}", "14/45", True),
        ("1.2 \\times 10^{3}", "1200", True),
        ("90^\\circ", "90", True),
        ("12 cm^2", "12", True),
        ("**18**", "18", True),
        ("(1, -2)", "(1,-2)", True),
        ("\\sqrt{8}", "2\\sqrt2", True),
    ],
)
def test_an_answer_may_be_asked_to_leave_nothing_to_compute(answer, gold, expected):
    assert equal(answer, gold, computed=False) is expected


def test_verdict_says_what_was_found_and_why():
    found = grade_answer("#### $17", "18", style="gsm8k")
    assert (found.equal, found.extracted) == (False, "$17")
    assert found.reason == "not equal: '$17' is not '18'"
    missing = grade_answer("it is 18", "18", style="gsm8k")
    assert (missing.equal, missing.extracted) == (False, None)
    assert missing.reason.startswith("no answer")


def test_explanation_says_how_both_sides_were_read():
    verdict = grade_answer("#### 50%", "1/2", style="gsm8k", explain=True)
    assert verdict.explanation == (
        "answer '50%' is read as the number 50%; gold '1/2' is read as the number 1/2; "
        "percent: either, order of lists counts, tolerance 0"
    )
    assert grade_answer("#### 50%", "1/2", style="gsm8k").explanation == ""


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("x = 2\\sqrt{3} cm", "x = the number 2*sqrt(3) cm"),
        ("\\{1, \\pi^2/4\\}", "the set of the number 1, the number 1/4*pi^2"),
        ("(0, inf)", "the list in '()' of the number 0, the text 'infinity'"),
        ("2^{1000}", "the number (a number of 1,001 bits)"),
        ("0.0", "the number 0"),
    ],
)
def test_explanations_name_what_was_read(text, reading):
    assert reading in grade_answer(boxed(text), "1", explain=True).explanation


def test_unknown_style_names_the_nearest():
    with pytest.raises(ConfigError, match=r"gsm8k.*Did you mean 'boxed'"):
        grade_answer("1", "1", style="box")


@given(st.text(max_size=60), st.sampled_from(["gsm8k", "boxed", "last_number", "whole"]))
def test_any_text_is_graded_without_an_error(text, style):
    for response in (text, f"#### {text}", boxed(text)):
        grade_answer(response, text, style=style)


@given(st.text(alphabet="0123456789+-*/^!(){}[],.% \\$fracsqtboxed", max_size=40))
def test_near_mathematics_is_graded_without_an_error(text):
    grade_answer(text, "4", style="whole")


@given(st.integers(-(10**30), 10**30))
def test_every_spelling_of_an_integer_is_equal(number):
    for spelling in (f"{number:,}", f"{number}.00", f"{number:_}", f"\\${number}", f"{2 * number}/2"):
        assert equal(spelling, str(number)), spelling
    assert not equal(str(number), str(number + 1))


@given(st.fractions(), st.fractions())
def test_fractions_are_equal_exactly_if_their_values_are(left, right):
    answer = f"\\frac{{{left.numerator}}}{{{left.denominator}}}"
    assert equal(answer, f"{left.numerator}/{left.denominator}")
    assert equal(answer, f"{right.numerator}/{right.denominator}") is (left == right)
