"""The exact calculator."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl_tasks.arithmetic import MAX_EXPRESSION_CHARS, ExpressionError
from hyperrl_tasks.gsm8k.calculator import calculate


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2", "3"),
        ("(3 + 4) * 2.5", "17.5"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "1/3 (about 0.333333)"),
        ("-7 / 2", "-3.5"),
        ("-1/3", "-1/3 (about -0.333333)"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"),
        ("2 ** 10", "1024"),
        ("2 ^ 10", "1024"),
        ("2 ** -1", "0.5"),
        ("(-1) ** 99999999999", "-1"),
        ("1 ** -5", "1"),
        ("0 ** 0", "1"),
        (".5 + 1.", "1.5"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("$1,234 + 1", "1235"),
        ("  2 ", "2"),
        ("10 ** 100 + 1 - 10 ** 100", "1"),
    ],
)
def test_values_are_exact(expression, expected):
    assert calculate(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "not an arithmetic expression"),
        ("1 +", "not an arithmetic expression"),
        ("1 / 0", "division by zero"),
        ("1 // 0", "division by zero"),
        ("1 % (2 - 2)", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("2 ** 0.5", "not a whole number"),
        ("9 ** 9 ** 9 ** 9", "too large"),
        ("(" + "9" * 150 + ") ** 200", "too large"),
        ("9" * 201, "at most 200"),
        ("__import__('os').system('true')", "not allowed"),
        ("x + 1", "not allowed"),
        ("(1).real", "not allowed"),
        ("[1][0]", "not allowed"),
        ("1 if 1 else 2", "not allowed"),
        ("'a' * 3", "not a decimal number"),
        ("True", "not a decimal number"),
        ("1e9", "not a decimal number"),
        ("0x10", "not a decimal number"),
        ("1j", "not a decimal number"),
        ("~1", "not allowed"),
        ("1 << 2", "not allowed"),
        ("(" * 100 + "1" + ")" * 99, "not an arithmetic expression"),
        ("\0", "not an arithmetic expression"),
        ("\ud800", "not an arithmetic expression"),
    ],
)
def test_everything_else_is_refused(expression, message):
    with pytest.raises(ExpressionError, match=message):
        calculate(expression)


@given(st.text(alphabet="0123456789+-*/%().^ ,", max_size=MAX_EXPRESSION_CHARS))
def test_any_expression_gives_a_short_text_or_an_expression_error(expression):
    with contextlib.suppress(ExpressionError):
        assert len(calculate(expression)) < 4_000
