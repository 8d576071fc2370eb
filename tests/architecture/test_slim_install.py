"""The wheel without extras, in an environment that holds nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from source_tree import ROOT

# One worker runs them all, so that the environment is made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slim-install")]

TEST_TOOLS = ["hypothesis", "pytest", "pytest-timeout"]

PLAY = """
import importlib.util
import sys

import gymnasium as gym
import hyperrl

env = gym.make("hyperrl/GSM8K-v0")
observation, info = env.reset(seed=0)
assert observation in env.observation_space
gold = env.unwrapped.gold(env.unwrapped.tasks()[0])
env.reset(seed=0, options={"task": 0})
observation, reward, terminated, truncated, info = env.step(gold if isinstance(gold, str) else gold[-1])
assert (reward, terminated, truncated) == (1.0, True, False), (reward, terminated, truncated, info)

for name in ("torch", "transformers"):
    assert importlib.util.find_spec(name) is None, name
assert not hasattr(sys, "real_prefix")
print(hyperrl.__file__)
"""


def run(*command: object, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, cwd=folder)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def slim_python(tmp_path_factory, wheel) -> Path:
    folder = tmp_path_factory.mktemp("slim") / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, *TEST_TOOLS, cwd=folder)
    return python


def test_the_wheel_holds_the_packages_and_their_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"hyperrl", "hyperrl_tasks"}
    assert "hyperrl/py.typed" in names
    data = ROOT / "tasks" / "hyperrl_tasks"
    wanted = [path for path in data.glob("*/data/*") if path.is_file()]
    assert {str(path.relative_to(data.parent)) for path in wanted} <= set(names)


def test_an_episode_of_gsm8k_is_played_without_extras(slim_python, tmp_path):
    where = run(slim_python, "-W", "error::DeprecationWarning:hyperrl", "-c", PLAY, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(slim_python.parent.parent)


def test_the_environment_tests_pass_without_extras(slim_python, tmp_path):
    for folder in ("tests", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    suites = [tmp_path / "tests" / "unit" / name for name in ("envs", "tasks")]
    report = run(
        slim_python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *suites, cwd=tmp_path
    )
    assert " passed" in report.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["-c", "import hyperrl.agents.rendering.template"], "agents"),
        (["-m", "hyperrl.cli", "train", ROOT / "configs" / "quickstart.yaml"], "train"),
    ],
)
def test_what_needs_an_extra_names_the_command(slim_python, tmp_path, command, extra):
    done = subprocess.run([slim_python, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    shown = " ".join((done.stdout + done.stderr).split())
    assert f"pip install 'hyperrl[{extra}]'" in shown, shown
