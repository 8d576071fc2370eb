"""Python math: families, the tool in each interpreter, grading, files, the scripted player."""

import contextlib
import gc
import importlib.util
import json
import pickle
import statistics
import time
from fractions import Fraction
from pathlib import Path

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium.utils.env_checker import check_env

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import make_env
from hyperrl.envs.checker import odd_texts
from hyperrl.envs.sandbox import BubblewrapSandbox, LocalSandbox
from hyperrl.errors import ConfigError, DataError
from hyperrl_tasks.python_math import baseline
from hyperrl_tasks.python_math.families import FAMILIES
from hyperrl_tasks.python_math.family import LEVELS, draw_numbers, instance_name
from hyperrl_tasks.splits import split_of

ENV_ID = "hyperrl/PythonMath-v0"
TASK = {"question": "What is 6 times 7?", "gold": "42"}
needs_monty = pytest.mark.skipif(
    importlib.util.find_spec("pydantic_monty") is None, reason="pydantic-monty is not installed"
)
needs_math = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed"
)
INTERPRETERS = [pytest.param("monty", marks=needs_monty), "cpython"]


def call(code):
    return f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': code}})}\n</tool_call>"


def says(env, code):
    """What the policy reads of a call."""
    return env.step(call(code))[0]


def score(env, answer, task):
    env.reset(options={"task": task})
    return env.step(answer)[1]


def interpreters(wanted, before):
    """Wait until as many processes of Monty as wanted are new among our children; say how many there are."""
    deadline, found = time.monotonic() + 20, -1
    while found != wanted and time.monotonic() < deadline:
        gc.collect()
        found = len(monty_processes() - before)
    return found


def monty_processes():
    """Process ids of children that run Monty; those of other tests may be among them."""
    return set(filter(is_monty, children()))


def children():
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            yield from (thread / "children").read_text().split()


