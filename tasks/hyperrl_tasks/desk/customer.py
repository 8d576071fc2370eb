"""The simulated customer: says what it wants, and what it is asked for, but nothing before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hyperrl.sampling import Message

__all__ = ["OPENINGS", "Customer", "describe_customer"]

OPENINGS = {
    "cancel": "I want to cancel an order.",
    "refund": "I want my money back for something that I bought.",
    "address": "I want an order sent to another address.",
    "total": "How much did I pay in all for an order?",
    "arrival": "When does my order arrive?",
    "neighbour": "Please cancel an order of my neighbour. She asked me to.",
}
"""How the customer begins each kind of request."""

_MORE = re.compile(r"any ?thing (else|more)|something else|further (questions|help)|else (i|we) can", re.I)
_ASKING = re.compile(r"\?|\b(please|provide|give|tell|share|need|let me know|confirm)\b", re.I)
_SENTENCE = re.compile(r"[^.?!\n]*[.?!\n]?")
_YES = re.compile(
    r"\b(shall|should|may|can|do you want|would you like|confirm|correct|proceed|go ahead|okay|all right)\b",
    re.I,
)
_TOPICS = {
    "email": re.compile(r"e-?mail", re.I),
    "name": re.compile(r"\b(your|full|last|first) (full |last |first )?name\b|\bnames?\b", re.I),
    "postcode": re.compile(r"post ?code|postal|zip", re.I),
    "order": re.compile(r"\border\b|\bnumber\b|\bitems?\b|\bwhich\b|\bproducts?\b", re.I),
    "reason": re.compile(r"\breason\b|\bwhy\b", re.I),
    "address": re.compile(r"(?<!mail )\baddress\b|\bstreet\b|\bwhere\b", re.I),
}


class Customer:
    """The customer of a case, as a script of a :class:`~hyperrl.envs.ScriptedUser`.

    It answers every question of a message that it knows an answer to, one sentence each. Asked whether there
    is anything else, it goes on to its next request, and leaves after the last. A message that neither
    asks nor offers anything is met with "Is it done?" once for each request, then taken for its end.

    Args:
        task: the fields of a case.
    """

    def __init__(self, task: Mapping[str, Any]) -> None:
        self._task = task
        self._current = 0
        self._nudged = False

    def __call__(self, conversation: Sequence[Message]) -> str | None:
        """Return what the customer says next; ``None`` when it leaves."""
        if not conversation:
            return f"Hello. {self._opening()}"
        spoken = conversation[-1]["role"] == "user"
        said = str(conversation[-1]["content"]) if spoken else ""
        if not _MORE.search(said):
            answers = self._answers(said)
            if answers:
                return " ".join(answers)
            if not self._nudged:
                self._nudged = True
                return "Is it done?"
        self._current, self._nudged = self._current + 1, False
        if self._current >= len(self._task["requests"]):
            return None
        return f"Yes. {self._opening()}"

    @property
    def _request(self) -> Mapping[str, Any]:
        request: Mapping[str, Any] = self._task["requests"][self._current]
        return request

    def _opening(self) -> str:
        return OPENINGS[self._request["kind"]]

    def _answers(self, said: str) -> list[str]:
        asking = " ".join(s for s in _SENTENCE.findall(said[:10_000]) if _ASKING.search(s))
        facts = _facts(self._task, self._request)
        answers = [fact for topic, fact in facts.items() if _TOPICS[topic].search(asking)]
        if not answers and "?" in asking and _YES.search(asking):
            return ["Yes, please."]
        return answers


def _facts(task: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, str]:
    """What the customer knows, by topic."""
    customer = task["customers"][0]
    facts = {
        "email": f"My e-mail address is {customer['email']}."
        if task["knows_email"]
        else "I do not know which e-mail address I gave you.",
        "name": f"My name is {customer['name']}.",
        "postcode": f"My postcode is {customer['postcode']}.",
        "order": f"It is order {request['order_id']}."
        if request["by_number"]
        else f"It is about the {request['item']}.",
    }
    if request["by_number"] and request["kind"] == "refund":
        facts["order"] = f"It is the {request['item']} of order {request['order_id']}."
    if request["reason"] is not None:
        facts["reason"] = f"The reason: {request['reason']}."
    if request["address"] is not None:
        facts["address"] = f"It should go to {request['address']}."
    return facts


def describe_customer(task: Mapping[str, Any]) -> str:
    """Return the instructions for a model that plays the customer of a case."""
    lines = ["You are a customer of a shop and talk to its service desk. You want, one after the other:"]
    for number, request in enumerate(task["requests"], start=1):
        facts = _facts(task, request)
        known = " ".join(facts[topic] for topic in ("order", "reason", "address") if topic in facts)
        lines.append(f"{number}. {OPENINGS[request['kind']]} (What you know of it: {known})")
    facts = _facts(task, task["requests"][0])
    lines.append(f"Of yourself you know: {facts['email']} {facts['name']} {facts['postcode']}")
    lines.append("Begin with the first request; come to the next only when the one before is dealt with.")
    lines.append("If something is refused with a rule, accept it.")
    return "\n".join(lines)
