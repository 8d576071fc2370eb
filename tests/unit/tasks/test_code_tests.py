"""CodeTests: problems, layouts, causes, the scripted player."""

import asyncio
import gzip
import json
import statistics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import Unscored, make_env
from hyperrl.envs.grading import CallTest, CodeTest, agrade_code
from hyperrl.envs.grading.plain_values import same
from hyperrl.errors import ConfigError, DataError
from hyperrl_tasks.code_tests import baseline
from hyperrl_tasks.code_tests.files import load_rows
from hyperrl_tasks.code_tests.problems import read_problem

ENV_ID = "hyperrl/CodeTests-v0"
ROWS = {row["task_id"]: row for split in ("train", "test") for row in load_rows(None, split, 0.1)}
TIERS = ("easy", "medium", "hard")

HUMANEVAL_ROW = {
    "task_id": "Own/0",
    "prompt": "import math\n\n\ndef area(r: float) -> float:\n    '''Return the area of a circle.'''\n",
    "entry_point": "area",
    "canonical_solution": "    return math.pi * r * r\n",
    "test": (
        "def check(candidate):\n    assert candidate(0) == 0\n    assert abs(candidate(1) - math.pi) < 1e-9\n"
    ),
}
MBPP_ROW = {
    "task_id": 7,
    "text": "Write a function to add the numbers of a list.",
    "code": "def add_all(xs):\r\n  return sum(xs)",
    "test_setup_code": "",
    "test_list": ["assert add_all([1, 2]) == 3", "assert add_all([]) == 0", "assert add_all((5,)) in {5}"],
    "challenge_test_list": [],
}
PAIR_ROW = {
    "task_id": 8,
    "text": "Write a function to add the numbers of a pair.",
    "code": "class Pair:\n  def __init__(self, a): self.a = a\ndef total(p):\n  return p.a",
    "test_list": ["assert total(Pair(3)) == 3"],
}


def grade_all(answers):
    """Grade a text for each problem, side by side."""

    async def grade():
        jobs = []
        for task_id, answer in answers.items():
            problem = read_problem(ROWS[task_id], task_id)
            jobs.append(agrade_code(answer, problem.tests, entry_point=problem.entry_point))
        return await asyncio.gather(*jobs)

    return dict(zip(answers, asyncio.run(grade()), strict=True))


def play(env, task, answer):
    env.reset(seed=0, options={"task": task})
    _, reward, terminated, _, info = env.step(answer)
    assert terminated
    return reward, info


def terms(task, answer, **kwargs):
    """Score and cause of each term of an episode."""

    async def step():
        env = make_env(ENV_ID, **kwargs)
        await env.areset(seed=0, options={"task": task})
        return await env.astep(answer)

    return {term.name: (term.score, term.cause) for term in asyncio.run(step()).reward_terms}


def write(path, *rows):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, rows)))
    return path


def success(episodes, **kwargs):
    """The share of problems that the scripted player solves."""
    env = make_env(ENV_ID, **kwargs)
    rng = np.random.default_rng(0)
    rewards = []
    for index in range(min(episodes, len(env.taskset))):
        env.reset(seed=index, options={"task": index})
        rewards.append(env.step(baseline(env.messages, rng))[1])
    return statistics.mean(rewards)


# Our own problems


def test_there_are_over_a_hundred_problems_of_three_tiers():
    assert len(ROWS) >= 100
    for tier in TIERS:
        own = [row for row in ROWS.values() if row["difficulty"] == tier]
        assert len(own) >= 25
        assert len(make_env(ENV_ID, difficulty=tier, split="test").taskset) >= 5
    for row in ROWS.values():
        assert len(row["tests"]) - row["examples"] >= 4
        assert row["examples"] >= 2


def test_splits_share_no_problem_and_hold_them_all():
    train, test = (
        {task.task_id for task in make_env(ENV_ID, split=split).taskset} for split in ("train", "test")
    )
    assert not train & test
    assert train | test == set(ROWS)
    statements = [row["statement"] for row in ROWS.values()]
    assert len(set(statements)) == len(statements)


def test_no_hidden_test_is_shown():
    for row in ROWS.values():
        problem = read_problem(row, row["task_id"])
        assert row["solution"] not in problem.question
        for test in problem.tests:
            call = f"{problem.entry_point}({', '.join(map(repr, test.args))})"
            assert call not in problem.question


@pytest.mark.slow
def test_every_reference_solution_passes_and_its_examples_are_right():
    verdicts = grade_all({task_id: f"```python\n{row['solution']}\n```" for task_id, row in ROWS.items()})
    assert [(name, verdict) for name, verdict in verdicts.items() if not verdict.passed] == []
    for row in ROWS.values():
        names: dict = {}
        exec(row["solution"], names)
        for test in row["tests"][: row["examples"]]:
            value = names[row["signature"].partition("(")[0]](*test["args"])
            assert same(json.loads(json.dumps(value)), test["expected"], row.get("tolerance", 0.0))


