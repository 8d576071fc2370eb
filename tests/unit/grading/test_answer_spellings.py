r"""Answers as models spell them: nested boxes, inequalities, roundings, choices, units of several words."""

import time

import pytest

from hyperrl.envs.grading import AnswerPolicy, extract_answer, grade_answer


def boxed(answer: str) -> str:
    return f"So the answer is \\boxed{{{answer}}}."


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        # thousands marks inside of arithmetic
        ("\\frac{1,000}{3}", "1000/3"),
        ("\\frac{1{,}000}{2}", "500"),
        ("1,000/2", "500"),
        ("1,000 + 234 = 1,234", "1234"),
        # digits, signs and marks of other scripts
        ("④", "4"),
        ("⑫", "12"),
        ("101₂", "101_2"),
        ("∛27", "3"),
        ("θ", "\\theta"),
        ("∓3", "\\pm 3"),
        ("3∶4", "3:4"),
        ("\u202a18\u202c", "18"),
        ("1\u00ad8", "18"),
        ("٪٢٥", "25"),
        ("%25", "25%"),
        ("5 percentage points", "5%"),
        # units
        ("12 kg·m/s²", "12"),
        ("12\\ \\text{N}\\cdot\\text{m}", "12 N·m"),
        ("12\\,\\mathrm{m}\\,\\mathrm{s}^{-1}", "12"),
        ("12 m^2/s^2", "12"),
        ('12"', "12 inches"),
        ("12'", "12 ft"),
        ("12 [cm]", "12"),
        ("4 (approx.)", "4"),
        ("90deg", "90"),
        ("4\\text{ cm and }5\\text{ cm}", "4, 5"),
        ("x \\equiv 4 \\pmod{7}", "4"),
        ("4 \\pmod 7", "4 (mod 7)"),
        ("50 cents", "\\$0.50"),
        ("\\$5", "500 cents"),
        ("\\SI{12}{cm}", "12 cm"),
        ("\\qty{12}{\\meter\\per\\second}", "12 m/s"),
        ("12\\,\\unit{cm}", "12"),
        ("\\ang{90}", "90^\\circ"),
        ("\\num{1.2e3}", "1200"),
        ("12 pièces", "12"),
        ("12 मीटर", "12"),
        # labels and names
        ("\\therefore 12", "12"),
        ("⇒ x = 12", "12"),
        ("x := 12", "12"),
        ("x == 12", "12"),
        ("x &= 12", "12"),
        ("P(X=3) = \\frac12", "0.5"),
        ("\\mathbb{E}[X] = 3", "3"),
        ("f^{-1}(2) = 12", "12"),
        ("\\cos A = \\frac12", "0.5"),
        ("\\overline{AB} = 12", "12"),
        ("S_{\\triangle ABC} = 12", "12"),
        ("<b>12</b> cm", "12"),
        ("<answer>12</answer>", "12"),
        ("\\scriptstyle 12", "12"),
        ("Total: 18", "18"),
        ("Total cost: \\$18", "18"),
        ("\\sim 18", "18"),
        # inequalities
        ("4 < x", "x > 4"),
        ("x >= 4", "x \\ge 4"),
        ("x <= 0.5", "x ≤ 1/2"),
        ("x \\gt 4", "(4, \\infty)"),
        ("x \\le 4", "(-\\infty, 4]"),
        ("4 \\ge x > 2", "2 < x \\le 4"),
        ("2 < x \\le 4", "(2, 4]"),
        ("x<2 or x>5", "x < 2 \\text{ or } x > 5"),
        ("x<2 or x>5", "5 < x \\text{ or } x < 2"),
        ("x < 2 \\text{ or } x \\ge 5", "(-\\infty, 2) \\cup [5, \\infty)"),
        ("x \\not= 4", "x ≠ 4"),
        # brackets
        ("[0,1[", "[0,1)"),
        ("]-\\infty;1[ ∪ ]3;\\infty[", "(-\\infty,1)\\cup(3,\\infty)"),
        ("{1, 2}", "{2, 1}"),
        ("{(1,2)}", "(1,2)"),
        ("{1,234}", "1234"),
        ("\\{\\}", "\\emptyset"),
        # roundings
        ("2\\pi \\approx 6.28", "2\\pi"),
        ("2\\pi \\approx 6.28", "6.28"),
        ("x = \\frac{1}{3} \\approx 0.33", "1/3"),
        ("0.333", "\\frac13 \\approx 0.333"),
        # choices
        ("(A) 5", "A"),
        ("\\textbf{(E)}\\ 10", "E"),
        ("C. Paris", "C"),
        ("B: both of them", "B"),
        # ranges, and differences
        ("5–10", "5-10"),
        ("5 - 10 cm", "5-10 cm"),
        ("10-5", "5"),
        ("$=$", "="),
        ("€5\\%", "€5%"),
        # the imaginary unit
        ("i^2+1", "0"),
        ("(1+i)(1-i)", "2"),
        ("\\frac{1}{i}", "-i"),
    ],
)
def test_equal(answer, gold):
    assert grade_answer(boxed(answer), gold).equal


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1/2,100/3", "1/6300"),
        ("1+2,345,67", "234568"),
        ("101₂", "1012"),
        ("0,567", "567"),
        ("000,567", "567"),
        ("P(X=3) = \\frac12", "P(X=2) = \\frac12"),
        ("|x| = 12", "12"),
        # marks alone
        (":", "="),
        ("\\therefore", "="),
        ("<", "="),
        # ranges, scores, codes
        ("5-10", "6-11"),
        ("2020–2021", "1999-2000"),
        ("555-1234", "556-1235"),
        ("5-10 cm", "6-11 cm"),
        ("**1-2-3**", "2-3-3"),
        ("5 \\approx 7", "7"),
        ("5 \\approx 7", "5"),
        ("2\\pi \\approx 7.28", "2\\pi"),
        ("11 \\pmod 7", "4"),
        ("17 mod 5", "17"),
        ("\\$0.50", "5 cents"),
        ("not: 18", "18"),
        ("12\\%", "12 cm"),
        ("\\$12", "12%"),
        ("x > 4", "x \\ge 4"),
        ("x > 4", "x < 4"),
        ("x > 4", "[4, \\infty)"),
        ("2 < x < 4", "2 < y < 4"),
        ("2 < x > 1", "x > 2"),
        ("1 < 2", "2"),
        ("x<2 and x>5", "x<2 or x>5"),
        ("x<2 and x>5", "(-\\infty, 2) \\cup (5, \\infty)"),
        ("x<2, x>5", "(-\\infty, 2) \\cup (5, \\infty)"),
        ("x<2 or y>5", "(-\\infty, 2) \\cup (5, \\infty)"),
        ("x<1 or x<2", "x<1"),
        ("[0,1[", "[0,1]"),
        ("]0,1[", "[0,1]"),
        ("{2,1}", "(1,2)"),
        ("(A) or (B)", "A"),
        ("A. B. C.", "A"),
        ("A) B", "A"),
        ("x^2", "-1"),
        ("\\frac{d}{dx} x^2", "x"),
    ],
)
def test_not_equal(answer, gold):
    assert not grade_answer(boxed(answer), gold).equal


