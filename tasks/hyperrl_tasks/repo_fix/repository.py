"""The repositories that come with the package: one text file each, read into memory.

A file is a head of ``key: value`` lines and then sections, each under a line ``=== name``. A section
named by a path is a file of the repository. ``hidden`` holds lines of setup, then cases: a line
``>>> statements; expression`` and under it the ``repr`` of the value, or ``raises Name``. Each ``bug`` is
four lines: ``file``, ``hint``, and what is ``right`` there and what ``wrong`` text takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from hyperrl.errors import DataError

__all__ = ["Bug", "Case", "Repository", "is_test", "load_repositories", "read_repository"]

_SECTION = "=== "
_CASE = ">>> "
_TEST = re.compile(r"^def test_\w+\(", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A line of a file that is wrong.

    Attributes:
        path: the file.
        hint: what goes wrong, in words.
        right: text that stands in the file once.
        wrong: what takes its place.
    """

    path: str
    hint: str
    right: str
    wrong: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A hidden test: source whose last line is an expression, and the ``repr`` of its value."""

    source: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository without a bug, and the bugs that it can have.

    Attributes:
        name: what it is called.
        about: what it does, in a sentence.
        split: ``train`` or ``test``.
        files: contents by path.
        setup: source before every hidden case.
        cases: the hidden tests.
        bugs: what can be broken; any two of them can be together.
    """

    name: str
    about: str
    split: str
    files: Mapping[str, str]
    setup: str
    cases: Sequence[Case]
    bugs: Sequence[Bug]

    def broken(self, bugs: Iterable[Bug]) -> dict[str, str]:
        """Return the files with these bugs in them.

        Raises:
            DataError: the text of a bug does not stand in its file exactly once.
        """
        contents = dict(self.files)
        for bug in bugs:
            if contents.get(bug.path, "").count(bug.right) != 1:
                raise DataError(
                    f"{bug.right!r} must stand once in {bug.path!r} of the repository {self.name!r}"
                )
            contents[bug.path] = contents[bug.path].replace(bug.right, bug.wrong)
        return contents

    @property
    def visible_tests(self) -> int:
        """How many tests the files hold."""
        return sum(len(_TEST.findall(text)) for path, text in self.files.items() if is_test(path))


def is_test(path: str) -> bool:
    """Whether a file belongs to the tests: it is restored before a repository is judged."""
    return path.startswith("tests/")


@lru_cache(maxsize=1)
def load_repositories() -> dict[str, Repository]:
    """Return the repositories of the package by name."""
    folder = files(__package__).joinpath("data")
    texts = {entry.name.removesuffix(".txt"): entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return {name: read_repository(name, texts[name]) for name in sorted(texts)}


def read_repository(name: str, text: str) -> Repository:
    """Read a repository.

    Raises:
        DataError: the text is not in the format that this module describes.
    """
    head, *sections = re.split(f"^{_SECTION}", text, flags=re.MULTILINE)
    contents: dict[str, str] = {}
    setup, cases, bugs = "", tuple[Case, ...](), []
    for section in sections:
        title, _, body = section.partition("\n")
        if title == "hidden":
            setup, cases = _read_hidden(body)
        elif title == "bug":
            bugs.append(_read_bug(body, name))
        else:
            contents[title] = body.strip("\n") + "\n"
    fields = _read_fields(head, ("about", "split"), name)
    return Repository(
        name=name,
        about=fields["about"],
        split=fields["split"],
        files=contents,
        setup=setup,
        cases=cases,
        bugs=tuple(bugs),
    )


def _read_hidden(body: str) -> tuple[str, tuple[Case, ...]]:
    setup, *blocks = re.split(f"^{_CASE}", body, flags=re.MULTILINE)
    return setup, tuple(_read_cases(blocks))


def _read_cases(blocks: Iterable[str]) -> Iterator[Case]:
    for block in blocks:
        source, _, expected = block.strip().partition("\n")
        yield Case(source=source, expected=expected.strip())


def _read_bug(body: str, name: str) -> Bug:
    fields = _read_fields(body, ("file", "hint", "right", "wrong"), name)
    return Bug(path=fields["file"], hint=fields["hint"], right=fields["right"], wrong=fields["wrong"])


def _read_fields(text: str, wanted: Sequence[str], name: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines() if line.strip())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    if set(fields) != set(wanted):
        raise DataError(f"the repository {name!r} needs the fields {list(wanted)} here, found {list(fields)}")
    return fields
