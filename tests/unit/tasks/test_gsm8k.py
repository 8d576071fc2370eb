"""GSM8K: data layouts, rewards, calculator turns, packaged problems."""

import json
import re
from fractions import Fraction
from pathlib import Path

import gymnasium
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium.utils.env_checker import check_env

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import Action, make_env
from hyperrl.errors import ConfigError, DataError
from hyperrl.trajectory import StopReason
from hyperrl_tasks.gsm8k.calculator import calculate

ENV_ID = "hyperrl/GSM8K-v0"
REAL = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"
QUESTION = "Ada has 2 pens and buys 3 more. How many pens does she have?"
SOLUTION = "Ada has 2 + 3 = <<2+3=5>>5 pens.\n#### 5"


def real(name: str) -> Path:
    path = REAL / name
    if not path.is_file():
        pytest.skip(f"no real GSM8K at {path}")
    return path


def play(env, actions, task):
    """Return (reward, terms) after the actions."""
    env.reset(options={"task": task})
    for action in [actions] if isinstance(actions, str) else actions:
        _, reward, terminated, _, info = env.step(action)
    assert terminated
    return reward, info["reward_terms"]


def write_prompt_layout(path, rows, extra=True):
    columns = {
        "prompt": [[{"role": "user", "content": question}] for question, _ in rows],
        "reward_model": [{"style": "rule", "ground_truth": gold} for _, gold in rows],
    }
    if extra:
        columns["extra_info"] = [{"question": f"plain: {question}", "index": 0} for question, _ in rows]
    pq.write_table(pa.table(columns), path)


@pytest.fixture(params=["jsonl", "plain parquet"])
def one_problem(request, tmp_path):
    row = {"question": QUESTION, "answer": SOLUTION}
    if request.param == "jsonl":
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps(row) + "\n")
    else:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist([row]), path)
    return path


# Rewards


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("mode", ["single_turn", "calculator"])
def test_gold_scores_one_empty_and_wrong_score_zero(mode, split):
    env = make_env(ENV_ID, mode=mode, split=split)
    for index in range(len(env.taskset)):
        task = env.taskset[index]
        gold = env.gold(task)
        assert play(env, gold, index) == (1.0, {"correct": 1.0, "format": pytest.approx(1.0, abs=0.2)})
        assert "<<" not in "".join(gold)
        assert play(env, "", index) == (0.0, {"correct": 0.0, "format": 0.0})
        wrong = str(int(task["gold"].replace(",", "")) + 1)
        assert play(env, f"#### {wrong}", index)[0] == 0.0
        assert play(env, f"It is {task['gold']}.", index)[0] == 0.0


def test_format_weight_counts_the_format():
    env = make_env(ENV_ID, format_weight=0.5)
    assert play(env, "#### 0", 0) == (0.5, {"correct": 0.0, "format": 1.0})
    reward, terms = play(env, "no idea", 0)
    assert reward == pytest.approx(0.5 * terms["format"])
    assert 0 < reward < 0.5


def test_a_cut_answer_is_known_to_be_cut():
    env = make_env(ENV_ID, format_weight=1.0)
    _, whole = play(env, "some words", 0)
    _, cut = play(env, Action("some words", stop_reason=StopReason.LENGTH), 0)
    assert cut["format"] < whole["format"]


def test_reasoning_does_not_count(one_problem):
    env = make_env(ENV_ID, path=one_problem)
    assert play(env, "<think>#### 5</think>I am not sure", 0)[0] == 0.0
    assert play(env, "<think>#### 4</think>#### 5", 0)[0] == 1.0


# Calculator


def call(expression):
    arguments = {"name": "calculator", "arguments": {"expression": expression}}
    return f"<tool_call>\n{json.dumps(arguments)}\n</tool_call>"


def test_calculator_answers_over_several_turns():
    env = make_env(ENV_ID, mode="calculator", split="test")
    env.reset(options={"task": 0})
    assert [tool["function"]["name"] for tool in env.tools] == ["calculator"]
    observation, reward, terminated, _, info = env.step(call("12 * 5 / 7"))
    assert (observation, reward, terminated) == ("60/7 (about 8.571429)", 0.0, False)
    assert info["tool_calls"] == (("calculator", "ok"),)
    observation, _, terminated, _, info = env.step(call("1 / 0"))
    assert "division by zero" in observation
    assert info["tool_calls"] == (("calculator", "error"),)
    assert not terminated
    _, reward, terminated, _, _ = env.step(f"#### {env.task['gold']}")
    assert (reward, terminated) == (1.0, True)


def test_single_turn_offers_no_tool_and_ends_at_once():
    env = make_env(ENV_ID)
    env.reset(seed=0)
    assert env.tools == ()
    assert env.step(call("1 + 1"))[2]


def test_the_system_prompt_says_how_to_answer():
    for mode in ("single_turn", "calculator"):
        observation, _ = make_env(ENV_ID, mode=mode).reset(seed=0)
        system, user = observation.messages
        assert (system["role"], user["role"]) == ("system", "user")
        assert "#### <number>" in system["content"]
        assert ("calculator" in system["content"]) is (mode == "calculator")


# Files


def test_a_problem_reads_the_same_from_jsonl_and_parquet(one_problem):
    env = make_env(ENV_ID, path=one_problem)
    task = env.taskset[0]
    assert (task["question"], task["gold"], task["solution"]) == (QUESTION, "5", SOLUTION)
    assert env.gold(task) == "Ada has 2 + 3 = 5 pens.\n#### 5"