@pytest.mark.parametrize(
    "gold",
    [
        "18",
        "#### 18",
        "9*2=18 apples.\n#### 18",
        "So $\\boxed{18}$.",
        "\\fbox{18}",
        "\\boxed{17} no, \\boxed{18}",
    ],
)
def test_a_whole_solution_may_stand_for_the_right_answer(gold):
    assert grade_answer("#### 18", gold, style="gsm8k").equal
    assert grade_answer("\\boxed{18}", gold).equal
    assert not grade_answer("\\boxed{9}", gold).equal


def test_the_order_of_an_inequality_counts_whatever_that_of_lists_does():
    loose = AnswerPolicy(ordered_lists=False)
    assert not grade_answer(boxed("3 < x"), "x < 3", policy=loose).equal


@pytest.mark.parametrize(
    ("answer", "reading"),
    [
        ("3 \\ge x > 1", "the inequality '<\\\\le' of the number 1, the text 'x', the number 3"),
        ("2\\pi \\approx 6.28", "the number 2*pi^1, about 157/25"),
    ],
)
def test_explanations_name_inequalities_and_roundings(answer, reading):
    assert reading in grade_answer(boxed(answer), "1", explain=True).explanation


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("\\boxed{\\boxed{4}}", "4"),
        ("\\boxed{\\fbox{\\framebox{4}}}", "4"),
        ("\\boxed{\\boxed{3}, \\boxed{4}}", "{3}, {4}"),
        ("\\boxed{x=\\boxed{4}}", "x={4}"),
        ("\\boxed{2} \\boxed{x=\\boxed{4}} so", "x={4}"),
        ("\\boxed{ cut off \\boxed{4} so", "4"),
        ("\\boxed{\\{1, \\boxed{2}\\}}", "\\{1, {2}\\}"),
        ("\\boxed{5} \\boxed{\\boxed{}}", None),
        ("\\boxed{5} \\boxed{6 \\boxed{4}", "4"),
        ("\\boxed{5} \\boxed{\\boxed{4", None),
    ],
)
def test_the_outermost_box_around_the_last_holds_the_answer(response, answer):
    assert extract_answer(response, "boxed") == answer


