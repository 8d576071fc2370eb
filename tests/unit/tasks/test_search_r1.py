"""Search-R1: the generated world, its questions, files of questions, answers, the scripted player."""

import asyncio
import importlib.util
import json
import pickle
import re
import statistics
import time
from pathlib import Path

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium.utils.env_checker import check_env

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import Action, make_env
from hyperrl.envs.checker import odd_texts
from hyperrl.envs.search import open_index
from hyperrl.errors import ConfigError, DataError
from hyperrl.trajectory import StopReason
from hyperrl_tasks.search_r1 import baseline
from hyperrl_tasks.search_r1.answers import read_answer
from hyperrl_tasks.search_r1.questions import make_questions
from hyperrl_tasks.search_r1.rows import load_questions
from hyperrl_tasks.search_r1.world import make_world

ENV_ID = "hyperrl/SearchR1-v0"
REAL = Path(__file__).parents[4] / "shared" / "data"
needs_real = pytest.mark.skipif(not (REAL / "hotpotqa").is_dir(), reason=f"no data sets in {REAL}")
ENGINES = ["fts5"] + ["tantivy"] * (importlib.util.find_spec("tantivy") is not None)


def search(query):
    return f"<tool_call>{json.dumps({'name': 'search', 'arguments': {'query': query}})}</tool_call>"


def play(env, *actions, task=0):
    env.reset(seed=0, options={"task": task})
    for action in actions:
        step = env.step(action)
    return step


def success(episodes=80, **kwargs):
    """The share of questions that the scripted player answers."""
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


def says(text, answer):
    """Whether a text holds an answer as words of their own."""
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


# The generated world


def test_the_world_is_large_varied_and_the_same_everywhere():
    world = make_world(0, 1)
    assert len(world.corpus) == 4_400
    assert len(make_world(0, 0).corpus) == 2_200
    assert len(set(world.corpus.titles)) == len(set(world.corpus.texts)) == 4_400
    assert make_world(1, 0).corpus.digest != make_world(0, 0).corpus.digest
    assert world.corpus.digest == "07f871243f7f754965d5f912f616b4d0", "a released world never changes"


