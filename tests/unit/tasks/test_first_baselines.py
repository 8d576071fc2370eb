"""The scripted players of the three first environments: harder tasks, fewer successes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hyperrl.envs import make_env
from hyperrl.envs.baseline import find_baseline
from hyperrl.errors import ConfigError

LEVELS = {
    "hyperrl/SortDigits-v0": [{"digits": digits} for digits in (4, 6, 10)],
    "hyperrl/ReverseText-v0": [{"letters": letters} for letters in (3, 10, 30)],
    "hyperrl/GSM8K-v0": [{"steps": [2, 2]}, {"steps": [3, 9]}],
}


def success(env_id, episodes, **options):
    env = make_env(env_id, split="train", **options)
    play, rng = find_baseline(env), np.random.default_rng(0)
    scores = []
    for index in range(episodes):
        env.reset(seed=index, options={"task": index % len(env.taskset)})
        scores.append(env.step(play(env.messages, rng))[1])
    return float(np.mean(scores))


@pytest.mark.parametrize("env_id", LEVELS)
def test_success_falls_with_difficulty(env_id):
    rates = [success(env_id, 240, **options) for options in LEVELS[env_id]]
    assert all(harder < easier - 0.1 for easier, harder in pairwise(rates))


def test_steps_choose_problems_of_gsm8k():
    counts = [len(make_env("hyperrl/GSM8K-v0", steps=steps).taskset) for steps in ([2, 2], [3, 3], [4, 9])]
    assert sum(counts) == len(make_env("hyperrl/GSM8K-v0").taskset) == 200
    with pytest.raises(ConfigError, match="smallest and the largest"):
        make_env("hyperrl/GSM8K-v0", steps=[3, 2])
    with pytest.raises(ConfigError, match="takes 40 to 50 steps"):
        make_env("hyperrl/GSM8K-v0", steps=[40, 50])
