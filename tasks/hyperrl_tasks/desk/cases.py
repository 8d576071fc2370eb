"""Cases of the desk: a shop, a customer, what the customer wants, and what is right to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from hyperrl.errors import ConfigError
from hyperrl_tasks.desk.shop import Shop, money
from hyperrl_tasks.splits import draw_from_split

__all__ = ["Difficulty", "apply_requests", "draw_case"]

_REASONS = ("changed my mind", "ordered by mistake")
_OTHERS = 3


@lru_cache(maxsize=1)
def _words() -> dict[str, list[str]]:
    """What names, things and places are drawn from, written for this project."""
    text = files(__package__).joinpath("data", "words.json").read_text(encoding="ascii")
    words: dict[str, list[str]] = json.loads(text)
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """How hard cases are.

    Attributes:
        requests: how many things the customer wants, 1 to 4.
        orders: how many orders the customer has, at least ``requests`` and at most 8.
        forbidden: share of the requests that a rule forbids, in [0, 1].
        vague: the customer names things and not the numbers of orders, and not its e-mail address.

    Raises:
        ConfigError: an attribute is out of range.
    """

    requests: int = 2
    orders: int = 3
    forbidden: float = 0.3
    vague: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.requests <= 4:
            raise ConfigError(f"requests must be from 1 to 4, got {self.requests}")
        if not self.requests <= self.orders <= 8:
            raise ConfigError(f"orders must be from requests={self.requests} to 8, got {self.orders}")
        if not 0 <= self.forbidden <= 1:
            raise ConfigError(f"forbidden must be a share from 0 to 1, got {self.forbidden}")


def draw_case(rng: np.random.Generator, difficulty: Difficulty, split: str) -> dict[str, Any]:
    """Draw a case of a split as the fields of a task.

    The split is that of the customer's name and postcode, whatever the difficulty is, so no customer is in
    both. Fields: ``customers`` (the first is the one who asks), ``orders``, ``requests``, ``knows_email``.
    """
    person = draw_from_split(lambda: _draw_person(rng), split, accept=lambda _: True)
    people = [person]
    while len(people) <= _OTHERS:
        other = _draw_person(rng)
        if other.split(",")[0] not in {known.split(",")[0] for known in people}:
            people.append(other)
    customers = [_customer(rng, place, text) for place, text in enumerate(people)]
    counts = [difficulty.orders, *(int(n) for n in rng.integers(1, 3, _OTHERS))]
    orders = _draw_orders(rng, customers, counts)
    own = [order for order in orders if order["customer_id"] == customers[0]["customer_id"]]
    chosen = [own[place] for place in rng.permutation(len(own))[: difficulty.requests]]
    requests = [
        _draw_request(rng, order, customers, orders, forbidden=bool(rng.random() < difficulty.forbidden))
        for order in chosen
    ]
    for request in requests:
        request["by_number"] = request["kind"] == "neighbour" or not difficulty.vague
    return {
        "customers": customers,
        "orders": [orders[place] for place in rng.permutation(len(orders))],
        "requests": requests,
        "knows_email": not difficulty.vague or bool(rng.random() < 0.5),
    }


def apply_requests(task: Mapping[str, Any]) -> Shop:
    """Return the shop as it should be at the end: what the rules allow is done, nothing else."""
    shop = Shop(task["customers"], task["orders"])
    customer = task["customers"][0]
    shop.find(email=customer["email"], name="", postcode="")
    for request in task["requests"]:
        if request["rule"] is None:
            _apply(shop, request)
    return shop


def _apply(shop: Shop, request: Mapping[str, Any]) -> None:
    if request["kind"] == "cancel":
        shop.cancel(request["order_id"], request["reason"])
    elif request["kind"] == "refund":
        shop.refund(request["order_id"], request["item"])
    elif request["kind"] == "address":
        shop.change_address(request["order_id"], request["address"])


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _word(rng: np.random.Generator, kind: str) -> str:
    return str(_pick(rng, _words()[kind]))


def _draw_person(rng: np.random.Generator) -> str:
    first, last = _word(rng, "first_names"), _word(rng, "last_names")
    return f"{first} {last}, {int(rng.integers(1000, 10_000))}"


def _customer(rng: np.random.Generator, place: int, person: str) -> dict[str, Any]:
    name, postcode = person.split(", ")
    return {
        "customer_id": f"C{100 + place}",
        "name": name,
        "email": f"{name.lower().replace(' ', '.')}{int(rng.integers(10, 100))}@example.org",
        "postcode": postcode,
        "tier": _pick(rng, ("standard", "gold")),
    }


def _draw_address(rng: np.random.Generator) -> str:
    return f"{int(rng.integers(1, 90))} {_word(rng, 'streets')}, {_word(rng, 'towns')}"


def _draw_orders(
    rng: np.random.Generator, customers: list[dict[str, Any]], counts: list[int]
) -> list[dict[str, Any]]:
    """Orders with numbers and items that no other order has, delivered a while ago."""
    total = sum(counts)
    numbers = rng.choice(9_000, total, replace=False) + 1_000
    names = [f"{colour} {thing}" for colour in _words()["colours"] for thing in _words()["things"]]
    shuffled = iter([names[place] for place in rng.permutation(len(names))])
    owners = [c["customer_id"] for c, count in zip(customers, counts, strict=True) for _ in range(count)]
    return [
        {
            "order_id": f"W{number}",
            "customer_id": owner,
            "status": "delivered",
            "items": [
                {"name": next(shuffled), "cents": int(rng.integers(500, 20_000)), "final_sale": False}
                for _ in range(int(rng.integers(1, 4)))
            ],
            "refunded": [],
            "address": _draw_address(rng),
            "days_since_delivery": int(rng.integers(1, 90)),
            "arrives": None,
        }
        for number, owner in zip(numbers.tolist(), owners, strict=True)
    ]


def _draw_request(
    rng: np.random.Generator,
    order: dict[str, Any],
    customers: list[dict[str, Any]],
    orders: list[dict[str, Any]],
    *,
    forbidden: bool,
) -> dict[str, Any]:
    """Make ``order`` suit a request of some kind, and return the request with what is right about it."""
    kinds = ["cancel", "refund", "address", *(["neighbour"] if forbidden else ["total", "arrival"])]
    kind = str(_pick(rng, kinds))
    request: dict[str, Any] = {
        "kind": kind,
        "order_id": order["order_id"],
        "item": order["items"][0]["name"],
        "reason": None,
        "address": None,
        "rule": None,
        "told": [],
    }
    if kind == "neighbour":
        others = [other for other in orders if other["customer_id"] != customers[0]["customer_id"]]
        request.update(order_id=_pick(rng, others)["order_id"], rule="R1", reason=_pick(rng, _REASONS))
    else:
        _SUIT[kind](rng, order, request, forbidden, customers[0]["tier"])
    if request["rule"] is not None:
        request["told"] = [request["rule"]]
    return request


def _suit_cancel(
    rng: np.random.Generator, order: dict[str, Any], request: dict[str, Any], forbidden: bool, _tier: str
) -> None:
    _put_on_its_way(rng, order, shipped=forbidden)
    request.update(reason=_pick(rng, _REASONS), rule="R2" if forbidden else None)


def _suit_address(
    rng: np.random.Generator, order: dict[str, Any], request: dict[str, Any], forbidden: bool, _tier: str
) -> None:
    _put_on_its_way(rng, order, shipped=forbidden)
    request.update(address=_draw_address(rng), rule="R5" if forbidden else None)


def _suit_refund(
    rng: np.random.Generator, order: dict[str, Any], request: dict[str, Any], forbidden: bool, tier: str
) -> None:
    limit = 60 if tier == "gold" else 30
    order["days_since_delivery"] = int(rng.integers(1, limit + 1))
    request["told"] = [money(order["items"][0]["cents"])]
    if forbidden and rng.random() < 0.5:
        order["items"][0]["final_sale"] = True
        request["rule"] = "R4"
    elif forbidden:
        order["days_since_delivery"] = limit + int(rng.integers(1, 60))
        request["rule"] = "R3"


def _suit_total(
    _rng: np.random.Generator, order: dict[str, Any], request: dict[str, Any], _forbidden: bool, _tier: str
) -> None:
    request["told"] = [money(sum(item["cents"] for item in order["items"]))]


def _suit_arrival(
    rng: np.random.Generator, order: dict[str, Any], request: dict[str, Any], _forbidden: bool, _tier: str
) -> None:
    _put_on_its_way(rng, order, shipped=True)
    request["told"] = [order["arrives"]]


def _put_on_its_way(rng: np.random.Generator, order: dict[str, Any], *, shipped: bool) -> None:
    order["status"] = "shipped" if shipped else "pending"
    order["days_since_delivery"] = None
    order["arrives"] = f"{int(rng.integers(1, 29))} {_word(rng, 'months')}"


_SUIT: dict[str, Callable[..., None]] = {
    "cancel": _suit_cancel,
    "refund": _suit_refund,
    "address": _suit_address,
    "total": _suit_total,
    "arrival": _suit_arrival,
}