def is_monty(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip() == "monty"
    return False


# Problems


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_formula_and_the_plain_search_agree(name, level, capsys):
    family, rng = FAMILIES[name], np.random.default_rng((7, level))
    for split in ("train", "test", "train", "test"):
        numbers = draw_numbers(rng, family, level, split)
        exec(family.write_program(numbers), {})
        assert capsys.readouterr().out.strip() == str(family.solve(**numbers)), numbers


@pytest.mark.parametrize("name", FAMILIES)
def test_a_question_says_all_of_its_numbers(name):
    family, rng = FAMILIES[name], np.random.default_rng(3)
    assert set(family.ranges) == set(family.read(family.ask(dict.fromkeys(family.ranges, 5))))
    for level in LEVELS:
        numbers = draw_numbers(rng, family, level, "train")
        question = family.ask(numbers)
        assert family.read(question) == numbers
        assert [other for other in FAMILIES if FAMILIES[other].read(question)] == [name]
        assert all(
            low <= numbers[key] <= high
            for key, ranges in family.ranges.items()
            for low, high in [ranges[level - 1]]
        )


@pytest.mark.parametrize("level", LEVELS)
def test_splits_are_large_and_never_overlap(level):
    questions = {}
    for split in ("train", "test"):
        env = make_env(ENV_ID, level=level, split=split, tool=False)
        tasks = [env.taskset[index] for index in range(400)]
        questions[split] = {task["question"] for task in tasks}
        assert {task["family"] for task in tasks} == set(FAMILIES)
        for task in tasks[:100]:
            family = FAMILIES[task["family"]]
            assert split_of(instance_name(family, family.read(task["question"]))) == split
    assert len(questions["train"]) > 330
    assert not questions["train"] & questions["test"]


def test_tasks_are_the_same_in_every_instance_and_other_for_another_seed():
    def questions(**kwargs):
        taskset = make_env(ENV_ID, tool=False, **kwargs).taskset
        return [taskset[index]["question"] for index in range(20)]

    assert questions() == questions()
    assert questions() != questions(taskset_seed=1)
    assert questions() != questions(level=3)


def test_families_can_be_chosen():
    taskset = make_env(ENV_ID, families=["dice", "flock"]).taskset
    assert {taskset[index]["family"] for index in range(20)} == {"dice", "flock"}


# The tool


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_gold_runs_the_tool_and_answers(interpreter):
    env = make_env(ENV_ID, interpreter=interpreter, level=3, split="test")
    for index in range(6):
        env.reset(options={"task": index})
        program, answer = env.gold(env.task)
        printed, reward, terminated, _, info = env.step(program)
        assert (printed, reward, terminated) == (env.task["gold"], 0.0, False)
        assert info["tool_calls"] == (("python", "ok"),)
        _, reward, terminated, _, _ = env.step(answer)
        assert (reward, terminated) == (1.0, True)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_output_value_and_errors_can_be_read(interpreter):
    env = make_env(ENV_ID, interpreter=interpreter)
    env.reset(seed=0)
    assert says(env, "print('a')\n6 * 7") == "a\n42"
    assert says(env, "x = 1") == "(nothing was printed; print what you want to know)"
    assert "ZeroDivisionError" in says(env, "print('before')\n1 / 0")
    assert "SyntaxError" in says(env, "def")
    flood = says(env, "for i in range(9999): print(i)")
    assert len(flood) <= 4_000
    assert "left out" in flood
    assert "takes at most 20,000" in says(env, "#" * 30_000)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_call_that_spins_is_ended(interpreter):
    env = make_env(ENV_ID, interpreter=interpreter, time_limit_s=0.5)
    env.reset(seed=0)
    said = says(env, "while True: pass")
    assert "TimeoutError" in said or "[stopped: more than" in said
    assert says(env, "print(6 * 7)") == "42"


@needs_monty
def test_variables_last_for_the_episode_in_monty_and_no_longer():
    env = make_env(ENV_ID, interpreter="monty")
    env.reset(seed=0)
    says(env, "x = 41")
    assert says(env, "x + 1") == "42"
    env.reset(seed=0)
    assert "NameError" in says(env, "x + 1")
    env.close()


def test_every_call_begins_anew_in_cpython():
    env = make_env(ENV_ID, interpreter="cpython")
    observation, _ = env.reset(seed=0)
    assert "variables are not kept" in observation.messages[0]["content"]
    says(env, "x = 41")
    assert "NameError" in says(env, "x + 1")


@needs_monty
@pytest.mark.parametrize("end", ["answer", "reset", "close", "forget"])
def test_no_interpreter_outlives_its_episode(end):
    before = monty_processes()
    env = make_env(ENV_ID, interpreter="monty")
    env.reset(seed=0)
    says(env, "x = 1")
    assert interpreters(1, before) == 1
    if end == "answer":
        env.step("#### 1")
    elif end == "reset":
        env.reset(seed=1)
    elif end == "close":
        env.close()
    else:
        del env
    assert interpreters(0, before) == 0


@needs_monty
def test_a_copy_begins_without_variables():
    env = make_env(ENV_ID, interpreter="monty")
    env.reset(seed=0)
    says(env, "x = 41")
    copy = pickle.loads(pickle.dumps(env))
    assert "NameError" in says(copy, "x")
    assert says(env, "x") == "41"
    env.close()
    copy.close()


@needs_monty
def test_values_of_any_size_stay_short():
    env = make_env(ENV_ID, interpreter="monty")
    env.reset(seed=0)
    assert "too long to write" in says(env, "10 ** 5000")
    assert says(env, "list(range(100000))").endswith("...]")
    assert len(says(env, "'x' * 1000000")) < 2_100
    env.close()


def test_the_level_is_that_of_the_sandbox():
    assert make_env(ENV_ID, tool=False).sandbox is None
    full = make_env(ENV_ID, interpreter="cpython").sandbox
    assert isinstance(full, LocalSandbox | BubblewrapSandbox)
    if importlib.util.find_spec("pydantic_monty"):
        assert make_env(ENV_ID, minimum="isolated").sandbox.level == "isolated"
    else:
        assert type(make_env(ENV_ID).sandbox) is type(full)


def test_without_the_tool_nothing_is_offered_or_said_of_it():
    env = make_env(ENV_ID, tool=False)
    observation, _ = env.reset(options={"task": TASK})
    assert env.tools == ()
    assert "python" not in observation.messages[0]["content"].lower()
    assert env.gold(env.task) == ["#### 42"]
    assert env.step(call("1"))[2]


# Grading


@pytest.mark.parametrize(
    ("answer", "gold", "reward"),
    [
        ("#### 42", "42", 1.0),
        ("#### 1,080", "1080", 1.0),
        ("so #### 41\n#### 42", "42", 1.0),
        ("#### 2/6", "1/3", 1.0),
        ("#### 0.333", "1/3", 0.0),
        ("#### 43", "42", 0.0),
        ("42", "42", 0.0),
        ("<think>#### 42</think>", "42", 0.0),
        ("", "42", 0.0),
    ],
)
def test_answers_are_compared_exactly(answer, gold, reward):
    env = make_env(ENV_ID, tool=False)
    assert score(env, answer, {"question": "?", "gold": gold}) == reward


def test_the_answer_may_stand_in_a_box():
    env = make_env(ENV_ID, tool=False, answer_mark="boxed")
    assert score(env, "It is $\\boxed{42}$.", TASK) == 1.0
    assert score(env, "#### 42", TASK) == 0.0
    env.reset(options={"task": TASK})
    assert "\\boxed{<answer>}" in env.messages[0]["content"]
    assert env.gold(env.task) == ["\\boxed{42}"]


@needs_math
def test_an_answer_that_is_no_number_is_compared_as_mathematics():
    env = make_env(ENV_ID, tool=False, answer_mark="boxed")
    task = {"question": "Expand.", "gold": "x^2+2x+1"}
    assert score(env, "\\boxed{(x+1)^2}", task) == 1.0
    assert score(env, "\\boxed{(x+2)^2}", task) == 0.0
    assert score(env, "\\boxed{}", task) == 0.0


# Files


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "row",
    [
        {"question": "Six times seven?", "answer": "6 * 7 = <<6*7=42>>42\n#### 42"},
        {"question": "Six times seven?", "answer": "42", "source": "here"},
        {"problem": "Six times seven?", "answer": 42},
        {"problem": "Six times seven?", "solution": "It is $\\boxed{42}$."},
    ],
)
def test_problems_are_read_from_files(tmp_path, row, suffix):
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist([row]), path)
    env = make_env(ENV_ID, path=path)
    assert dict(env.taskset[0].data) == {"question": "Six times seven?", "gold": "42"}
    assert env.gold(env.taskset[0]) == ["#### 42"]
    assert score(env, "#### 42", "0") == 1.0


