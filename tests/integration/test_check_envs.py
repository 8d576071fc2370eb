"""The list of players in benchmarks/check_envs.py covers every environment."""

from __future__ import annotations

import runpy
from pathlib import Path

from hyperrl.envs import env_ids, make_env
from hyperrl.envs.baseline import find_baseline

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "check_envs.py"


def test_every_environment_has_a_scripted_player_that_can_be_made_worse():
    levels = runpy.run_path(str(SCRIPT), run_name="check_envs")["BASELINES"]
    ours = [env_id for env_id in env_ids() if env_id.startswith("hyperrl/")]
    assert sorted(levels) == sorted(ours)
    for env_id, (option, values) in levels.items():
        for value in values:
            env = make_env(env_id, **{option: value})
            assert callable(find_baseline(env))
            env.close()
