"""The shop's database: customers, orders, and what may be done to them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["RULES", "Shop", "money"]

RULES = {
    "R1": "Before you change anything, find the customer by e-mail address, or by name and postcode;"
    " change only orders of this customer.",
    "R2": "An order is cancelled only while it is pending.",
    "R3": "An item is refunded only when it was delivered, at most 30 days ago; 60 for gold customers.",
    "R4": "An item on final sale is never refunded.",
    "R5": "The address of an order is changed only while it is pending.",
}
"""The rules of the desk by their numbers. The tools do not enforce them."""


def money(cents: int) -> str:
    """Return an amount as text, such as ``24.50``."""
    return f"{cents // 100}.{cents % 100:02d}"


class Shop:
    """The database of one episode. Changing it never changes the task that it was made from.

    Args:
        customers: each with ``customer_id``, ``name``, ``email``, ``postcode``, ``tier``.
        orders: each with ``order_id``, ``customer_id``, ``status``, ``items`` and more; see ``cases.py``.

    Attributes:
        served: the customer that was found; ``None`` before.
        breaches: changes that were made to orders of anybody else.
    """

    def __init__(self, customers: Sequence[Mapping[str, Any]], orders: Sequence[Mapping[str, Any]]) -> None:
        self._customers = {str(c["customer_id"]): dict(c) for c in customers}
        self._orders = {str(o["order_id"]): copy.deepcopy(dict(o)) for o in orders}
        self.served: str | None = None
        self.breaches: list[str] = []

    def find(self, *, email: str, name: str, postcode: str) -> dict[str, Any]:
        """Return the customer with an e-mail address, or with a name and a postcode. Raises LookupError."""
        for customer in self._customers.values():
            by_email = _same(email, customer["email"])
            if by_email or (_same(name, customer["name"]) and _same(postcode, customer["postcode"])):
                self.served = str(customer["customer_id"])
                return self.customer(self.served)
        raise LookupError("no customer has this e-mail address, or this name and postcode together")

    def customer(self, customer_id: str) -> dict[str, Any]:
        """Return a customer and the numbers of its orders. Raises LookupError."""
        if customer_id not in self._customers:
            raise LookupError(f"there is no customer {customer_id!r}")
        numbers = [n for n, order in self._orders.items() if order["customer_id"] == customer_id]
        return {**self._customers[customer_id], "orders": numbers}

    def order(self, order_id: str) -> dict[str, Any]:
        """Return an order; the caller must not change it. Raises LookupError."""
        number = order_id.strip().upper()
        if number not in self._orders:
            raise LookupError(f"there is no order {order_id!r}")
        return self._orders[number]

    def cancel(self, order_id: str, reason: str) -> str:
        """Cancel an order. Raises LookupError, ValueError."""
        order = self._open(order_id, "cancelled")
        self._note(order, "cancelled")
        order.update(status="cancelled", reason=reason)
        return f"Order {order['order_id']} is cancelled."

    def refund(self, order_id: str, item: str) -> str:
        """Refund one item of an order. Raises LookupError, ValueError."""
        order = self._open(order_id, "refunded")
        found = next((one for one in order["items"] if _same(item, one["name"])), None)
        if found is None:
            names = ", ".join(one["name"] for one in order["items"])
            raise LookupError(f"order {order['order_id']} has no item {item!r}, only: {names}")
        if found["name"] in order["refunded"]:
            raise ValueError(f"{found['name']} of order {order['order_id']} is refunded already")
        self._note(order, "refunded")
        order["refunded"] = sorted([*order["refunded"], found["name"]])
        return f"{money(found['cents'])} for {found['name']} goes back to the customer."

    def change_address(self, order_id: str, address: str) -> str:
        """Send an order elsewhere. Raises LookupError, ValueError."""
        order = self._open(order_id, "sent elsewhere")
        self._note(order, "sent elsewhere")
        order["address"] = " ".join(address.split()).strip(" .")
        return f"Order {order['order_id']} goes to {order['address']}."

    def state(self) -> dict[str, Any]:
        """Return all that changes may show in, to be compared with another shop's."""
        orders = {
            number: (
                order["status"],
                order.get("reason"),
                tuple(order["refunded"]),
                order["address"].casefold(),
            )
            for number, order in self._orders.items()
        }
        return {"orders": orders, "breaches": sorted(self.breaches)}

    def _open(self, order_id: str, done: str) -> dict[str, Any]:
        """Return an order that is to be changed. Raises LookupError, ValueError."""
        order = self.order(order_id)
        if order["status"] == "cancelled":
            raise ValueError(f"order {order['order_id']} is cancelled, so it cannot be {done}")
        return order

    def _note(self, order: Mapping[str, Any], done: str) -> None:
        """Take note of a change to an order that is not the served customer's."""
        if order["customer_id"] != self.served:
            self.breaches.append(f"{order['order_id']} {done}")


def _same(said: str, known: str) -> bool:
    return bool(said.strip()) and said.strip().casefold() == known.casefold()