def test_a_list_of_boxes_in_a_box_is_the_whole_list():
    assert grade_answer("\\boxed{\\boxed{3}, \\boxed{4}}", "3, 4").equal
    assert not grade_answer("\\boxed{\\boxed{3}, \\boxed{4}}", "4").equal


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("#### 18 ####", "18"),
        ("#### 18 ####\nmore", "18"),
        ("#### 18\n####", None),
        ("＃＃＃＃ 18", "18"),
        ("#### <<9*2=18>>18", "18"),
        ("#### 18<end_of_turn>", "18"),
        ("#### 18<｜end▁of▁sentence｜>", "18"),
        ("<reasoning>#### 17\n</reasoning> none", None),
        ("<thought>#### 17</thought>#### 18", "18"),
    ],
)
def test_hashes(response, answer):
    assert extract_answer(response, "gsm8k") == answer


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("it is 1 234 567", "1234567"),
        ("it is 1'234", "1234"),
        ("it is $1{,}234$", "1234"),
        ("it is $1\\,234.5$", "1234.5"),
        ("it is 3½.", "3.5"),
        ("it is ½", "0.5"),
        ("it is 4 1/5", "4.2"),
        ("it is $-\\frac{1}{2}$", "-0.5"),
        ("it is 1.2 x 10^3", "1200"),
        ("it is $1.2 \\times 10^{-3}$", "0.0012"),
        ("it is 1.2 × 10³", "1200"),
        ("it is 25 %", "0.25"),
        ("in 2021 345 people", "345"),
        ("2 x 10 = 20", "20"),
    ],
)
def test_the_last_number_is_whole(response, gold):
    assert grade_answer(response, gold, style="last_number").equal


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 100_000 + "4" + "}" * 100_000,
        "\\boxed{" * 100_000 + "4}",
        "\\framebox[" * 100_000,
        "#### " * 200_000,
        "#" * 1_000_000,
        "1 " * 500_000,
        "<<" * 500_000,
    ],
    ids=lambda text: f"{text[:12]}... {len(text)}",
)
@pytest.mark.parametrize("style", ["boxed", "gsm8k", "last_number"])
def test_a_million_characters_are_read_in_linear_time(text, style):
    started = time.process_time()
    extract_answer(text, style)
    assert time.process_time() - started < 5