@pytest.mark.slow
def test_nothing_trivial_passes_for_any_problem():
    for body in ("return None", "return args[0]"):
        answers = {
            name: f"def {row['signature'].partition('(')[0]}(*args):\n    {body}"
            for name, row in ROWS.items()
        }
        verdicts = grade_all(answers)
        assert [
            name for name, verdict in verdicts.items() if verdict.passed or verdict.cause != "wrong"
        ] == []


@pytest.mark.parametrize("constant", [None, True, False, 0, 1, -1, "", [], {}, [0], "a", 0.0])
def test_no_constant_passes_for_any_problem(constant):
    for row in ROWS.values():
        hidden = row["tests"][row["examples"] :]
        assert not all(same(constant, test.get("expected", "an exception")) for test in hidden), row[
            "task_id"
        ]


# Rewards and causes

DOUBLE = {
    "task_id": "double",
    "signature": "double(n: int) -> int",
    "statement": "Return twice n.",
    "examples": 1,
    "tests": [{"args": [n], "expected": 2 * n} for n in (5, 0, 1, 2, 3)],
    "solution": "def double(n):\n    return 2 * n\n",
}


@pytest.mark.parametrize(
    ("answer", "passed", "share", "cause"),
    [
        ("```python\ndef double(n):\n    return n + n\n```", 1, 1, None),
        ("def double(n): return n * n", 0, 0.5, "wrong"),
        ("def double(n): return {5: 10}[n]", 0, 0, "error"),
        ("def double(n):\n    while n > 1: pass\n    return 2 * n", 0, 0.5, "timeout"),
        ("It is 2 * n.", 0, 0, "unparsed"),
        ("def twice(n): return 2 * n", 0, 0, "unparsed"),
        ("", 0, 0, "unparsed"),
    ],
)
def test_terms_say_what_passed_and_why_not(answer, passed, share, cause):
    found = terms(DOUBLE, answer, timeout_s=1.0)
    assert found == {"tests/passed": (passed, cause), "tests/share": (share, None)}


def test_share_weight_gives_partial_credit():
    answer = "def double(n): return n * n"
    assert play(make_env(ENV_ID), DOUBLE, answer)[0] == 0
    assert play(make_env(ENV_ID, share_weight=0.4), DOUBLE, answer)[0] == pytest.approx(0.2)


def test_a_failing_sandbox_is_not_the_policys_fault():
    class Broken:
        level = "limited"

        async def run_python(self, code, *, stdin="", files=None):
            raise OSError("no processes left")

    env = make_env(ENV_ID)
    env.sandbox = Broken()
    reward, info = play(env, DOUBLE, "def double(n): return 2 * n")
    assert np.isnan(reward)
    assert "no processes left" in str(info["unscored"])


def test_the_question_shows_signature_statement_and_examples():
    env = make_env(ENV_ID)
    observation, _ = env.reset(seed=0, options={"task": DOUBLE})
    assert 'def double(n: int) -> int:\n    """Return twice n.\n\n    >>> double(5)\n    10\n' in observation
    assert "double(3)" not in observation


def test_a_stronger_sandbox_can_be_demanded():
    best = make_env(ENV_ID).sandbox.level
    assert best in ("limited", "isolated")
    if best == "isolated":
        assert make_env(ENV_ID, minimum="isolated").sandbox.level == best
        return
    with pytest.raises(ConfigError, match="isolated"):
        make_env(ENV_ID, minimum="isolated")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"difficulty": "hrad"}, "Did you mean 'hard'"),
        ({"share_weight": -1.0}, "share_weight"),
        ({"share_weight": float("nan")}, "share_weight"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"held_out_share": 1.5}, "held_out_share"),
        ({"minimum": "strong"}, "no sandbox level"),
    ],
)
def test_bad_options_are_refused(options, match):
    with pytest.raises(ConfigError, match=match):
        make_env(ENV_ID, **options)


# Files in other layouts


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_the_layout_of_humaneval_is_read(tmp_path, name):
    path = write(tmp_path / name, HUMANEVAL_ROW)
    env = make_env(ENV_ID, path=path, split="test", held_out_share=1.0)
    observation, info = env.reset(seed=0)
    assert info["task_id"] == "Own/0"
    assert "def area(r: float) -> float:" in observation
    assert play(env, 0, env.gold(env.taskset[0]))[0] == 1
    assert play(env, 0, "```python\ndef area(r):\n    return math.pi * r ** 2\n```")[0] == 1
    assert play(env, 0, "def area(r): return 3 * r * r")[0] == 0
    [first, second] = read_problem(HUMANEVAL_ROW, "row").tests
    assert isinstance(first, CallTest)
    assert isinstance(second, CodeTest)


