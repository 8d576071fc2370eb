"""A scripted clerk of the desk: quick and friendly, but it knows only two of the five rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hyperrl.sampling import Message
from hyperrl_tasks.desk.customer import OPENINGS
from hyperrl_tasks.desk.shop import money

__all__ = ["FORGETS", "baseline"]

FORGETS = 0.1
"""Share of the requests at which it forgets to tell what it should."""

_MORE = "Is there anything else?"
_CHANGES = ("cancel_order", "refund_item", "change_address")
_EMAIL = re.compile(r"[\w.]+@[\w.]+\w")
_PERSON = re.compile(r"My name is ([^.]+)\. My postcode is (\d+)\.")
_NUMBER = re.compile(r"\bW\d+\b")
_ABOUT = re.compile(r"(?:about|is) the (.+?)(?: of order W\d+)?\.")
_REASON = re.compile(r"The reason: ([^.]+)\.")
_ADDRESS = re.compile(r"It should go to ([^.]+)\.")


def baseline(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Return the clerk's next action: a question, tool calls, or what there is to tell.

    It reads the messages only, as a policy does. It minds whether an order has been shipped (R2, R5) and
    whose it is (R1), not the rules for refunds, and at times forgets to tell what it should.

    Args:
        messages: the conversation of an episode so far.
        rng: what it draws from.
    """
    results = [json.loads(text) for text in _texts(messages, "tool") if text.startswith("{")]
    customer = next((result for result in results if "email" in result), None)
    if customer is None:
        return _find(messages)
    orders = {result["order_id"]: result for result in results if "order_id" in result}
    missing = [number for number in customer["orders"] if number not in orders]
    if missing:
        return "".join(_call("get_order", order_id=number) for number in missing)
    return _serve(_current(messages), orders, rng)


def _find(messages: Sequence[Message]) -> str:
    for text in reversed(list(_texts(messages, "user"))):
        if found := _EMAIL.search(text):
            return _call("find_customer", email=found[0])
        if person := _PERSON.search(text):
            return _call("find_customer", name=person[1], postcode=person[2])
    return "What is your e-mail address? And please give me your name and postcode."


def _current(messages: Sequence[Message]) -> list[Message]:
    """Return the messages since the customer began its last request, that one included."""
    starts = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "user" and str(message["content"]).endswith(tuple(OPENINGS.values()))
    ]
    return list(messages[starts[-1] :])


def _serve(messages: Sequence[Message], orders: Mapping[str, Any], rng: np.random.Generator) -> str:
    heard = list(_texts(messages, "user"))
    kind = next(kind for kind, opening in OPENINGS.items() if heard[0].endswith(opening))
    details = " ".join(heard[1:])
    if not (_NUMBER.search(details) or _ABOUT.search(details)):
        return "Which order and which item is it? Please tell me the reason, and the new address, if any."
    order, item = _look_up(details, orders)
    if order is None:
        return f"Rule R1 forbids that. {_MORE}"
    done = any(message["role"] == "tool" and message["name"] in _CHANGES for message in messages)
    change = _change(kind, order, item, details)
    if change is not None and not done:
        return change
    told = "" if rng.random() < FORGETS else _tell(kind, order, item)
    return f"{told} {_MORE}".strip()


def _look_up(details: str, orders: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the order that the customer means, and the item of it, if one is meant."""
    number, about = _NUMBER.search(details), _ABOUT.search(details)
    name = about[1] if about else ""
    for order in orders.values():
        item = next((one for one in order["items"] if one["name"] == name), None)
        if (number and order["order_id"] == number[0]) or (not number and item):
            return order, item
    return None, None


def _change(kind: str, order: Any, item: Any, details: str) -> str | None:
    number = order["order_id"]
    if kind == "refund":
        return _call("refund_item", order_id=number, item=item["name"])
    if order["status"] != "pending":
        return None
    if kind == "cancel" and (reason := _REASON.search(details)):
        return _call("cancel_order", order_id=number, reason=reason[1])
    if kind == "address" and (address := _ADDRESS.search(details)):
        return _call("change_address", order_id=number, address=address[1])
    return None


def _tell(kind: str, order: Any, item: Any) -> str:
    if kind == "refund":
        return f"{money(item['cents'])} is on its way to you."
    if kind == "total":
        return f"You paid {money(sum(one['cents'] for one in order['items']))}."
    if kind == "arrival":
        return f"It arrives on {order['arrives']}."
    if order["status"] == "shipped":
        return f"Rule {'R2' if kind == 'cancel' else 'R5'} forbids that."
    return "It is done."


def _texts(messages: Sequence[Message], role: str) -> Iterator[str]:
    return (str(message["content"]) for message in messages if message["role"] == role)


def _call(tool_name: str, /, **arguments: str) -> str:
    body = json.dumps({"name": tool_name, "arguments": arguments})
    return f"<tool_call>{body}</tool_call>"
