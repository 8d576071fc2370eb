"""The customer desk: cases, rules, the simulated customer, what counts, the scripted clerk."""

import json
import re
import statistics

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import make_env
from hyperrl.envs.checker import odd_texts
from hyperrl.errors import ConfigError
from hyperrl_tasks.desk import ModelUserDesk, baseline
from hyperrl_tasks.desk.cases import apply_requests
from hyperrl_tasks.desk.customer import OPENINGS, Customer, describe_customer
from hyperrl_tasks.desk.shop import RULES, Shop

ENV_ID = "hyperrl/Desk-v0"


def call(tool_name, /, **arguments):
    body = json.dumps({"name": tool_name, "arguments": arguments})
    return f"<tool_call>{body}</tool_call>"


def order(number, owner="C1", **values):
    return {
        "order_id": number,
        "customer_id": owner,
        "status": "pending",
        "items": [
            {"name": "blue kettle", "cents": 2450, "final_sale": False},
            {"name": "red rug", "cents": 9900, "final_sale": False},
        ],
        "refunded": [],
        "address": "1 Mill Lane, Barton",
        "days_since_delivery": None,
        "arrives": "12 May",
        **values,
    }


def request(kind, number="W1", **values):
    return {
        "kind": kind,
        "order_id": number,
        "item": "blue kettle",
        "reason": "changed my mind" if kind == "cancel" else None,
        "address": "9 Quay Street, Elmsby" if kind == "address" else None,
        "rule": None,
        "told": [],
        "by_number": True,
        **values,
    }


def case(*requests, **order_values):
    customers = [
        {"customer_id": "C1", "name": "Ada Vance", "email": "ada@example.org", "postcode": "1234"},
        {"customer_id": "C2", "name": "Emil Rowan", "email": "emil@example.org", "postcode": "4321"},
    ]
    return {
        "customers": [{"tier": "standard", **customer} for customer in customers],
        "orders": [order("W1", **order_values), order("W2"), order("W9", "C2")],
        "requests": list(requests),
        "knows_email": True,
    }


FIND = call("find_customer", email="ada@example.org")
DONE = "That is done. Is there anything else?"


def play(task, *actions):
    """Return the environment, and what the last step gave."""
    env = make_env(ENV_ID, render_mode="ansi")
    env.reset(seed=0, options={"task": task})
    for action in actions:
        step = env.step(action)
    return env, step


def terms(task, *actions):
    """Return the scores of an episode, which must have ended."""
    _, (_, _, terminated, _, info) = play(task, *actions)
    assert terminated
    return info["reward_terms"]


# Cases


@pytest.mark.parametrize("forbidden", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("split", ["train", "test"])
def test_gold_solves_every_case_and_uses_what_the_customer_tells(split, forbidden):
    env = make_env(ENV_ID, split=split, forbidden=forbidden, requests=3, orders=5)
    for index in range(30):
        env.reset(seed=index, options={"task": index})
        for action in env.gold(env.task):
            _, reward, terminated, _, info = env.step(action)
        assert (reward, terminated) == (1.0, True), info


def test_splits_share_no_customer():
    people = {
        split: {
            (task["customers"][0]["name"], task["customers"][0]["postcode"])
            for task in (make_env(ENV_ID, split=split).taskset[i] for i in range(300))
        }
        for split in ("train", "test")
    }
    assert len(people["train"]) > 290
    assert not people["train"] & people["test"]


def test_difficulty_options_show_in_the_cases():
    plain = make_env(ENV_ID, requests=1, orders=1, forbidden=0.0, vague=False).taskset
    hard = make_env(ENV_ID, requests=4, orders=8, forbidden=1.0).taskset
    for index in range(50):
        easy, task = plain[index], hard[index]
        assert len(easy["requests"]) == 1
        assert easy["knows_email"]
        assert easy["requests"][0]["rule"] is None
        assert len(task["requests"]) == 4
        assert all(one["rule"] in RULES for one in task["requests"])
        own = [o for o in task["orders"] if o["customer_id"] == task["customers"][0]["customer_id"]]
        assert len(own) == 8
    kinds = {one["kind"] for index in range(50) for one in hard[index]["requests"]}
    kinds |= {plain[index]["requests"][0]["kind"] for index in range(50)}
    assert kinds == set(OPENINGS)
    rules = {one["rule"] for index in range(50) for one in hard[index]["requests"]}
    assert rules == set(RULES)


def test_the_rule_of_a_request_is_the_rule_that_forbids_it():
    """Held against the rules as they are written, not as cases are drawn."""
    taskset = make_env(ENV_ID, requests=4, orders=6, forbidden=0.5).taskset
    for index in range(100):
        task = taskset[index]
        orders = {o["order_id"]: o for o in task["orders"]}
        customer = task["customers"][0]
        for one in task["requests"]:
            found = orders[one["order_id"]]
            item = next((i for i in found["items"] if i["name"] == one["item"]), None)
            rule = None
            if found["customer_id"] != customer["customer_id"]:
                rule = "R1"
            elif one["kind"] == "cancel" and found["status"] != "pending":
                rule = "R2"
            elif one["kind"] == "refund" and item["final_sale"]:
                rule = "R4"
            elif one["kind"] == "refund" and found["days_since_delivery"] > (
                60 if customer["tier"] == "gold" else 30
            ):
                rule = "R3"
            elif one["kind"] == "address" and found["status"] != "pending":
                rule = "R5"
            assert one["rule"] == rule


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"requests": 5}, "requests must be from 1 to 4, got 5"),
        ({"requests": 3, "orders": 2}, "orders must be from requests=3 to 8, got 2"),
        ({"forbidden": 1.5}, "forbidden must be a share"),
        ({"patience": 1}, "patience must be from 2 to 100"),
        ({"taskset_seed": -1}, "taskset_seed must be at least 0"),
    ],
)
def test_options_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


