"""What every registered environment must hold, on gymnasium's face and on ours."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import RecordEpisodeStatistics

import hyperrl
from hyperrl.envs import Action, Observation, check_env_contract, env_ids, make_env

ENV_IDS = env_ids()


@pytest.fixture(params=ENV_IDS)
def env_id(request):
    return request.param


def test_our_environments_are_registered():
    assert set(ENV_IDS) >= {"hyperrl/SortDigits-v0", "hyperrl/ReverseText-v0", "hyperrl/GSM8K-v0"}
    assert hyperrl.env_ids() == ENV_IDS


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_promise_is_kept(env_id, split):
    report = check_env_contract(env_id, split=split)
    assert report.failures == ()
    assert [check.name for check in report.checks if check.status == "skip"] == []


def test_make_plays_an_episode_through_every_wrapper(env_id):
    env = RecordEpisodeStatistics(gymnasium.make(env_id))
    observation, info = env.reset(seed=1)
    assert type(observation) is Observation
    assert observation.messages
    assert set(info) == {"task_id"}
    gold = env.unwrapped.gold(env.unwrapped.task)
    for action in [gold] if isinstance(gold, str) else gold:
        _, reward, terminated, truncated, info = env.step(Action(action))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["episode"]["r"] == 1.0
    with pytest.raises(ResetNeeded):
        env.unwrapped.step("again")
    env.close()


@pytest.mark.parametrize(
    ("mode", "options"), [("sync", None), ("async", {"shared_memory": False})], ids=["sync", "async"]
)
def test_vector_environments_work(env_id, mode, options):
    envs = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode=mode, vector_kwargs=options)
    observations, infos = envs.reset(seed=[1, 2])
    singles = [gymnasium.make(env_id) for _ in range(2)]
    alone = [single.reset(seed=seed) for single, seed in zip(singles, (1, 2), strict=True)]
    assert list(observations) == [observation for observation, _ in alone]
    assert [o.messages for o in observations] == [observation.messages for observation, _ in alone]
    assert list(infos["task_id"]) == [info["task_id"] for _, info in alone]
    _, rewards, terminated, truncated, _ = envs.step(("", "\U0001f600"))
    assert list(rewards) == [0.0, 0.0]
    assert list(terminated) == [singles[0].step("")[2], singles[1].step("\U0001f600")[2]]
    assert not truncated.any()
    envs.close()


@pytest.mark.filterwarnings("ignore")  # gymnasium's half-made vector environment complains when it is dropped
def test_shared_memory_is_refused_clearly(env_id):
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec(env_id, num_envs=1, vectorization_mode="async")


def test_both_faces_agree(env_id):
    async def play():
        env = make_env(env_id)
        return [await env.areset(seed=9), await env.astep("7")]

    env = make_env(env_id)
    first, second = asyncio.run(play())
    assert env.reset(seed=9) == (first.observation, first.info)
    assert env.step("7") == (second.observation, second.reward, second.terminated, False, second.info)


def test_observations_survive_pickle_and_copy(env_id):
    observation, _ = make_env(env_id).reset(seed=2)
    for twin in (
        pickle.loads(pickle.dumps(observation)),
        copy.copy(observation),
        copy.deepcopy(observation),
    ):
        assert type(twin) is Observation
        assert (twin, twin.messages) == (observation, observation.messages)


def test_a_module_prefix_imports_us():
    program = (
        "import gymnasium, sys\n"
        "for env_id in sys.argv[1:]:\n"
        "    env = gymnasium.make('hyperrl:' + env_id)\n"
        "    env.reset(seed=1)\n"
        "    print(env_id, env.step('')[1], 'torch' in sys.modules)\n"
        "    env.close()"
    )
    command = [sys.executable, "-c", program, *ENV_IDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{env_id} 0.0 False" for env_id in ENV_IDS]
    assert done.stderr == ""
