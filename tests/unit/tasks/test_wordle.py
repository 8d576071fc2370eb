"""Wordle: words, splits, feedback, guesses, the scripted player."""

import statistics

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import Action, make_env
from hyperrl.envs.checker import odd_texts
from hyperrl.errors import ConfigError
from hyperrl.trajectory import StopReason
from hyperrl_tasks.wordle import baseline
from hyperrl_tasks.wordle.feedback import Mark, closeness, mark_guess, read_marks, write_marks
from hyperrl_tasks.wordle.guesses import read_guess, refuse_guess
from hyperrl_tasks.wordle.words import load_words

ENV_ID = "hyperrl/Wordle-v0"
SIGNS = {Mark.HERE: "G", Mark.ELSEWHERE: "y", Mark.ABSENT: "-", Mark.NO_MORE: "="}
FIVE = st.text(alphabet="abcde", min_size=5, max_size=5)


def signs(guess, word):
    return "".join(SIGNS[mark] for mark in mark_guess(guess, word))


def play(env, *guesses, word="crane"):
    """Return what the last step gave."""
    env.reset(seed=1, options={"task": {"word": word}})
    for guess in guesses:
        step = env.step(guess)
    return step


def success(episodes=60, **kwargs):
    """The share of words that the scripted player finds."""
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


# Words


def test_the_words_are_many_distinct_and_well_formed():
    words = load_words()
    assert len(words) >= 600
    assert list(words) == sorted(set(words))
    assert all(refuse_guess(word, known_words_only=True) is None and word.islower() for word in words)


def test_no_word_stands_in_what_the_game_says():
    """Else a prompt would hold the answer of some episode."""
    env = make_env(ENV_ID, hints=4)
    said = [env.reset(seed=0, options={"task": {"word": "zzzzz"}})[0], *Mark]
    said += [refuse_guess(guess, known_words_only=True) or "" for guess in ("", "a b", "abcdef", "zzzzz")]
    said += [make_env(ENV_ID, guesses=1).system_prompt]
    assert [word for word in load_words() if word in "\n".join(said).lower()] == []


def test_splits_share_no_word_and_hold_them_all():
    train, test = ({task["word"] for task in make_env(ENV_ID, split=s).taskset} for s in ("train", "test"))
    assert not train & test
    assert train | test == set(load_words())
    assert len(train) > 700
    assert len(test) > 80


# Feedback


@pytest.mark.parametrize(
    ("guess", "word", "expected"),
    [
        ("crane", "crane", "GGGGG"),
        ("slate", "crane", "--G-G"),
        ("nacre", "crane", "yyyyG"),
        ("eerie", "crane", "==y-G"),
        ("allow", "label", "yyy--"),
        ("level", "label", "G=-GG"),
        ("geese", "these", "-=GGG"),
        ("speed", "erase", "y-yy-"),
        ("eagle", "elect", "G--yy"),
        ("aaaaa", "banal", "=G=G="),
        ("otter", "tooth", "yyy--"),
        ("fuzzy", "crane", "-----"),
    ],
)
def test_repeated_letters_are_marked_as_often_as_the_word_has_them(guess, word, expected):
    assert signs(guess, word) == expected


@given(FIVE, FIVE)
def test_marks_say_how_many_letters_are_shared(guess, word):
    marks = mark_guess(guess, word)
    for letter in set(guess):
        told = [mark for mark, mine in zip(marks, guess, strict=True) if mine == letter]
        found = sum(mark in {Mark.HERE, Mark.ELSEWHERE} for mark in told)
        assert found == min(guess.count(letter), word.count(letter))
        assert (Mark.ABSENT in told) == (letter not in word)
    assert [mark is Mark.HERE for mark in marks] == [a == b for a, b in zip(guess, word, strict=True)]
    assert (closeness(marks) == 1.0) == (guess == word)


@given(FIVE, FIVE)
def test_what_is_written_is_read_back(guess, word):
    marks = mark_guess(guess, word)
    text = f"{write_marks(guess, marks)}\nGuess 2 of 6:"
    assert read_marks(text) == (guess, marks)


def test_a_text_without_feedback_holds_none():
    assert read_marks("There is no guess.\nGuess 2 of 6:") is None


# Guesses


@pytest.mark.parametrize(
    ("answer", "guess"),
    [
        ("crane", "crane"),
        (" Crane.\n", "crane"),
        ("**CRANE**", "crane"),
        ("[crane]", "crane"),
        ("[ crane ]", "crane"),
        ("Not [slate], so I try [crane]!", "crane"),
        ("ｃｒａｎｅ", "crane"),
        ("[_____]", ""),
        ("[]", "[]"),
        ("", ""),
    ],
)
def test_a_guess_is_read(answer, guess):
    assert read_guess(answer) == guess


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", "There is no guess."),
        ("[cranes]", "A guess has 5 letters; yours has 6."),
        ("cat", "A guess has 5 letters; yours has 3."),
        ("I guess crane", "one word with the letters a to z only"),
        ("[cr4ne]", "one word with the letters a to z only"),
        ("crâne", "one word with the letters a to z only"),
    ],
)
def test_an_invalid_guess_costs_a_turn_and_is_explained(answer, message):
    env = make_env(ENV_ID, guesses=2)
    observation, reward, terminated, _, _ = play(env, answer)
    assert message in observation
    assert observation.endswith("Guess 2 of 2:")
    assert (reward, terminated) == (0.0, False)
    assert env.step(answer)[1:3] == (0.0, True)