# What counts


def test_what_is_asked_for_and_allowed_is_done():
    assert terms(
        case(request("cancel")), FIND, call("cancel_order", order_id="W1", reason="changed my mind"), DONE
    ) == {"solved": 1.0, "state": 1.0, "told": 1.0}
    address = call("change_address", order_id="w1", address=" 9 Quay Street,  Elmsby. ")
    assert terms(case(request("address")), FIND, address, DONE)["solved"] == 1.0
    refund = call("refund_item", order_id="W1", item="Blue Kettle")
    delivered = {"status": "delivered", "days_since_delivery": 3}
    task = case(request("refund", told=["24.50"]), **delivered)
    assert terms(task, FIND, refund, f"24.50 is on its way. {DONE}")["solved"] == 1.0
    assert terms(task, FIND, refund, DONE) == {"solved": 0.0, "state": 1.0, "told": 0.0}
    assert terms(task, FIND, refund, f"124.50 or 24.505. {DONE}")["told"] == 0.0


@pytest.mark.parametrize(
    "unwanted",
    [
        call("cancel_order", order_id="W2", reason="changed my mind"),
        call("change_address", order_id="W2", address="elsewhere"),
        call("refund_item", order_id="W1", item="red rug"),
        call("refund_item", order_id="W9", item="red rug"),
    ],
)
def test_side_effects_that_nobody_asked_for_count_as_wrong(unwanted):
    address = call("change_address", order_id="W1", address="9 Quay Street, Elmsby")
    task = case(request("address"))
    assert terms(task, FIND, address, DONE)["solved"] == 1.0
    assert terms(task, FIND, address, unwanted, DONE) == {"solved": 0.0, "state": 0.0, "told": 1.0}


def test_a_change_before_the_customer_is_found_is_wrong():
    cancel = call("cancel_order", order_id="W1", reason="changed my mind")
    assert terms(case(request("cancel")), cancel, FIND, DONE)["state"] == 0.0


def test_a_wrong_reason_is_wrong():
    cancel = call("cancel_order", order_id="W1", reason="ordered by mistake")
    assert terms(case(request("cancel")), FIND, cancel, DONE)["state"] == 0.0


def test_what_a_rule_forbids_is_refused_with_its_number_and_no_other():
    task = case(request("cancel", rule="R2", told=["R2"]), status="shipped")
    assert terms(task, FIND, f"Rule R2 forbids it. {DONE}")["solved"] == 1.0
    assert terms(task, FIND, f"A rule forbids it. {DONE}")["solved"] == 0.0
    assert terms(task, FIND, f"R1, R2, R3, R4, R5! {DONE}") == {"solved": 0.0, "state": 1.0, "told": 0.0}
    cancel = call("cancel_order", order_id="W1", reason="changed my mind")
    assert terms(task, FIND, cancel, f"Rule R2 forbids it. {DONE}")["state"] == 0.0


def test_only_what_the_customer_hears_was_told():
    task = case(request("total", told=["123.50"]))
    assert terms(task, FIND, f"You paid 123.50. {DONE}")["told"] == 1.0
    assert terms(task, FIND, f"You paid 123.50. {FIND}", DONE)["told"] == 0.0
    assert terms(task, FIND, f"<think>123.50</think>{DONE}")["told"] == 0.0


def test_to_list_all_amounts_and_dates_is_no_answer():
    amounts = " ".join(f"{cents / 100:.2f}" for cents in range(10_000, 15_000, 5))
    dates = " ".join(f"{day} March." for day in range(1, 29))
    paid = case(request("total", told=["123.50"]))
    arrives = case(request("arrival", told=["7 March"]), status="shipped", arrives="7 March")
    for task in (paid, arrives):
        assert terms(task, FIND, f"{amounts} {dates} {DONE}")["solved"] == 0.0
    assert terms(paid, FIND, f"Not 120.00, it was 123.50. {DONE}")["solved"] == 1.0
    assert terms(arrives, FIND, f"It arrives on 7 March. {DONE}")["solved"] == 1.0


