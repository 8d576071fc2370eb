"""SortDigits and ReverseText: tasks, splits, rewards."""

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import make_env
from hyperrl.errors import ConfigError
from hyperrl_tasks.splits import split_of

IDS = ["hyperrl/SortDigits-v0", "hyperrl/ReverseText-v0"]
FIELD = {IDS[0]: "digits", IDS[1]: "text"}
SOLVE = {IDS[0]: lambda text: "".join(sorted(text)), IDS[1]: lambda text: text[::-1]}


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_gold_scores_one_and_everything_else_zero(env_id, split):
    env = make_env(env_id, split=split)
    for index in range(50):

        def score(action, index=index):
            env.reset(options={"task": index})
            _, reward, terminated, truncated, info = env.step(action)
            assert terminated
            assert not truncated
            assert list(info["reward_terms"].values()) == [reward]
            return reward

        gold = env.gold(env.taskset[index])
        assert score(gold) == 1.0
        assert score(f" {gold}\n") == 1.0
        assert score("") == 0.0
        assert score(gold[:-1]) == 0.0
        assert score(gold[::-1]) == 0.0
        assert score(f"It is {gold}") == 0.0


@pytest.mark.parametrize("env_id", IDS)
def test_prompt_is_short_and_does_not_give_the_answer_away(env_id):
    env = make_env(env_id)
    for index in range(200):
        observation, _ = env.reset(options={"task": index})
        text = env.task[FIELD[env_id]]
        assert observation in {f"Sort: {text}", f"Reverse: {text}"}
        assert [message["role"] for message in observation.messages] == ["user"]
        assert env.gold(env.task) == SOLVE[env_id](text)
        assert env.gold(env.task) not in observation


@pytest.mark.parametrize("env_id", IDS)
def test_splits_are_large_and_never_overlap(env_id):
    instances = {}
    for split in ("train", "test"):
        taskset = make_env(env_id, split=split).taskset
        instances[split] = {taskset[index][FIELD[env_id]] for index in range(1_500)}
        assert len(instances[split]) >= 1_000
        assert {split_of(text) for text in instances[split]} == {split}
    assert not instances["train"] & instances["test"]


def test_about_a_tenth_is_held_out():
    held_out = sum(split_of(f"{number:06d}") == "test" for number in range(100_000))
    assert 9_500 < held_out < 10_500


@pytest.mark.parametrize("env_id", IDS)
def test_tasks_are_the_same_in_every_instance_and_other_for_another_seed(env_id):
    def texts(**kwargs):
        taskset = make_env(env_id, **kwargs).taskset
        return [taskset[index][FIELD[env_id]] for index in range(20)]

    assert texts() == texts()
    assert texts() != texts(taskset_seed=1)
    assert texts() != texts(split="test")


@pytest.mark.parametrize("env_id", IDS)
def test_seeded_episodes_are_reproducible(env_id):
    def observations():
        env = gymnasium.make(env_id)
        env.reset(seed=7)
        return [env.reset()[0] for _ in range(5)]

    assert observations() == observations()


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_checks_pass(env_id):
    check_env(gymnasium.make(env_id, render_mode="ansi").unwrapped)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        (IDS[0], {"digits": 3}, "digits must be from 4 to 64, got 3"),
        (IDS[0], {"taskset_seed": -1}, "taskset_seed"),
        (IDS[1], {"letters": 99}, "letters must be from 3 to 64, got 99"),
        (IDS[1], {"taskset_seed": -1}, "taskset_seed"),
        (IDS[1], {"alphabet": "abc"}, "at least 10 different characters, none of them blank, got 'abc'"),
        (IDS[1], {"alphabet": "abcdefghijj"}, "alphabet"),
        (IDS[1], {"alphabet": "abcdefghij "}, "alphabet"),
    ],
)
def test_options_out_of_range_are_refused(env_id, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(env_id, **kwargs)


def test_letters_come_from_the_alphabet():
    tasks = make_env(IDS[1], alphabet="ABCDEFGHIJ").taskset
    assert set("".join(tasks[index]["text"] for index in range(100))) == set("ABCDEFGHIJ")


def test_difficulty_options_change_the_length():
    assert len(make_env(IDS[0], digits=9).taskset[0]["digits"]) == 9
    assert len(make_env(IDS[1], letters=9).taskset[0]["text"]) == 9
    small = make_env(IDS[1], letters=3, split="test").taskset
    assert len({small[index]["text"] for index in range(len(small))}) >= 1_000
