"""Finds the program in a response, and what it defines; nothing is run."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

from hyperrl.envs.grading.extraction import strip_reasoning

__all__ = ["MAX_CODE_CHARS", "defines", "extract_code", "parse_code"]

MAX_CODE_CHARS = 50_000
"""Longer programs are not read."""

_FENCE = re.compile(r"^ {0,8}(`{3,})[ \t]*([^`\n]*)$", re.MULTILINE)
_PYTHON = frozenset({"", "python", "python3", "py"})


def extract_code(response: str) -> str | None:
    """Return the program of a response as written, or ``None`` if it gives none.

    It is the last block fenced as Python or without a language; a block of another language is passed
    over, and one that is never closed ends with the text. Without any fence, the whole text is the
    program if it can be parsed. Nothing inside ``<think>`` counts.
    """
    text = strip_reasoning(response)
    if "```" in text:
        blocks = [code for language, code in _blocks(text) if language in _PYTHON]
        return textwrap.dedent(blocks[-1]) if blocks else None
    return text if text.strip() and not isinstance(parse_code(text), str) else None


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the content of each fenced block."""
    position = 0
    while (opened := _FENCE.search(text, position)) is not None:
        fence, title = opened.groups()
        start = opened.end() + 1
        closing = re.compile(rf"^ {{0,8}}`{{{len(fence)},}}[ \t]*$", re.MULTILINE)
        closed = closing.search(text, start) if start <= len(text) else None
        end, position = (len(text), len(text)) if closed is None else closed.span()
        words = title.split(maxsplit=1)
        yield (words[0].lower() if words else ""), text[start:end]


def parse_code(source: str) -> ast.Module | str:
    """Return the syntax tree of a program, or why there is none; never raises."""
    if len(source) > MAX_CODE_CHARS:
        return f"the code has {len(source)} characters; at most {MAX_CODE_CHARS} are read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        return f"the code is not Python: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the code is not Python: {error}"


def defines(tree: ast.Module, name: str) -> bool:
    """Whether somewhere in a program ``name`` is given a value: a function, an assignment, an import."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found = node.name
        elif isinstance(node, ast.alias):
            found = node.asname or node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found = node.id
        else:
            continue
        if found in (name, "*"):
            return True
    return False
