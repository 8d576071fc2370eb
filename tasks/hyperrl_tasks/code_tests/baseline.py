"""A scripted player of CodeTests: it knows some one-liners and takes one that fits the examples."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyperrl.sampling import Message

__all__ = ["ONE_LINERS", "baseline"]

ONE_LINERS: dict[int, tuple[str, ...]] = {
    1: (
        "len({0})", "sum({0})", "max({0})", "min({0})", "sorted({0})", "{0}[::-1]", "list(reversed({0}))",
        "set({0})", "len(set({0}))", "sorted(set({0}))", "list(dict.fromkeys({0}))", "{0}.upper()",
        "{0}.lower()", "{0}.title()", "{0}.split()", "' '.join({0}.split()[::-1])", "{0} == {0}[::-1]",
        "sum(map(int, str({0})))", "sum(map(int, str(abs({0}))))", "sum(c in 'aeiou' for c in {0})",
        "sum(c in 'aeiou' for c in {0}.lower())", "max({0}.split(), key=len)", "sum({0}) / len({0})",
        "max({0}) - min({0})", "max({0}, default=0) - min({0}, default=0)", "{0} % 2 == 0",
        "len(set({0})) <= 1",
        "bin({0}).count('1')", "bin({0})[2:]", "[x for y in {0} for x in y]", "sum(map(ord, {0}))",
        "[list(x) for x in zip(*{0})]", "{0} > 1 and all({0} % d for d in range(2, {0}))",
        "sorted({0}, key=lambda x: (-{0}.count(x), x))", "__import__('math').prod({0})",
        "[sum({0}[:i + 1]) for i in range(len({0}))]", "__import__('math').factorial({0})",
        "''.join(w[0].upper() for w in {0}.split())", "sorted({0})[-2]",
        "int(''.join(sorted(str({0}))[::-1]))",
    ),
    2: (
        "{0} + {1}", "{0} * {1}", "{0} - {1}", "{0} // {1}", "{0} ** {1}", "{0}.count({1})", "{0}.index({1})",
        "{0}.replace({1}, '')", "sorted({0} + {1})", "sorted(set({0}) & set({1}))",
        "sorted(set({0}) ^ set({1}))", "sum(x % {1} == 0 for x in {0})", "''.join(c * {1} for c in {0})",
        "{0}[-{1}:] + {0}[:-{1}]", "[{0}[i:i + {1}] for i in range(0, len({0}), {1})]", "{1} in {0}",
        "__import__('math').gcd({0}, {1})", "__import__('bisect').bisect_left({0}, {1})",
        "[a + b for a, b in zip({0}, {1})]", "{0}.find({1})", "{0}[{1}:]",
        "sorted({0}) == sorted({1})",
    ),
    3: (
        "max({1}, min({0}, {2}))", "{0}.rjust({1}, {2})", "{0} + {1} + {2}", "list(range({0}, {1} + 1, {2}))",
    ),
}  # fmt: skip
"""Expressions by the number of their arguments."""

_BLOCK = re.compile(r"```python\n(.*?)\n```", re.DOTALL)


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return a one-liner that fits the examples of a problem, or any one where none does.

    It reads the messages only, as a policy does. The expressions that it tries are its own, never text
    of the problem.

    Args:
        messages: the conversation of an episode.
        rng: what it draws from.
    """
    shown = _BLOCK.findall(str(messages[-1]["content"]))
    tree = ast.parse(shown[-1]) if shown else ast.Module(body=[], type_ignores=[])
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if function is None:
        return "I do not know."
    names = [argument.arg for argument in function.args.args]
    known = [template.format(*names) for template in ONE_LINERS.get(len(names), ("None",))]
    examples = _examples(function)
    fitting = [text for text in known if all(_gives(text, names, *one) for one in examples)] or known
    body = fitting[int(rng.integers(len(fitting)))]
    return f"```python\ndef {function.name}({', '.join(names)}):\n    return {body}\n```"


def _examples(function: ast.FunctionDef) -> list[tuple[list[Any], Any]]:
    """Arguments and values of the lines ``>>> f(...)`` of a docstring."""
    found: list[tuple[list[Any], Any]] = []
    for call, value in re.findall(r"^>>> (.+)\n(.+)$", ast.get_docstring(function) or "", re.MULTILINE):
        try:
            node = ast.parse(call, mode="eval").body
            if isinstance(node, ast.Call):
                found.append(([ast.literal_eval(one) for one in node.args], ast.literal_eval(value)))
        except (SyntaxError, ValueError):
            continue
    return found


def _gives(expression: str, names: Sequence[str], args: Sequence[Any], value: Any) -> bool:
    scope: Mapping[str, Any] = dict(zip(names, args, strict=False))
    try:
        return bool(eval(expression, dict(scope)) == value)
    except Exception:  # noqa: BLE001  # the wrong expression for these arguments
        return False
