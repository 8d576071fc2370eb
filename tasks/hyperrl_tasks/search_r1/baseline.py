"""A scripted player of Search-R1: it searches, follows names, and answers by the shape of a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from hyperrl.sampling import Message
from hyperrl_tasks.search_r1.relations import RELATIONS, Relation

__all__ = ["SEARCHES", "baseline"]

SEARCHES = 4
"""Searches before an answer is given up."""

_NAME = r"(?:[A-Z][\w'-]*)(?: [A-Z][\w'-]*)*"
_MENTION = re.compile(rf"(?<![.\]\n] )(?<!^)\b{_NAME}", re.MULTILINE)


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return a search or an answer.

    It reads the messages only, as a policy does. It searches for the question, looks at the first
    paragraph that comes back for a sentence that answers what is asked last, and without one searches
    for a name in that paragraph, drawn at random. It does not know how the parts of a question hang
    together, so each hop is a guess.

    Args:
        messages: the conversation of an episode so far.
        rng: what it draws from.
    """
    question = next(str(m["content"]) for m in messages if m["role"] == "user").removeprefix("Question: ")
    read = [str(message["content"]) for message in messages if message["role"] == "tool"]
    if not read:
        return _call(question)
    title, _, text = read[-1].partition("\n\n[2]")[0].removeprefix("[1] ").partition("\n")
    answer = _find_answer(question, text)
    if answer is not None:
        return f"<answer>{answer}</answer>"
    searched = " ".join([question, title, *(str(m.get("tool_calls", "")) for m in messages)])
    names = [name for name in dict.fromkeys(_MENTION.findall(text)) if name not in searched]
    if not names or len(read) >= SEARCHES:
        return f"<answer>{title}</answer>"
    return _call(names[int(rng.integers(len(names)))])


def _find_answer(question: str, text: str) -> str | None:
    for relation in RELATIONS:
        if any(_shape(asked).fullmatch(question) for asked in relation.questions):
            found = [match[1] for shape in _shapes(relation) if (match := shape.search(text))]
            return found[0] if found else None
    return None


def _shape(asked: str) -> re.Pattern[str]:
    return re.compile(re.escape(asked).replace(r"\{x\}", ".+"))


def _shapes(relation: Relation) -> list[re.Pattern[str]]:
    """Return the sentences of a relation as patterns, with what it names as the group."""
    value = r"([\w'-]+)" if relation.target == "value" else f"({_NAME})"
    forms = [re.escape(form) for form in relation.sentences]
    return [re.compile(form.replace(r"\{x\}", r"[^.]+?").replace(r"\{y\}", value)) for form in forms]


def _call(query: str) -> str:
    call = {"name": "search", "arguments": {"query": query}}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