def test_impossible_calls_are_errors_that_change_nothing():
    env, (observation, *_, info) = play(
        case(request("cancel")),
        call("get_order", order_id="W7")
        + call("refund_item", order_id="W1", item="yellow kettle")
        + call("cancel_order", order_id="W1", reason="bored")
        + call("find_customer", name="Ada Vance", postcode="9999")
        + call("find_customer"),
    )
    statuses = [status for _, status in info["tool_calls"]]
    assert statuses == ["error", "error", "bad_arguments", "error", "error"]
    assert "has no item 'yellow kettle', only: blue kettle, red rug" in observation
    assert env._shop.state() == Shop(env.task["customers"], env.task["orders"]).state()


def test_nothing_is_done_twice():
    shop = Shop(**{key: case()[key] for key in ("customers", "orders")})
    shop.refund("W1", "red rug")
    with pytest.raises(ValueError, match="refunded already"):
        shop.refund("W1", "red rug")
    shop.cancel("W1", "changed my mind")
    with pytest.raises(ValueError, match="is cancelled"):
        shop.change_address("W1", "x")


def test_an_episode_leaves_no_trace():
    env = make_env(ENV_ID, requests=4, orders=4, forbidden=0.0)
    before = json.dumps(env.taskset[0].data)
    task = env.taskset[0]
    for _ in range(2):
        env.reset(options={"task": task})
        start = env._shop.state()
        for action in env.gold(task):
            _, reward, _, _, _ = env.step(action)
        assert reward == 1.0
        assert env._shop.state() != start
    assert json.dumps(task.data) == before
    assert apply_requests(task.data).state() == env._shop.state()


# The customer


def test_the_customer_tells_only_what_it_is_asked():
    customer = Customer(case(request("refund"), request("address")))
    opening = customer([])
    assert opening == f"Hello. {OPENINGS['refund']}"
    told = [opening]

    def ask(text):
        told.append(customer([{"role": "user", "content": text}]))
        return told[-1]

    assert ask("What is your e-mail address?") == "My e-mail address is ada@example.org."
    assert ask("And your name?") == "My name is Ada Vance."
    assert "ada@" not in "".join(told[2:])
    assert ask("I looked at order W1. Shall I go ahead?") == "Yes, please."
    assert ask("Please tell me which item of which order it is.") == "It is the blue kettle of order W1."
    assert ask("Your name and postcode, please.") == "My name is Ada Vance. My postcode is 1234."
    assert ask("I see.") == "Is it done?"
    assert ask("I have refunded it. Is there anything else?") == f"Yes. {OPENINGS['address']}"
    assert ask("Where should it go?") == "It should go to 9 Quay Street, Elmsby."
    assert ask("Hm.") == "Is it done?"
    assert ask("Hm.") is None


def test_a_vague_customer_names_things():
    task = case(request("cancel", by_number=False))
    task["knows_email"] = False
    customer = Customer(task)
    said = customer([{"role": "user", "content": "What is your e-mail? Which order, and why?"}])
    assert said == (
        "I do not know which e-mail address I gave you. It is about the blue kettle."
        " The reason: changed my mind."
    )


def test_a_model_gets_the_same_facts():
    told = describe_customer(case(request("refund"), request("address")))
    for fact in ("1. I want my money back", "2. I want an order sent", "W1", "9 Quay Street", "Ada Vance"):
        assert fact in told
    assert not re.search(r"\bR\d\b|123\.50", told)
    env = ModelUserDesk(base_url="http://127.0.0.1:9/v1", model="tiny", requests=1)
    assert env.version == make_env(ENV_ID).version


def test_odd_texts_never_raise_and_score_nothing():
    env = make_env(ENV_ID, forbidden=1.0)
    terminated = True
    for index, text in enumerate(odd_texts(500)):
        if terminated:
            env.reset(seed=index)
        _, reward, terminated, _, info = env.step(text)
        assert reward == 0.0
        assert "unscored" not in info


def test_gymnasium_checks_pass():
    check_env(gymnasium.make(ENV_ID, render_mode="ansi").unwrapped)


# The scripted clerk


def success(episodes=100, **kwargs):
    """The share of cases that the clerk solves."""
    env = make_env(ENV_ID, **kwargs)
    rng = np.random.default_rng(0)
    rewards = []
    for index in range(episodes):
        env.reset(seed=index, options={"task": index})
        terminated = False
        while not terminated:
            _, reward, terminated, _, _ = env.step(baseline(env.messages, rng))
        rewards.append(reward)
    return statistics.mean(rewards)


def test_success_of_the_clerk_falls_with_more_requests_and_more_rules():
    easy = success(requests=1, forbidden=0.0)
    more = success(requests=4, orders=6, forbidden=0.0)
    rules = success(requests=1, forbidden=1.0)
    both = success(requests=4, orders=6, forbidden=1.0)
    assert easy > 0.85
    assert easy > more > both
    assert easy > rules > both