def test_namesakes_share_words_and_change_nothing_else():
    few, many = make_world(0, 0), make_world(0, 4)
    assert [one.text for one in few.entities] == [one.text for one in many.entities]
    for entity in many.entities[::50]:
        assert len(entity.namesakes) == 4
        assert all(set(entity.name.split()) & set(other.name.split()) for other in entity.namesakes)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_splits_share_no_entity(hops):
    def named(split):
        rows = make_questions(0, split, hops, 1)
        names = {one.name for one in make_world(0, 1).entities}
        return {name for row in rows for name in (*row["titles"], row["answers"][0])} & names

    train, test = named("train"), named("test")
    assert len(train) > 1_000
    assert len(test) > 100
    assert not train & test


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("hops", [2, 3])
def test_the_top_hit_alone_does_not_answer_and_the_gold_chain_does(engine, hops):
    rows = make_questions(0, "train", hops, 1)
    rows = [rows[i] for i in range(0, len(rows), len(rows) // 250)]
    corpus = make_world(0, 1).corpus
    texts = dict(zip(corpus.titles, corpus.texts, strict=True))
    with open_index(corpus, engine) as index:
        for row in rows:
            *early, last = row["titles"]
            top = index.search(row["question"], top_k=1)[0]
            assert not any(says(f"{top.title} {top.text}", answer) for answer in row["answers"])
            assert not any(says(texts[title], answer) for title in early for answer in row["answers"])
            assert says(texts[last], row["answers"][0])
            for before, after in zip(early, row["titles"][1:], strict=True):
                assert says(texts[before], after)
                assert not says(row["question"], after)
            for title in row["titles"]:
                assert title in [hit.title for hit in index.search(title, top_k=3)]


def test_the_question_alone_seldom_finds_the_last_paragraph():
    rows = make_questions(0, "test", 2, 1)
    with open_index(make_world(0, 1).corpus, "fts5") as index:
        found = [
            row["titles"][-1] in [h.title for h in index.search(row["question"])] for row in list(rows)[:200]
        ]
    assert statistics.mean(found) < 0.02


def test_instances_are_quick_to_make():
    env = make_env(ENV_ID)
    env.reset(seed=0)
    began = time.process_time()
    for index in range(200):
        env.reset(seed=index, options={"task": index})
    assert (time.process_time() - began) / 200 < 0.005


# Episodes


@pytest.mark.parametrize("engine", ENGINES)
def test_an_episode_of_two_searches(engine):
    env = make_env(ENV_ID, engine=engine)
    observation, _ = env.reset(seed=0, options={"task": 0})
    assert observation.messages[-1]["content"] == f"Question: {env.task['question']}"
    first, second, answer = env.gold(env.task)
    heard, reward, terminated, _, _ = env.step(first)
    assert f"] {env.task['titles'][0]}\n" in heard
    assert env.task["titles"][1] in heard
    assert (reward, terminated) == (0.0, False)
    assert says(env.step(second)[0], env.task["answers"][0])
    *_, info = env.step(answer)
    assert info["reward_terms"] == {"correct": 1.0, "f1": 1.0, "format": 1.0, "searched": 1.0}


def test_what_is_wrong_can_be_told_apart():
    env = make_env(ENV_ID)
    assert play(env, "<answer>no</answer>")[4]["reward_terms"] == {
        "correct": 0.0, "f1": 0.0, "format": 1.0, "searched": 0.0,
    }  # fmt: skip
    assert play(env, "I do not know.")[4]["reward_terms"]["format"] == 0.0
    assert play(env, search("the"), "")[4]["reward_terms"] == {
        "correct": 0.0, "f1": 0.0, "format": 0.0, "searched": 1.0,
    }  # fmt: skip
    assert play(env, search("qqqq"), "")[4]["reward_terms"]["searched"] == 0.0


def test_an_answer_that_cannot_be_read_has_a_cause():
    async def causes(action):
        env = make_env(ENV_ID)
        await env.areset(seed=0)
        return [term.cause for term in (await env.astep(action)).reward_terms if term.name == "correct"]

    assert asyncio.run(causes("I do not know.")) == ["unparsed"]
    assert asyncio.run(causes("<answer>wrong</answer>")) == [None]


def test_weights_and_options():
    env = make_env(ENV_ID, f1_weight=0.5, format_weight=0.25, search_weight=0.125, top_k=1, snippet_chars=80)
    assert play(env, *gold_of(env))[1] == 1.875
    env.reset(seed=0, options={"task": 0})
    heard = env.step(gold_of(env)[0])[0]
    assert heard.startswith("[1] ")
    assert "[2]" not in heard
    assert len(heard.partition("\n")[2]) <= 80


def gold_of(env, task=0):
    env.reset(seed=0, options={"task": task})
    return env.gold(env.task)


@pytest.mark.parametrize(
    "options", [{"hops": 1, "split": "test"}, {"hops": 3}, {"distractors": 0}, {"engine": "fts5"}]
)
def test_gold_scores_one_and_is_never_told(options):
    env = make_env(ENV_ID, **options)
    for index in range(0, len(env.taskset), len(env.taskset) // 25):
        observation, _ = env.reset(seed=0, options={"task": index})
        assert not any(says(observation, answer) for answer in env.task["answers"])
        assert play(env, *env.gold(env.task), task=index)[1] == 1.0


@pytest.mark.parametrize(
    ("text", "tag", "line"),
    [
        ("<answer>Ulm</answer>", "Ulm", "Ulm"),
        ("so <answer> a </answer> or <answer>Ulm</answer> then", "Ulm", "Ulm"),
        ("<answer>a <answer>Ulm</answer>", "Ulm", "Ulm"),
        ("It is\nAnswer: Ulm\n", None, "Ulm"),
        ("<answer></answer>", None, None),
        ("<answer>Ulm", None, "<answer>Ulm"),
        ("", None, None),
        ("<answer>" + "x" * 1_001 + "</answer>", None, None),
    ],
)
def test_where_answers_stand(text, tag, line):
    assert (read_answer(text, "tag"), read_answer(text, "line")) == (tag, line)


def test_answers_are_read_without_reasoning_and_with_aliases():
    env = make_env(ENV_ID, answer_format="line")
    task = {"question": "Which river?", "answers": ["River Ulm", "Ulm"]}
    assert play(env, "<think>Rhine</think>the ulm.", task=task)[1] == 1.0
    assert play(env, "<think>Ulm</think>Rhine", task=task)[1] == 0.0
    assert play(env, Action("River Ulm", stop_reason=StopReason.LENGTH), task=task)[1] == 1.0
    env.reset(options={"task": task})
    asked, answer = env.gold(env.task)
    assert '{"query": "Which river?"}' in asked
    assert answer == "<answer>River Ulm</answer>"


def test_odd_texts_never_raise_as_answers_and_as_queries():
    env = make_env(ENV_ID, engine="fts5", answer_format="line")
    terminated = True
    for index, text in enumerate(odd_texts(150)):
        if terminated:
            env.reset(seed=index)
        heard, _, terminated, _, info = env.step(search(text))
        assert heard or terminated, "a text with marks of its own may be no call"
        if not terminated:
            _, _, terminated, _, info = env.step(text)
        assert "unscored" not in info


def test_many_episodes_share_the_index():
    async def one(number):
        env = make_env(ENV_ID, split="test")
        await env.areset(seed=number, options={"task": number})
        for action in env.gold(env.task):
            outcome = await env.astep(action)
        return outcome.reward

    async def every():
        return await asyncio.gather(*(one(number) for number in range(200)))

    assert set(asyncio.run(every())) == {1.0}


def test_an_environment_survives_pickle():
    env = make_env(ENV_ID)
    env.reset(seed=0, options={"task": 0})
    first, *rest = env.gold(env.task)
    env.step(first)
    data = pickle.dumps(env)
    assert len(data) < 100_000
    twin = pickle.loads(data)
    assert [twin.step(action)[1] for action in rest] == [0.0, 1.0]


def test_gymnasium_checks_pass():
    check_env(gymnasium.make(ENV_ID, render_mode="ansi").unwrapped)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"hops": 4}, "hops must be from 1 to 3, got 4"),
        ({"distractors": 5}, "distractors must be from 0 to 4"),
        ({"top_k": 0}, "top_k must be from 1 to 20"),
        ({"snippet_chars": 10}, "snippet_chars must be from 80"),
        ({"engine": "tantiv"}, "Did you mean 'tantivy'"),
        ({"answer_format": "tags"}, "Did you mean 'tag'"),
        ({"f1_weight": float("nan")}, "weight of f1"),
        ({"corpus": "x.jsonl"}, "corpus needs path"),
        ({"path": "x.json", "hops": 3}, "hops shape generated questions"),
    ],
)
def test_options_that_do_not_fit_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


