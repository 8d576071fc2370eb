"""Reading programs out of responses, and tests out of the layouts of HumanEval and MBPP."""

import ast
import time

import pytest

from hyperrl.envs.grading import CallTest, CodeTest, extract_code, grade_code, read_asserts, read_check
from hyperrl.envs.grading.code_text import defines, parse_code
from hyperrl.errors import ConfigError


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```Python3 title=a.py\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("text\n```python\nx = 1\n```\nmore\n```python\nx = 2\n```\nend", "x = 2\n"),
        ("```python\nx = 1\n```\nIt prints:\n```text\n1\n```", "x = 1\n"),
        ("```python\nx = 1", "x = 1"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("1. First\n   ```python\n   def f():\n       pass\n   ```", "def f():\n    pass\n"),
        ("```json\n{}\n```", None),
        ("x = 1\n", "x = 1\n"),
        ("So x is 1.", None),
        ("", None),
        ("  \n", None),
        ("<think>```python\nx = 1\n```</think>```python\nx = 2\n```", "x = 2\n"),
        ("```python", ""),
        ("```python\r\nx = 1\r\n```", "x = 1\r\n"),
        ("use ``` here", None),
        ("```python\r\nx = 1\r\n```\r\nmore\r\n```text\r\n1\r\n```\r\n", "x = 1\r\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("```python3.11\nx = 1\n```", "x = 1\n"),
        ("```{.python}\nx = 1\n```", "x = 1\n"),
        ("```python:main.py\nx = 1\n```", "x = 1\n"),
        ("```pycon\n>>> 1\n```", None),
        ("Like this:```python\nx = 1\n```", "x = 1\n"),
        ("\t```python\n\tx = 1\n\t```", "x = 1\n"),
        ("```python\nx = 1```", "x = 1"),
        ('```python\ndef f():\n    """\n    ```\n    """\n```', 'def f():\n    """\n    ```\n    """\n'),
        ("x = '~~~ ```'", "x = '~~~ ```'"),
    ],
)
def test_the_last_python_block_is_read(response, code):
    assert extract_code(response) == code


PROGRAM = "```python\ndef f(n):\n    return n\n```\n"


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"{PROGRAM}It prints:\n```\n3\n```", "def f(n):\n    return n\n"),
        (f"{PROGRAM}Use it so:\n```python\nprint(f(3))\n```", "def f(n):\n    return n\n"),
        (f"{PROGRAM}```python\ndef f(n): return 2\n```", "def f(n): return 2\n"),
        (f"{PROGRAM}```python\ndef f(n: return 2\n```", "def f(n):\n    return n\n"),
        ("```python\nx = 1\n```\n```\ny = 2\n```", "y = 2\n"),
        ("```json\n{}\n```", None),
    ],
)
def test_the_last_block_that_defines_the_function_is_preferred(response, code):
    assert extract_code(response, defining="f") == code


@pytest.mark.parametrize(
    "part", ["```\n", "```python\nx\n```\n", "~~~", "a```python\n", "```python ", "\t" * 9 + "```\n"]
)
def test_a_million_characters_are_searched_for_programs_soon(part):
    before = time.process_time()
    extract_code(part * (1_000_000 // len(part)), defining="f")
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "source",
    ["(" * 5000, "-" * 49_000 + "1", "x" + ".a" * 24_000, "1" + "+1" * 24_000, "[" * 100 + "]" * 100,
     "f" + "()" * 24_000, "not " * 12_000 + "x", "x\x00", "\ud800", "if 1:\n" * 200, "9" * 49_999,
     "lambda:" * 7_000 + "1", "x=" * 20_000 + "1", "\\\n" * 20_000, "'''" * 9, "f'{" * 3_000, "é" * 40_000],
)  # fmt: skip
def test_no_text_breaks_the_parser_or_takes_long(source):
    before = time.process_time()
    tree = parse_code(source)
    assert isinstance(tree, (ast.Module, str))
    if isinstance(tree, ast.Module):
        assert not defines(tree, "answer")
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(): pass", True),
        ("async def f(): pass", True),
        ("class f: pass", True),
        ("f = lambda: 1", True),
        ("from math import floor as f", True),
        ("from solutions import *", True),
        ("if True:\n    def f(): pass", True),
        ("def g(): pass", False),
        ("f()", False),
        ("x = {'f': 1}", False),
    ],
)
def test_what_a_program_defines(source, found):
    assert defines(ast.parse(source), "f") is found


def test_asserts_of_mbpp_become_calls_where_they_can():
    lines = [
        "assert add(1, 2) == 3",
        "assert add(left='a', right=('b',)) == {'c': [1.5, None]}",
        "assert add(1, 2) != 4",
        "assert abs(add(0.1, 0.2) - 0.3) < 1e-9",
        "assert add(*[1, 2]) == 3",
        "assert add(1, **{'right': 2}) == 3",
        "assert add(set([1]), 2) == 3",
        "assert other(1) == 1",
    ]
    tests = read_asserts(lines, "add", setup="import math")
    assert tests[0] == CallTest(args=[1, 2], expected=3)
    assert tests[1] == CallTest(kwargs={"left": "a", "right": ("b",)}, expected={"c": [1.5, None]})
    assert tests[2:] == tuple(CodeTest(source=line, setup="import math") for line in lines[2:])


CHECK = """
METADATA = {'author': 'us'}

def helper():
    return 4

def check(candidate):
    '''What is asked.'''
    assert True, "this costs nothing"
    assert candidate(1, 2) == 3, "small"
    assert candidate(2, 2) == helper()
    assert abs(candidate(0.1, 0.2) - 0.3) < 1e-9
"""


def test_a_check_of_assertions_becomes_a_test_each():
    tests = read_check(CHECK, "add")
    assert tests[0] == CallTest(args=[1, 2], expected=3)
    assert [test.source for test in tests[1:]] == [
        "assert candidate(2, 2) == helper()",
        "assert abs(candidate(0.1, 0.2) - 0.3) < 1e-09",
    ]
    right, wrong = ("def add(a, b): return a + b", "def add(a, b): return 3")
    assert grade_code(right, tests, entry_point="add").passed
    verdict = grade_code(wrong, tests, entry_point="add")
    assert [test.status for test in verdict.tests] == ["passed", "failed", "failed"]


def test_any_other_check_is_one_test():
    source = "def check(candidate):\n    for n in range(9):\n        assert candidate(n, 1) == n + 1\n"
    [test] = read_check(source, "add")
    assert grade_code("def add(a, b): return a + b", [test], entry_point="add").passed
    assert grade_code("def add(a, b): return 1", [test], entry_point="add").cause == "wrong"


def test_what_a_test_defines_cannot_be_replaced_by_the_submission():
    setup = "def poly(xs, x):\n    return sum(c * x ** i for i, c in enumerate(xs))\n"
    [test] = read_asserts(["assert abs(poly([1, 2], root([1, 2]))) < 1e-6"], "root", setup=setup)
    cheat = "def poly(xs, x): return 0\ndef root(xs): return 77"
    assert not grade_code(cheat, [test], entry_point="root").passed
    assert grade_code("def root(xs): return -0.5", [test], entry_point="root").passed


def test_what_is_no_test_is_refused():
    with pytest.raises(ConfigError, match="not Python"):
        read_asserts(["assert add(1"], "add")
    with pytest.raises(ConfigError, match="check"):
        read_check("def verify(candidate): pass", "add")
