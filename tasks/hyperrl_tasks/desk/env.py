"""The environment ``hyperrl/Desk-v0``."""

from __future__ import annotations

import calendar
import json
import re
from typing import Any, Literal

import numpy as np

from hyperrl.envs import ProceduralTaskset, ScriptedUser, Task, TextEnv, reward, tool
from hyperrl.errors import ConfigError
from hyperrl.sampling import Message
from hyperrl_tasks.desk.cases import Difficulty, apply_requests, draw_case
from hyperrl_tasks.desk.customer import Customer
from hyperrl_tasks.desk.shop import RULES, Shop, money

__all__ = ["MORE", "Desk"]

_COUNTS = {"train": 100_000, "test": 2_000}
_RULE = re.compile(r"\bR[1-5]\b")
_FIGURE = re.compile(rf"\d+\.\d\d(?!\d)|\b\d{{1,2}} (?:{'|'.join(calendar.month_name[1:])})\b", re.IGNORECASE)
_MOST_STRANGE_FIGURES = 2
MORE = "Is there anything else?"
"""What makes the scripted customer go on."""


class Desk(TextEnv):
    """Serve a customer of a shop: find out what is wanted, look it up, do what the rules allow.

    Args:
        requests: how many things the customer wants, 1 to 4.
        orders: how many orders the customer has, at least ``requests`` and at most 8.
        forbidden: share of the requests that a rule forbids, in [0, 1].
        vague: the customer names things and not the numbers of orders, and may not know its e-mail address.
        patience: most messages of the customer, 2 to 100.
        taskset_seed: names the collection of tasks; another seed gives other tasks of the same splits.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range.
    """

    version = "1"

    def __init__(  # each is an option by keyword
        self,
        *,
        requests: int = 2,
        orders: int = 3,
        forbidden: float = 0.3,
        vague: bool = True,
        patience: int = 30,
        taskset_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.difficulty = Difficulty(requests=requests, orders=orders, forbidden=forbidden, vague=vague)
        if not 2 <= patience <= 100:
            raise ConfigError(f"patience must be from 2 to 100, got {patience}")
        if taskset_seed < 0:
            raise ConfigError(f"taskset_seed must be at least 0, got {taskset_seed}")
        self.patience = patience
        self.taskset_seed = taskset_seed
        self.system_prompt = _instructions()

    def tasks(self) -> ProceduralTaskset:
        """Generated cases; a customer belongs to exactly one split."""
        return ProceduralTaskset(self._generate, _COUNTS[self.split], self.taskset_seed)

    def _generate(self, rng: np.random.Generator) -> dict[str, Any]:
        return draw_case(rng, self.difficulty, self.split)

    def start(self, task: Task) -> Any:
        """Open the shop; the customer says its first request."""
        self._open(task)
        self._user = ScriptedUser(Customer(task.data), max_turns=self.patience)
        return self._user.reply([])

    def reply(self, answer: str, messages: list[Message]) -> Any:
        """Let the customer answer; the episode ends when it leaves."""
        self._spoken.append(answer)
        return self._user.reply(messages)

    def _open(self, task: Task) -> None:
        self._shop = Shop(task["customers"], task["orders"])
        self._spoken: list[str] = []

    @tool
    def find_customer(self, email: str = "", name: str = "", postcode: str = "") -> dict[str, Any]:
        """Find a customer by e-mail address, or by name and postcode together.

        Args:
            email: The e-mail address.
            name: First and last name.
            postcode: The postcode, four digits.
        """
        return self._shop.find(email=email, name=name, postcode=postcode)

    @tool
    def get_order(self, order_id: str) -> dict[str, Any]:
        """Look up an order: status, items with their prices in cents, address, dates.

        Args:
            order_id: The number, such as W1234.
        """
        return self._shop.order(order_id)

    @tool
    def cancel_order(self, order_id: str, reason: Literal["changed my mind", "ordered by mistake"]) -> str:
        """Cancel a whole order.

        Args:
            order_id: The number, such as W1234.
            reason: The customer's reason; ask for it.
        """
        return self._shop.cancel(order_id, reason)

    @tool
    def refund_item(self, order_id: str, item: str) -> str:
        """Give the money for one item back.

        Args:
            order_id: The number, such as W1234.
            item: The item's name, as in the order.
        """
        return self._shop.refund(order_id, item)

    @tool
    def change_address(self, order_id: str, address: str) -> str:
        """Send an order to another address.

        Args:
            order_id: The number, such as W1234.
            address: The new address, as the customer gives it.
        """
        return self._shop.change_address(order_id, address)

    @reward
    def solved(self, task: Task) -> float:
        """1 if the shop is as it should be and the customer was told what it had to be, 0 otherwise."""
        return float(self._state_is_right(task) and self._share_told(task) == 1.0)

    @reward(weight=0.0)
    def state(self, task: Task) -> float:
        """1 if everything that should be changed is, and nothing else; 0 otherwise."""
        return float(self._state_is_right(task))

    @reward(weight=0.0)
    def told(self, task: Task) -> float:
        """Share of what the customer had to be told, in [0, 1].

        0 where it was told a rule that is not it, or more than two amounts and dates that no order has.
        """
        return self._share_told(task)

    def _state_is_right(self, task: Task) -> bool:
        return self._shop.state() == apply_requests(task.data).state()

    def _share_told(self, task: Task) -> float:
        spoken = "\n".join(self._spoken)
        due = [text for request in task["requests"] for text in request["told"]]
        if set(_RULE.findall(spoken)) - set(due) or self._guesses(task, spoken) > _MOST_STRANGE_FIGURES:
            return 0.0
        found = [re.search(rf"(?<![\w.,]){re.escape(text)}(?!\w)", spoken, re.IGNORECASE) for text in due]
        return sum(match is not None for match in found) / len(due) if due else 1.0

    def _guesses(self, task: Task, spoken: str) -> int:
        """Count the amounts and dates that the customer was told and that stand in no order."""
        known = {str(order["arrives"]).casefold() for order in task["orders"]}
        for order in task["orders"]:
            cents = [item["cents"] for item in order["items"]]
            known.update(map(money, [*cents, sum(cents)]))
        return len({figure.casefold() for figure in _FIGURE.findall(spoken)} - known)

    def gold(self, task: Task) -> list[str]:
        """Return a whole talk: who are you, then each request dealt with."""
        customer = task["customers"][0]
        who = {"email": customer["email"]}
        if not task["knows_email"]:
            who = {"name": customer["name"], "postcode": customer["postcode"]}
        actions = ["What is your e-mail address, or your name and postcode?", _call("find_customer", **who)]
        for request in task["requests"]:
            actions += [call for call in (_right_call(request),) if call is not None]
            actions.append(" ".join([*(map(_sentence, request["told"] or ["done"])), MORE]))
        return actions


def _right_call(request: dict[str, Any]) -> str | None:
    order_id = request["order_id"]
    if request["rule"] is not None:
        return None
    if request["kind"] == "cancel":
        return _call("cancel_order", order_id=order_id, reason=request["reason"])
    if request["kind"] == "refund":
        return _call("refund_item", order_id=order_id, item=request["item"])
    if request["kind"] == "address":
        return _call("change_address", order_id=order_id, address=request["address"])
    return None


def _sentence(told: str) -> str:
    return f"I cannot do that, because of rule {told}." if told in RULES else f"It is {told}."


def _call(tool_name: str, /, **arguments: str) -> str:
    body = json.dumps({"name": tool_name, "arguments": arguments})
    return f"<tool_call>{body}</tool_call>"


def _instructions() -> str:
    rules = "\n".join(f"{number}. {text}" for number, text in RULES.items())
    return (
        "You serve the customers of a shop. Talk to the customer, ask for what you need to know, and use the"
        " tools. The customer may want several things, one after the other: when one is dealt with, ask"
        f" {MORE!r} The rules:\n{rules}\n"
        "If a rule forbids what the customer wants, change nothing for it and say the number of the rule,"
        " such as R2; mention no other rule. After a refund say the amount. Write amounts with two decimals,"
        " such as 24.50, and dates as the order has them."
    )
