"""The generator that is made when it is first asked for draws what one made at once would."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding

import hyperrl.envs
from hyperrl.envs import TextEnv, reward


class Plain(TextEnv):
    def tasks(self):
        return [{"text": str(i)} for i in range(7)]

    def start(self, task):
        return task["text"]

    @reward
    def fine(self) -> float:
        return 1.0


class Drawing(Plain):
    def start(self, task, rng):
        return f"{task['text']} {rng.integers(1000)}"


def expected(seed: int, tasks: int = 7) -> np.random.Generator:
    generator, _ = seeding.np_random(seed)
    generator.integers(tasks)
    return generator


@pytest.mark.parametrize("options", [None, {"task": 3}])
@pytest.mark.parametrize("make", [Plain, Drawing])
def test_the_state_is_that_of_a_generator_made_at_once(make, options):
    env = make()
    env.reset(seed=11, options=options)
    wanted = expected(11)
    if make is Drawing:
        wanted.integers(1000)
    assert env.np_random_seed == 11
    assert env.np_random.bit_generator.state == wanted.bit_generator.state


def test_a_reset_without_a_seed_goes_on_with_the_generator():
    env = Plain()
    env.reset(seed=5, options={"task": 0})
    env.reset(options={"task": 1})
    wanted = expected(5)
    wanted.integers(7)
    assert env.np_random.bit_generator.state == wanted.bit_generator.state


def test_copies_go_on_from_the_same_state_without_sharing_it():
    env = Drawing()
    env.reset(seed=5, options={"task": 0})
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    drawn = [each.np_random.integers(10**9) for each in (env, *copies)]
    assert len(set(drawn)) == 1


def test_a_generator_may_be_given_and_a_wrong_seed_is_refused():
    env = Plain()
    env.np_random = np.random.default_rng(3)
    assert env.np_random.integers(100) == np.random.default_rng(3).integers(100)
    with pytest.raises(gymnasium.error.Error):
        env.reset(seed=-1)


def test_spaces_are_made_once_and_each_instance_has_its_own():
    first, second = Plain(), Plain()
    assert first.action_space is first.action_space
    assert first.action_space is not second.action_space
    assert first.observation_space == second.observation_space == hyperrl.envs.Unicode()
