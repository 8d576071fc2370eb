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

_FENCE = re.compile(
    r"^(?P<indent>[ \t]{0,8}|[^`\n]*(?=`{3,}(?:python3?|py)[ \t\r]*$))"
    r"(?P<fence>`{3,}|~{3,})[ \t]*(?P<title>[^`\n]*)$",
    re.MULTILINE,
)
_PYTHON = re.compile(r"(?:\{?[ ]?\.?i?py(?:thon)?[\d.]*(?:[\s:,}].*)?)?", re.IGNORECASE)
_MOST_BLOCKS = 16


def extract_code(response: str, *, defining: str | None = None) -> str | None:
    """Return the program of a response as written, or ``None`` if it gives none.

    It is the last block fenced as Python or without a language; a block of another language is passed
    over, and one that is never closed ends with the text. Without any fence, the whole text is the
    program if it can be parsed. Nothing inside ``<think>`` counts.

    Args:
        response: the whole text of the policy.
        defining: prefer the last block that gives this name a value, so that examples of use and output
            behind the program are not taken for it.
    """
    text = strip_reasoning(response)
    fenced = list(_blocks(text))
    if not fenced:
        return text if text.strip() and not isinstance(parse_code(text), str) else None
    blocks = [textwrap.dedent(code) for title, code in fenced if _PYTHON.fullmatch(title)]
    if defining is not None:
        trees = ((block, parse_code(block)) for block in blocks[: -_MOST_BLOCKS - 1 : -1])
        meant = (block for block, tree in trees if isinstance(tree, ast.Module) and defines(tree, defining))
        return next(meant, blocks[-1] if blocks else None)
    return blocks[-1] if blocks else None


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield what stands behind the opening fence of each block, and its content."""
    position = 0
    while (opened := _FENCE.search(text, position)) is not None:
        fence = opened["fence"]
        start = opened.end() + 1
        deepest = 3 + (len(opened["indent"]) if opened["indent"].isspace() else 0)
        closing = re.compile(rf"^[ \t]{{0,{deepest}}}{fence[0]}{{{len(fence)},}}[ \t\r]*$", re.MULTILINE)
        closed = closing.search(text, start) if start <= len(text) else None
        end, position = (len(text), len(text)) if closed is None else closed.span()
        content = text[start:end]
        bare = content.rstrip()
        if closed is None and bare.endswith(fence):  # closed behind its last line
            content = bare.removesuffix(fence)
        yield opened["title"].strip(), content


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