# Files of questions

HOTPOT = {
    "_id": "h1",
    "question": "Where was the author of Dust born?",
    "answer": "Ulm",
    "type": "bridge",
    "supporting_facts": [["Dust", 0], ["Ada Roe", 1], ["Dust", 2]],
    "context": [
        ["Dust", ["Dust is a novel.", " Ada Roe wrote it."]],
        ["Ada Roe", ["Ada Roe writes.", " She is from Ulm."]],
    ],
}
MUSIQUE = {
    "id": "m1", "question": "Who runs Ulm?", "answer": "Bo Lind", "answer_aliases": ["B. Lind"],
    "paragraphs": [
        {"idx": 0, "title": "Bo Lind", "paragraph_text": "Bo Lind is mayor.", "is_supporting": True},
        {"idx": 1, "title": "Ulm", "paragraph_text": "Ulm is a city.", "is_supporting": True},
    ],
    "question_decomposition": [{"paragraph_support_idx": 1}, {"paragraph_support_idx": 0}],
}  # fmt: skip
CORPUS = {"title": "Paris", "text": "Paris is the capital of France."}


def write(path, rows):
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_hotpotqa_and_musique_rows_bring_their_paragraphs(tmp_path):
    path = write(tmp_path / "q.json", [HOTPOT, MUSIQUE])
    tasks, corpus = load_questions(path, "train", divide=False)
    assert [task.task_id for task in tasks] == ["h1", "m1"]
    assert tasks[0].data == {
        "question": HOTPOT["question"],
        "answers": ["Ulm"],
        "titles": ["Dust", "Ada Roe"],
    }
    assert tasks[1]["titles"] == ["Ulm", "Bo Lind"]
    assert tasks[1]["answers"] == ["Bo Lind", "B. Lind"]
    assert corpus.titles == ("Dust", "Ada Roe", "Bo Lind", "Ulm")
    assert corpus.texts[1] == "Ada Roe writes. She is from Ulm."
    env = make_env(ENV_ID, path=path, divide=False, engine="fts5")
    assert play(env, *gold_of(env), task="h1")[1] == 1.0