def test_prompt_layout_with_and_without_the_plain_question(tmp_path):
    path = tmp_path / "rows.parquet"
    write_prompt_layout(path, [("How many? Say ####", " 1,080 ")])
    task = make_env(ENV_ID, path=path).taskset[0]
    assert (task["question"], task["gold"]) == ("plain: How many? Say ####", "1,080")
    write_prompt_layout(path, [("How many? Say ####", "7")], extra=False)
    env = make_env(ENV_ID, path=str(path))
    assert env.taskset[0]["question"] == "How many? Say ####"
    assert play(env, env.gold(env.taskset[0]), 0)[0] == 1.0


def test_a_path_may_name_the_split(tmp_path):
    for split, gold in (("train", 1), ("test", 2)):
        row = {"question": "?", "answer": f"#### {gold}"}
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row))
    path = str(tmp_path / "{split}.jsonl")
    assert make_env(ENV_ID, path=path).taskset[0]["gold"] == "1"
    assert make_env(ENV_ID, path=path, split="test").taskset[0]["gold"] == "2"


def test_bad_files_are_refused_before_an_episode(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.parquet"):
        make_env(ENV_ID, path=tmp_path / "nowhere.parquet")
    with pytest.raises(DataError, match=r"must be a \.parquet or a \.jsonl"):
        make_env(ENV_ID, path=tmp_path / "rows.csv")
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"q": ["?"], "answer": ["1"]}), path)
    with pytest.raises(
        DataError, match=r"needed are \['question', 'answer'\] or .* found were \['q', 'answer'\]"
    ):
        make_env(ENV_ID, path=path)
    lines = tmp_path / "other.jsonl"
    lines.write_text('{"question": "?"}\n')
    with pytest.raises(DataError, match=r"needed are \['question', 'answer'\], found were \['question'\]"):
        make_env(ENV_ID, path=lines)


def test_a_row_without_a_mark_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "?", "answer": "5"}\n')
    with pytest.raises(DataError, match=r"row 0 of .*does not end in '#### N'"):
        make_env(ENV_ID, path=path).taskset[0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mode": "calculate"}, "Did you mean 'calculator'"),
        ({"format_weight": -0.1}, "format_weight must be finite and at least 0"),
        ({"format_weight": float("nan")}, "format_weight"),
        ({"split": "validation"}, "has no split 'validation'"),
    ],
)
def test_bad_options_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


# Real GSM8K


@pytest.mark.parametrize("split", ["train", "test"])
def test_both_real_layouts_give_the_same_problems(split):
    plain = make_env(ENV_ID, path=real(f"{split}.parquet")).taskset
    prompt = make_env(ENV_ID, path=real(f"{split}_verl_layout.parquet")).taskset
    assert len(plain) == len(prompt)
    for index in range(100):
        for field in ("question", "gold", "solution"):
            assert plain[index][field] == prompt[index][field]


@pytest.mark.parametrize("mode", ["single_turn", "calculator"])
def test_real_gold_scores_one(mode):
    env = make_env(
        ENV_ID, mode=mode, path=str(real("test.parquet").with_name("{split}.parquet")), split="test"
    )
    for index in range(200):
        assert play(env, env.gold(env.taskset[index]), index)[0] == 1.0


def test_every_real_gold_is_a_number():
    taskset = make_env(ENV_ID, path=real("train.parquet")).taskset
    for index in range(0, len(taskset), 10):
        assert re.fullmatch(r"-?[\d,]+(\.\d+)?", taskset[index]["gold"])


# The packaged problems


def packaged(split):
    taskset = make_env(ENV_ID, split=split).taskset
    return [taskset[index] for index in range(len(taskset))]


def test_packaged_problems_are_many_and_never_in_both_splits():
    train, test = packaged("train"), packaged("test")
    assert (len(train), len(test)) == (200, 40)
    questions = [task["question"] for task in train + test]
    assert len(set(questions)) == 240

    def stories(tasks):
        """The words of a problem that are neither names nor numbers nor what depends on them."""
        return {" ".join(re.findall(r"\b[a-z]{4,}\b", task["question"])[-6:]) for task in tasks}

    assert len(stories(train)) >= 40
    assert not stories(train) & stories(test)


@pytest.mark.parametrize("split", ["train", "test"])
def test_packaged_solutions_compute(split):
    for task in packaged(split):
        steps = re.findall(r"<<([^=]+)=(\d+)>>(\d+)", task["solution"])
        assert steps, task["question"]
        for expression, value, written in steps:
            assert calculate(expression) == value == written
        assert task["solution"].endswith(f"\n#### {task['gold']}")
        assert task["gold"] == steps[-1][1]
        assert Fraction(task["gold"]) > 0


@pytest.mark.parametrize("split", ["train", "test"])
def test_packaged_questions_are_whole_sentences(split):
    for task in packaged(split):
        question = task["question"]
        assert question.endswith("?")
        assert question[0].isupper()
        assert not re.search(r"[{}\[\]<>]|  ", question), question
        assert not re.search(r"\b1 (more |further )?[a-z]+s\b", question + task["solution"]), task


# gymnasium


@pytest.mark.parametrize("mode", ["single_turn", "calculator"])
def test_gymnasium_checks_pass(mode):
    check_env(gymnasium.make(ENV_ID, mode=mode, render_mode="ansi").unwrapped)


def test_seeded_episodes_are_reproducible():
    def observations():
        env = gymnasium.make(ENV_ID)
        env.reset(seed=3)
        return [env.reset()[0] for _ in range(5)]

    assert observations() == observations()