def test_the_layout_of_mbpp_is_read(tmp_path, caplog):
    path = write(tmp_path / "rows.jsonl", MBPP_ROW, PAIR_ROW)
    env = make_env(ENV_ID, path=path, split="test", held_out_share=1.0)
    observation, _ = env.reset(seed=0)
    assert "add the numbers" in observation
    assert MBPP_ROW["test_list"][0] in observation
    assert MBPP_ROW["test_list"][1] not in observation
    assert play(env, 0, env.gold(env.taskset[0]))[0] == 1
    assert play(env, 0, "def add_all(xs): return 3")[0] == 0
    assert len(env.taskset) == 1
    assert "1 rows" in caplog.text
    sanitized = {**MBPP_ROW, "test_imports": ["import math"], "prompt": MBPP_ROW["text"]}
    del sanitized["text"]
    assert read_problem(sanitized, "row").question == read_problem(MBPP_ROW, "row").question


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz", "rows.parquet"])
def test_lists_and_parquet_are_read(tmp_path, name):
    row, path = {**MBPP_ROW, "task_id": 7}, tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        text = json.dumps([row], indent=2).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    env = make_env(ENV_ID, path=path, split="train", held_out_share=0.0)
    assert play(env, 0, env.gold(env.taskset[0]))[0] == 1
    path.write_bytes(b"[1]")
    with pytest.raises(DataError, match=r"rows\.(json|parquet)"):
        make_env(ENV_ID, path=path).reset(seed=0)


def test_a_file_is_divided_or_names_its_split(tmp_path):
    rows = [{**DOUBLE, "task_id": str(n)} for n in range(200)]
    path = write(tmp_path / "rows.jsonl", *rows)
    parts = {
        split: {task.task_id for task in make_env(ENV_ID, path=path, split=split).taskset}
        for split in ("train", "test")
    }
    assert not parts["train"] & parts["test"]
    assert len(parts["train"] | parts["test"]) == 200
    assert 5 <= len(parts["test"]) <= 40
    write(tmp_path / "train.jsonl", *rows[:3])
    write(tmp_path / "test.jsonl", *rows[3:5])
    named = make_env(ENV_ID, path=tmp_path / "{split}.jsonl", split="test")
    assert [task.task_id for task in named.taskset] == ["3", "4"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "holds no problems"),
        ("[1]", "a list"),
        ("{", "not JSON"),
        ('{"question": "x"}', "no programming problem"),
        (json.dumps({**HUMANEVAL_ROW, "entry_point": "other"}), "defines no function 'other'"),
        (json.dumps({**HUMANEVAL_ROW, "prompt": "def area(:"}), "SyntaxError"),
        (json.dumps({**MBPP_ROW, "test_list": ["assert add_all("]}), "SyntaxError"),
        (json.dumps({**MBPP_ROW, "test_list": ["assert other(1)"]}), "calls nothing"),
        (json.dumps(DOUBLE) + "\n" + json.dumps(DOUBLE), "ids must differ"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, text, match):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=match):
        make_env(ENV_ID, path=path).reset(seed=0)


def test_a_missing_file_or_tier_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        make_env(ENV_ID, path=tmp_path / "none.jsonl").reset(seed=0)
    path = write(tmp_path / "rows.jsonl", MBPP_ROW)
    with pytest.raises(ConfigError, match="'mixed' takes them all"):
        make_env(ENV_ID, path=path, difficulty="easy").reset(seed=0)


@pytest.mark.slow
def test_every_canonical_solution_of_humaneval_passes(human_eval_problems):
    env = make_env(ENV_ID, path=human_eval_problems, split="test", held_out_share=1.0)
    tasks = [env.taskset[index] for index in range(len(env.taskset))]
    assert len(tasks) == 164

    async def grade():
        jobs = []
        for task in tasks:
            one = read_problem(task.data, task.task_id)
            answer = env.gold(task)
            jobs.append(
                agrade_code(
                    answer, one.tests, entry_point=one.entry_point, preamble=one.preamble, timeout_s=20
                )
            )
        return await asyncio.gather(*jobs)

    verdicts = asyncio.run(grade())
    assert not any(isinstance(verdict, Unscored) for verdict in verdicts)
    failed = {t.task_id: v.reason for t, v in zip(tasks, verdicts, strict=True) if not v.passed}
    assert failed == {}


# The scripted player


@pytest.mark.slow
def test_success_of_the_scripted_player_falls_with_difficulty():
    easy, medium, hard = (success(15, difficulty=tier) for tier in TIERS)
    assert easy > medium >= hard
    assert easy > 0.3
    assert hard < 0.1


def test_the_scripted_player_reads_any_question():
    rng = np.random.default_rng(0)
    for content in ("", "```python\nx = 1\n```", "```python\ndef f(): pass\n```"):
        assert baseline([{"role": "user", "content": content}], rng)