def test_a_folder_holds_questions_and_corpus(tmp_path):
    write(tmp_path / "questions.json", {"data": [HOTPOT]})
    write(tmp_path / "corpus.jsonl", CORPUS)
    assert load_questions(tmp_path, "train", divide=False)[1].titles == ("Paris",)
    other = write(tmp_path / "other.jsonl", {"contents": '"Rome"\nRome is old.'})
    assert load_questions(tmp_path, "train", corpus=other, divide=False)[1].titles == ("Rome",)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Capital of France?", "golden_answers": ["Paris", "paris"]},
        {"prompt": [{"role": "user", "content": "Answer it. Question: Capital of France?\n"}],
         "reward_model": {"style": "rule", "ground_truth": {"target": ["Paris", "paris"]}}},
        {"prompt": "Capital of France?", "reward_model": {"ground_truth": "Paris"}},
        {"extra_info": {"question": "Capital of France?"}, "prompt": "long", "answers": ["Paris"]},
        {"prompt": "Capital of France?", "answer": "Paris", "unknown": 3},
    ],
)  # fmt: skip
def test_parquet_with_prompt_and_answer(tmp_path, row):
    pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "train.parquet")
    write(tmp_path / "corpus.jsonl", CORPUS)
    env = make_env(ENV_ID, path=tmp_path / "{split}.parquet", corpus=tmp_path / "corpus.jsonl", engine="fts5")
    assert env.taskset[1]["question"] == "Capital of France?"
    assert env.taskset[1]["answers"][0] == "Paris"
    assert "Paris is the capital" in play(env, search("France"))[0]
    assert play(env, "<answer>PARIS.</answer>", task=1)[1] == 1.0


def test_json_lines_may_hold_any_character(tmp_path):
    rows = [{"question": "a\u2028b\x85c?", "answer": "d", "context": [["t", ["x"]]]}, HOTPOT]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", encoding="utf-8")
    tasks, corpus = load_questions(path, "train", divide=False)
    assert [task["question"] for task in tasks] == ["a\u2028b\x85c?", HOTPOT["question"]]
    assert corpus.titles == ("t", "Dust", "Ada Roe")
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="is not JSON in UTF-8"):
        load_questions(path, "train")


def test_a_path_is_divided_unless_told_otherwise(tmp_path):
    rows = [{**HOTPOT, "_id": str(i), "question": f"Question {i}?"} for i in range(200)]
    path = write(tmp_path / "q.json", [*rows, *rows])
    train, test = (
        {task["question"] for task in load_questions(path, split)[0]} for split in ("train", "test")
    )
    assert not train & test
    assert len(train) + len(test) == 200
    assert 5 < len(test) < 40
    assert len(load_questions(path, "test", divide=False)[0]) == 400


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.json", "{", "is not JSON in UTF-8"),
        ("q.json", '{"a": 1}', "must hold a list of questions"),
        ("q.json", "[]", "holds no rows"),
        (
            "q.json",
            '[{"query": "x", "label": 1}]',
            r"row 0 of .* lacks a question .* found were \['label', 'query'\]",
        ),
        ("q.json", '[{"question": "x", "answer": " "}]', "row 0 of .* lacks"),
        ("q.json", "[3]", "row 0 of .* is not in a known layout"),
        (
            "q.json",
            '[{"question": "x", "answer": "y", "context": [["t"]]}]',
            "row 0 of .* is not in a known layout",
        ),
        ("q.json", '[{"question": "x", "answer": "y"}]', "come without paragraphs"),
        ("q.parquet", "no", "cannot be read as Parquet"),
        ("q.csv", "no", "must end in .json, .jsonl or .parquet"),
    ],
)
def test_broken_files_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        load_questions(tmp_path / name, "train", divide=False)


def test_missing_files_and_columns_are_named(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        load_questions(tmp_path / "none.json", "train")
    with pytest.raises(DataError, match=r"holds none of questions\.json"):
        load_questions(tmp_path, "train")
    pq.write_table(pa.table({"query": ["x"], "label": [1]}), tmp_path / "q.parquet")
    with pytest.raises(DataError, match=r"found were \['query', 'label'\]"):
        load_questions(tmp_path / "q.parquet", "train")


@needs_real
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "size"), [("hotpotqa", 994), ("musique", 1_890)])
def test_real_rows_play(name, size, engine):
    env = make_env(ENV_ID, path=REAL / name, divide=False, engine=engine, top_k=5)
    assert len(env.taskset) == 100
    assert len(env.corpus) == size
    assert len(load_questions(REAL / name / "questions.json", "train", divide=False)[1]) >= size
    found = []
    for index in range(100):
        *searches, answer = gold_of(env, index)
        observations = [env.step(action)[0] for action in searches]
        found += [
            f"] {title}\n" in heard for title, heard in zip(env.task["titles"], observations, strict=False)
        ]
        assert env.step(answer)[1] == 1.0
    assert statistics.mean(found) > 0.9


# The scripted player


def test_success_of_the_scripted_player_falls_with_hops():
    one, two, three = (success(hops=hops) for hops in (1, 2, 3))
    assert one > 0.8
    assert one > two > three
    assert three < 0.5
