"""The wheel without extras, in an environment that holds nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from source_tree import ROOT

pytestmark = pytest.mark.slow

TEST_TOOLS = ["hypothesis", "pytest", "pytest-timeout"]

PLAY = """
import importlib.util

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
print(hyperrl.__file__)
"""


def run(*command: object, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, cwd=folder)
    [path] = folder.glob("*.whl")
    return path


def make_slim_environment(folder: Path, wheel: Path) -> Path:
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, *TEST_TOOLS, cwd=folder)
    return python


def test_the_wheel_holds_the_packages_and_their_data(tmp_path):
    names = zipfile.ZipFile(build_wheel(tmp_path)).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"hyperrl", "hyperrl_tasks"}
    assert "hyperrl/py.typed" in names
    data = ROOT / "tasks" / "hyperrl_tasks"
    wanted = [path for path in data.glob("*/data/*") if path.is_file()]
    assert {str(path.relative_to(data.parent)) for path in wanted} <= set(names)
    templates = (ROOT / "hyperrl").rglob("*.tmpl")
    assert {str(path.relative_to(ROOT)) for path in templates} <= set(names)


@pytest.mark.timeout(600)
def test_the_wheel_without_extras_plays_and_says_what_is_missing(tmp_path):
    # One test, so that the environment is made once however the suite is spread over workers.
    python = make_slim_environment(tmp_path / "venv", build_wheel(tmp_path))
    check_an_episode(python, tmp_path)
    check_the_environment_tests(python, tmp_path)
    check_extra_is_named(python, "agents", "-c", "import hyperrl.agents.rendering.template")
    check_extra_is_named(python, "agents", "-m", "hyperrl.cli", "template", ROOT)
    train = ["-m", "hyperrl.cli", "train", ROOT / "configs" / "quickstart.yaml"]
    check_extra_is_named(python, "train", *train)


def check_an_episode(python: Path, folder: Path) -> None:
    where = run(python, "-W", "error::DeprecationWarning:hyperrl", "-c", PLAY, cwd=folder)
    assert Path(where.strip()).is_relative_to(python.parent.parent)


def check_the_environment_tests(python: Path, folder: Path) -> None:
    for name in ("tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    suites = [folder / "tests" / "unit" / name for name in ("envs", "tasks")]
    report = run(
        python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *suites, cwd=folder
    )
    assert " passed" in report.splitlines()[-1]


def check_extra_is_named(python: Path, extra: str, *arguments: object) -> None:
    command = [str(part) for part in (python, *arguments)]
    done = subprocess.run(command, cwd=python.parent, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    shown = " ".join((done.stdout + done.stderr).split())
    assert f"pip install 'hyperrl[{extra}]'" in shown, shown
