"""What the hidden tests of CodeTests expect, computed in another way than by the reference solutions."""

import bisect
import functools
import ipaddress
import itertools
import math
import re
from collections import Counter

import pytest

from hyperrl_tasks.code_tests.files import load_rows

ROWS = {row["task_id"]: row for split in ("train", "test") for row in load_rows(None, split, 0.1)}


def josephus(count, step):
    people, place = list(range(1, count + 1)), 0
    while len(people) > 1:
        place = (place + step - 1) % len(people)
        people.pop(place)
    return people[0]


def queens(n):
    ways = 0
    for board in itertools.permutations(range(n)):
        ways += len({x + y for x, y in enumerate(board)}) == n == len({x - y for x, y in enumerate(board)})
    return ways


def min_window(text, letters):
    parts = [text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)]
    fitting = [part for part in parts if not Counter(letters) - Counter(part)] if letters else []
    return min(fitting, key=len, default="")


def edit_distance(left, right):
    @functools.cache
    def far(i, j):
        if not i or not j:
            return i + j
        same = left[i - 1] == right[j - 1]
        return far(i - 1, j - 1) if same else 1 + min(far(i - 1, j), far(i, j - 1), far(i - 1, j - 1))

    return far(len(left), len(right))


def knapsack(weights, values, capacity):
    things = list(zip(weights, values, strict=True))
    chosen = (c for n in range(len(things) + 1) for c in itertools.combinations(things, n))
    return max(sum(v for _, v in c) for c in chosen if sum(w for w, _ in c) <= capacity)


def next_permutation(items):
    orders = sorted(set(map(tuple, itertools.permutations(items))))
    return list(orders[(orders.index(tuple(items)) + 1) % len(orders)])


def shortest_way(count, roads, start, end):
    far = [[0 if a == b else math.inf for b in range(count)] for a in range(count)]
    for a, b, length in roads:
        far[a][b] = far[b][a] = min(far[a][b], length)
    for k, a, b in itertools.product(range(count), repeat=3):
        far[a][b] = min(far[a][b], far[a][k] + far[k][b])
    return -1 if far[start][end] == math.inf else far[start][end]


def topological_order(count, edges):
    for order in itertools.permutations(range(count)):
        if all(order.index(a) < order.index(b) for a, b in edges):
            return list(order)
    return []


def coin_change(coins, amount):
    reach, steps = {0}, 0
    seen = {0}
    while amount not in reach and reach:
        reach = {r + c for r in reach for c in coins if r + c <= amount} - seen
        seen |= reach
        steps += 1
    return steps if reach else -1


def merge_intervals(intervals):
    # In half steps, so that [1, 2] and [3, 4] stay apart, but [1, 2] and [2, 3] do not.
    covered = sorted({n for low, high in intervals for n in range(2 * low, 2 * high + 1)})
    runs = [list(run) for _, run in itertools.groupby(covered, key=lambda n: n - bisect.bisect(covered, n))]
    return [[run[0] // 2, run[-1] // 2] for run in runs]


def wildcard_match(pattern, text):
    parts = {"*": ".*", "?": "."}
    pattern = re.sub(r"\*+", "*", pattern)
    if pattern.count("*") > 5:  # a regular expression would backtrack without end
        return all(c in text for c in pattern if c not in "*?")
    return bool(re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text, re.DOTALL))


def valid_ipv4(text):
    try:
        return str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


def brackets(pairs):
    def balanced(text):
        depths = list(itertools.accumulate(1 if c == "(" else -1 for c in text))
        return not depths or (min(depths) >= 0 and depths[-1] == 0)

    return ["".join(text) for text in itertools.product("()", repeat=2 * pairs) if balanced(text)]


def lengths_of_rises(numbers):
    longest = []
    for i, number in enumerate(numbers):
        longest.append(1 + max((longest[j] for j in range(i) if numbers[j] < number), default=0))
    return max(longest, default=0)


def partition_equal(numbers):
    sums = functools.reduce(lambda bits, number: bits | bits << number, numbers, 1)
    return sum(numbers) % 2 == 0 and sums >> sum(numbers) // 2 & 1 == 1


ORACLES = {
    "evaluate": eval,
    "josephus": josephus,
    "queens": queens,
    "min_window": min_window,
    "edit_distance": edit_distance,
    "knapsack": knapsack,
    "next_permutation": next_permutation,
    "dijkstra": shortest_way,
    "topological_order": topological_order,
    "coin_change": coin_change,
    "merge_intervals": merge_intervals,
    "wildcard_match": wildcard_match,
    "valid_ipv4": valid_ipv4,
    "generate_brackets": brackets,
    "longest_increasing": lengths_of_rises,
    "binary_search": bisect.bisect_left,
    "product_of": math.prod,
    "pascal_row": lambda n: [math.comb(n, k) for k in range(n + 1)],
    "inversions": lambda xs: sum(a > b for i, a in enumerate(xs) for b in xs[i + 1 :]),
    "partition_equal": partition_equal,
    "max_subarray": lambda xs: max(sum(xs[i:j]) for i in range(len(xs)) for j in range(i + 1, len(xs) + 1)),
    "longest_unique": lambda text: max(
        (n for n in range(1, 27) if any(len(set(text[i : i + n])) == n for i in range(len(text) - n + 1))),
        default=0,
    ),
    "bits_set": int.bit_count,
    "trapped_water": lambda xs: sum(
        any(x >= level for x in xs[:i]) and any(x >= level for x in xs[i + 1 :])
        for i, height in enumerate(xs)
        for level in range(height + 1, max(xs) + 1)
    ),
}


@pytest.mark.parametrize("task_id", ORACLES)
def test_another_way_gives_the_same(task_id):
    row = ROWS[task_id]
    for test in row["tests"]:
        if len(str(test["args"])) > 20_000 or test["args"] == [100000, 7]:  # too large for a slow way
            continue
        assert ORACLES[task_id](*test["args"]) == test["expected"], test["args"]


def test_what_turns_values_into_text_can_be_turned_back():
    for test in ROWS["to_base"]["tests"]:
        assert int(test["expected"], test["args"][1]) == test["args"][0]
    for test in ROWS["prime_factors"]["tests"]:
        assert math.prod(test["expected"]) == test["args"][0]
        assert all(n % d for n in test["expected"] for d in range(2, math.isqrt(n) + 1))
    for test in ROWS["run_lengths"]["tests"]:
        assert "".join(c * n for c, n in test["expected"]) == test["args"][0]
    for test in ROWS["justify"]["tests"]:
        assert " ".join(test["expected"]).split() == test["args"][0]
        assert {len(line) for line in test["expected"]} <= {test["args"][1]}