def test_bad_files_are_refused_before_an_episode(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        make_env(ENV_ID, path=tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match=r"must be a \.parquet or a \.jsonl"):
        make_env(ENV_ID, path=tmp_path / "rows.csv")
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "?", "solution": "1"}')
    with pytest.raises(DataError, match=r"found were \['question', 'solution'\]"):
        make_env(ENV_ID, path=path)
    path.write_text('{"problem": "?", "solution": "no box"}')
    with pytest.raises(DataError, match=r"row 0 of .* has no answer in 'solution'"):
        make_env(ENV_ID, path=path)
    pq.write_table(pa.table({"q": ["?"], "answer": ["1"]}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"needed are \['question', 'answer'\] or"):
        make_env(ENV_ID, path=tmp_path / "rows.parquet")


def test_a_path_may_name_the_split(tmp_path):
    for split, gold in (("train", 1), ("test", 2)):
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"problem": "?", "answer": gold}))
    assert make_env(ENV_ID, path=tmp_path / "{split}.jsonl", split="test").taskset[0]["gold"] == "2"


# Options, gymnasium, the scripted player


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"level": 4}, "level must be one of 1, 2, 3, got 4"),
        ({"families": ["dices"]}, "Did you mean 'dice'"),
        ({"families": []}, "families is empty"),
        ({"interpreter": "cpythn"}, "Did you mean 'cpython'"),
        ({"minimum": "islated"}, "Did you mean 'isolated'"),
        ({"answer_mark": "box"}, "Did you mean 'boxed'"),
        ({"time_limit_s": 0}, "wall_s"),
        ({"taskset_seed": -1}, "taskset_seed"),
    ],
)
def test_options_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


def test_any_text_is_an_answer():
    env = make_env(ENV_ID)
    env.reset(seed=0)
    for text in odd_texts(120):
        _, reward, terminated, _, _ = env.step(text)
        assert reward == 0.0
        if terminated:
            env.reset()


def test_gymnasium_checks_pass():
    check_env(gymnasium.make(ENV_ID, render_mode="ansi").unwrapped)


def test_success_of_the_scripted_player_falls_with_the_level():
    def success(level):
        env, rng, rewards = (
            make_env(ENV_ID, level=level, split="test", tool=False),
            np.random.default_rng(0),
            [],
        )
        for index in range(120):
            env.reset(options={"task": index})
            rewards.append(env.step(baseline(env.messages, rng))[1])
        return statistics.mean(rewards)

    easy, middle, hard = (success(level) for level in LEVELS)
    assert easy > 0.6
    assert easy > middle + 0.3
    assert middle > hard + 0.08


def test_the_scripted_player_answers_whatever_it_is_asked():
    env = make_env(ENV_ID, answer_mark="boxed")
    env.reset(options={"task": TASK})
    assert env.step(baseline(env.messages, np.random.default_rng(0)))[2]
    assert Fraction(1, 3) == FAMILIES["fractions"].solve(start=3, gap=1, count=1)