def test_only_known_words_where_that_is_asked_for():
    strict = make_env(ENV_ID, known_words_only=True)
    assert "'zzzzz' is not in the list of words." in play(strict, "zzzzz")[0]
    assert "1. z: not in the word" in play(make_env(ENV_ID), "zzzzz")[0]


# Episodes


def test_an_episode_as_it_is_read():
    env = make_env(ENV_ID, guesses=3)
    observation, _ = env.reset(seed=1, options={"task": {"word": "crane"}})
    system, user = observation.messages
    assert "you have 3 guesses" in system["content"]
    assert user["content"] == "Guess 1 of 3:"
    observation, reward, terminated, _, _ = env.step("I start with [eerie]")
    assert observation == (
        "1. e: no more of it in the word\n"
        "2. e: no more of it in the word\n"
        "3. r: in the word, other place\n"
        "4. i: not in the word\n"
        "5. e: right place\n"
        "Guess 2 of 3:"
    )
    assert (reward, terminated) == (0.0, False)
    assert env.step("[crane]")[:3] == ("", 1.0, True)


def test_the_guesses_run_out():
    env = make_env(ENV_ID)
    assert play(env, *["[slate]"] * 5)[2] is False
    assert env.step("[slate]")[:3] == ("", 0.0, True)
    assert play(env, *["[slate]"] * 5, "[crane]")[:3] == ("", 1.0, True)


def test_reasoning_is_no_guess():
    assert play(make_env(ENV_ID, guesses=1), "<think>[crane]</think>[slate]")[1] == 0.0


@pytest.mark.parametrize("split", ["train", "test"])
def test_gold_solves_every_word_and_is_never_told(split):
    env = make_env(ENV_ID, split=split, hints=2)
    for index in range(0, len(env.taskset), 7):
        observation, _ = env.reset(seed=index, options={"task": index})
        assert env.task["word"] not in observation
        *guesses, word = env.gold(env.task)
        assert len(guesses) < 6
        for guess in guesses:
            observation, reward, terminated, _, _ = env.step(guess)
            assert env.task["word"] not in observation
            assert (reward, terminated) == (0.0, False)
        assert env.step(word)[1:3] == (1.0, True)


def test_gold_guesses_fit_what_is_known_and_keep_the_limit():
    env = make_env(ENV_ID, guesses=3, hints=1)
    env.reset(seed=0, options={"task": {"word": "crane"}})
    place, letter = env.messages[-1]["content"].split()[2:5:2]
    gold = env.gold(env.task)
    assert 1 <= len(gold) <= 3
    assert gold[-1] == "[crane]"
    assert {guess[int(place)] for guess in gold} == {letter[0]}
    assert env.gold(env.task) == gold
    assert make_env(ENV_ID, guesses=1).gold(env.task) == ["[crane]"]


def test_hints_tell_letters_in_their_places_and_change_with_the_seed():
    env = make_env(ENV_ID, hints=2)
    seen = set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed, options={"task": {"word": "crane"}})
        *hints, _ = observation.messages[-1]["content"].splitlines()
        assert len(set(hints)) == 2
        places = [int(hint.split()[2]) for hint in hints]
        assert hints == [f"Hint: letter {place} is {'crane'[place - 1]}." for place in places]
        assert places == sorted(places)
        seen.add(tuple(places))
    assert len(seen) > 3


def test_progress_is_that_of_the_closest_guess_and_counts_with_a_weight():
    env = make_env(ENV_ID, guesses=3, progress_weight=0.5)
    _, reward, _, _, info = play(env, "[nacre]", "[cat]", "[slate]")
    assert info["reward_terms"] == {"solved": 0.0, "progress": 0.6}
    assert reward == pytest.approx(0.3)
    assert play(env, "[crane]")[1] == 1.5
    assert play(env, "", "", "")[4]["reward_terms"]["progress"] == 0.0
    cut = Action("[slate]", stop_reason=StopReason.LENGTH)
    assert play(env, cut)[4]["reward_terms"] == {"solved": 0.0, "progress": 0.4}


def test_odd_texts_never_raise():
    for options in ({}, {"known_words_only": True, "hints": 4, "guesses": 1}):
        env = make_env(ENV_ID, **options)
        terminated = True
        for index, text in enumerate(odd_texts(1_000)):
            if terminated:
                env.reset(seed=index)
            _, reward, terminated, _, info = env.step(text)
            assert reward == 0.0
            assert "unscored" not in info


def test_gymnasium_checks_pass():
    check_env(gymnasium.make(ENV_ID, render_mode="ansi").unwrapped)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"guesses": 0}, "guesses must be from 1 to 20, got 0"),
        ({"hints": 5}, "hints must be from 0 to 4, got 5"),
        ({"progress_weight": float("nan")}, "progress_weight"),
    ],
)
def test_options_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


@pytest.mark.parametrize("word", ["cranes", "CRANE", "cr ne", ""])
def test_a_given_word_is_checked(word):
    with pytest.raises(ConfigError, match="a word has 5 letters"):
        make_env(ENV_ID).reset(options={"task": {"word": word}})


# The scripted player


def test_success_of_the_scripted_player_falls_with_fewer_guesses_and_hints():
    many, some, few = success(guesses=6), success(guesses=4), success(guesses=2)
    assert many > 0.9
    assert many > some > few
    assert success(guesses=2, hints=2) > few + 0.1


def test_the_scripted_player_goes_on_where_no_word_fits():
    env = make_env(ENV_ID)
    env.reset(options={"task": {"word": "zzzzz"}})
    rng = np.random.default_rng(0)
    for _ in range(6):
        terminated = env.step(baseline(env.messages, rng))[2]
    assert terminated
