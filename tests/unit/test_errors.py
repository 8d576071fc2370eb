import inspect
import pickle
import re
from pathlib import Path

import pytest

from hyperrl import errors

NAMES = sorted(set(errors.__all__) - {"nearest"})
PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_every_exception_descends_from_one_base():
    defined = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
    assert sorted(c.__name__ for c in defined) == NAMES
    assert all(issubclass(c, errors.HyperrlError) for c in defined)


def test_the_drawn_tree_is_the_real_one():
    drawn: list[tuple[str, str]] = []
    stack: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ([│ ]*(?:├── |└── )?)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            stack[depth:] = [found[2]]
            drawn.append((found[2], stack[depth - 1] if depth else "Exception"))
    real = [(name, getattr(errors, name).__mro__[1].__name__) for name in NAMES]
    assert sorted(drawn) == real


def test_the_page_explains_every_exception_once():
    explained = re.findall(r"^#+ `(\w+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(explained) == NAMES
    sections = re.split(r"^#+ `\w+`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for name, section in zip(explained, sections, strict=True):
        assert "**When:**" in section, name
        assert "**What to do:**" in section, name


def test_a_missing_extra_names_the_command():
    error = errors.MissingExtraError("torch", "train")
    assert str(error) == "torch is needed for this and is not installed. Run: pip install 'hyperrl[train]'"
    assert (error.package, error.extra) == ("torch", "train")
    assert isinstance(error, ImportError)


@pytest.mark.parametrize("name", NAMES)
def test_exceptions_survive_pickling(name):
    arguments = ("torch", "train") if name == "MissingExtraError" else ("what is wrong: 3",)
    error = getattr(errors, name)(*arguments)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert back.args == error.args
    assert str(back) == str(error)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("temprature", ["temperature", "top_p"], " Did you mean 'temperature'?"),
        ("xyz", ["temperature", "top_p"], ""),
        ("a", [], ""),
        ("lr", (word for word in ["lr"]), " Did you mean 'lr'?"),
    ],
)
def test_the_nearest_name_is_offered_if_there_is_one(name, known, expected):
    assert errors.nearest(name, known) == expected
