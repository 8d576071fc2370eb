from __future__ import annotations

import subprocess
import sys

import gymnasium
import pytest
import text_envs
from gymnasium.envs.registration import WrapperSpec

import hyperrl
from hyperrl.envs import env_ids, make_env, registration
from hyperrl.errors import ConfigError, EnvError


def test_make_env_gives_the_bare_environment_and_its_turn_limit():
    env = make_env("HyperrlTest/Guess-v0")
    assert type(env) is text_envs.Guess
    assert env.max_episode_steps is None
    assert make_env("HyperrlTest/Guess-v0", max_episode_steps=5).max_episode_steps == 5
    assert make_env("HyperrlTest/Guess-v0", split="test").split == "test"
    assert make_env("hyperrl:hyperrl/GSM8K-v0").max_episode_steps == 8


def test_an_unknown_environment_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'hyperrl/SortDigit-v0'.*Did you mean 'hyperrl/SortDigits-v0'"):
        make_env("hyperrl/SortDigit-v0")
    with pytest.raises(
        ConfigError, match=r"after importing 'text_envs' \(.*text_envs.py\).*mean 'HyperrlTest/Guess-v0'"
    ):
        make_env("text_envs:HyperrlTest/Gues-v0")
    with pytest.raises(ConfigError, match=r"'countdwn'.*Did you mean 'hyperrl/Countdown-v0'"):
        make_env("countdwn")


@pytest.mark.parametrize("name", ["countdown", "Countdown", "Countdown-v0", "hyperrl/Countdown-v0"])
def test_a_short_name_means_its_environment(name):
    assert registration.find_env_id(name) == "hyperrl/Countdown-v0"


@pytest.mark.parametrize(
    "name", ["", "count", "my_module:countdown", "mine/Countdown-v0", "hyperrl/Countdown-v1"]
)
def test_what_means_no_environment_stays(name):
    assert registration.find_env_id(name) == name


def test_an_option_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no option 'number', only numbers, .* Did you mean 'numbers'"):
        make_env("hyperrl/Countdown-v0", number=3)


def test_a_module_that_cannot_be_imported_is_named_with_the_reason():
    with pytest.raises(ConfigError, match=r"'no_such_module' of .* cannot be imported: No module named"):
        make_env("no_such_module:X-v0")


def test_other_wrappers_are_refused_by_name():
    wrapper = WrapperSpec("Stats", "gymnasium.wrappers:RecordEpisodeStatistics", {})
    env_id = "HyperrlTest/Wrapped-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point=text_envs.Sums, additional_wrappers=(wrapper,))
    with pytest.raises(EnvError, match="wears the wrapper RecordEpisodeStatistics"):
        make_env(env_id)


def test_other_environments_are_refused():
    with pytest.raises(EnvError, match="is a CartPoleEnv; a rollout plays subclasses of TextEnv"):
        make_env("CartPole-v1")


def test_registering_twice_is_quiet(recwarn):
    registration.register_all()
    assert not recwarn.list


def test_installed_packages_publish_environments(tmp_path, monkeypatch, caplog):
    (tmp_path / "strangers_envs.py").write_text(
        "import gymnasium\ngymnasium.register('Stranger/Thing-v0', entry_point='text_envs:Sums')\n"
    )
    (tmp_path / "broken_envs.py").write_text("raise RuntimeError('broken package')\n")
    info = tmp_path / "strangers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hyperrl.envs]\nbroken = broken_envs\nthing = strangers_envs\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert registration.load_entry_points() == ("Stranger/Thing-v0",)
        assert "Stranger/Thing-v0" in env_ids()
        assert (
            "broken_envs cannot be loaded: RuntimeError: broken package (broken_envs.py, line 1"
            in caplog.text
        )
        assert make_env("Stranger/Thing-v0").reset(seed=0)[1]["task_id"].startswith("1-")
    finally:
        gymnasium.registry.pop("Stranger/Thing-v0", None)
        registration._OTHERS.discard("Stranger/Thing-v0")


def test_importing_hyperrl_is_cheap_and_loads_nothing_heavy():
    program = (
        "import sys, time, gymnasium\n"
        "start = time.process_time()\n"
        "import hyperrl, hyperrl.envs\n"
        "spent = time.process_time() - start\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'pydantic', 'starlette', 'wandb', 'hyperrl_tasks'}\n"
        "print(spent < 0.3, heavy & set(sys.modules), 'hyperrl/GSM8K-v0' in gymnasium.registry)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True set() True"


@pytest.mark.parametrize("module", [hyperrl, hyperrl.envs])
def test_every_public_name_exists_and_no_other(module):
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name[0].isupper(), name))
    assert all(hasattr(module, name) for name in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = module.no_such_name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./games.py:my/Game-v0", r"names no module but './games.py': go to the folder .* games:my/Game-v0$"),
        ("src/games:my/Game-v0", "names no module but 'src/games'"),
        ("games.py", "'games:my/Env-v0'"),
        ("games", "'my_module:my/Env-v0'"),
    ],
)
def test_a_file_is_named_by_its_module(name, message):
    with pytest.raises(ConfigError, match=message):
        make_env(name)


def test_an_option_of_another_type_is_named():
    with pytest.raises(ConfigError, match=r"numbers must be of the type int, got 'x'$"):
        make_env("hyperrl/Countdown-v0", numbers="x")
    with pytest.raises(ConfigError, match=r"numbers must be of the type int, got None$"):
        make_env("hyperrl/Countdown-v0", numbers=None)
