"""The command line as a person uses it: real processes, exit codes, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hyperrl.store import read_trajectories
from hyperrl.train.config import dump_config

HYPERRL = [sys.executable, "-m", "hyperrl.cli"]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [*HYPERRL, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        cwd=cwd,
    )


@pytest.fixture
def config_file(make_run, tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(make_run()), encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["envs", "check", "rollout", "eval", "sft", "train", "models"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    overview = run("--help").stdout
    assert command in overview
    assert "Exit codes" in overview
    helped = run(command, "--help") if command != "models" else run("models", "fetch", "--help")
    assert helped.returncode == 0
    assert "Example: hyperrl" in helped.stdout


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys\n"
        "from hyperrl.cli import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_train_eval_and_rollout_from_one_config(config_file: Path, tmp_path: Path) -> None:
    trained = run("train", str(config_file))
    assert trained.returncode == 0, trained.stderr
    assert "held-out success" in trained.stdout
    assert "training" in trained.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))

    model = str(tmp_path / "run" / "model")
    evaluated = run("eval", str(config_file), "--model", model, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout.splitlines()[-1])["validation/sampled_success"] == summary["after"]
    again = run("eval", str(tmp_path / "run"), "--json")
    assert again.returncode == 0, again.stderr
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    *_, last = (row for line in lines if "validation/tasks" in (row := json.loads(line)))
    found = json.loads(again.stdout.splitlines()[-1])
    assert len(found) > 10
    assert {name: last[name] for name in found if name != "policy/version"} == {
        name: value for name, value in found.items() if name != "policy/version"
    }

    out = tmp_path / "episodes"
    played = run("rollout", str(config_file), "--set", "rollout.groups=2", "--out", str(out))
    assert played.returncode == 0, played.stderr
    assert "total reward" in played.stdout
    assert len(list(read_trajectories(out))) == 8


def test_a_rollout_needs_no_config(tiny_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    options = ["--model", str(tiny_model), "--program", "client_agent:run"]
    played = run(
        "rollout",
        *["--env", "gsm8k", "--env-arg", "format_weight=0.5", *options],
        *["--set", "rollout.max_tokens=16", "--out", str(tmp_path / "kept")],
        cwd=Path(__file__).parent,
    )
    assert played.returncode == 0, played.stderr
    kept = list(read_trajectories(tmp_path / "kept"))
    assert {(t.env_id, t.program, t.env_kwargs["format_weight"]) for t in kept} == {
        ("hyperrl/GSM8K-v0", "client_agent:run", 0.5)
    }
    assert len(kept) == 2
    for arguments, message in (
        ([], "--env and --model must say what is played"),
        (["--env", "gsm8k"], "--model must say"),
        (["--env", "gsm9k", "--model", str(tiny_model)], "no environment 'gsm9k'"),
        (["--env", "gsm8k", "--model", str(tiny_model), "--program", "codx"], "Did you mean 'codex'"),
    ):
        refused = run("rollout", *arguments)
        assert refused.returncode == 2
        assert message in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "rollout.grups=3"], "Did you mean 'rollout.groups'"),
        (["--set", "rollout.group_size=1"], "give it at least 2"),
        (["--set", "optimizer.lr=fast"], "optimizer.lr = 'fast'"),
        (["--set", "model.path=nowhere"], "nowhere"),
        (["--set", "nonsense"], "section.name=value"),
    ],
)
def test_bad_input_exits_with_2_and_says_what_to_do(
    config_file: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = run("train", str(config_file), *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_model_is_not_evaluated(config_file: Path) -> None:
    result = run("eval", str(config_file.parent))
    assert result.returncode == 2
    assert "has left no model/" in result.stderr


def test_a_missing_config_is_named() -> None:
    result = run("train", "no-such.yaml")
    assert result.returncode == 2
    assert "no-such.yaml" in result.stderr


def test_train_check_writes_nothing(config_file: Path, tmp_path: Path) -> None:
    result = run("train", str(config_file), "--check")
    assert result.returncode == 0, result.stderr
    assert "ready to train" in result.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_training_cleanly_and_says_where_things_lie(
    config_file: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    arguments = ["train", str(config_file), "--set", "iterations=100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*HYPERRL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text(encoding="utf-8").count("\n") >= 3):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert "stopped before the end" in errors
    assert str(tmp_path / "run") in errors
    assert "Traceback" not in errors
    assert list(read_trajectories(tmp_path / "run" / "trajectories"))
    again = run("train", str(config_file), "--set", "run.overwrite=true")
    assert again.returncode == 0, again.stderr


def test_a_full_disk_ends_training_with_a_message(config_file: Path, tmp_path: Path) -> None:
    limited = ["bash", "-c", 'ulimit -f 8 && exec "$@"', "-", *HYPERRL, "train", str(config_file)]
    result = subprocess.run(limited, check=False, capture_output=True, text=True, timeout=240)
    assert result.returncode == 1
    assert "too large" in result.stderr
    assert f"{tmp_path / 'run'} keeps config.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_envs_lists_ours_and_check_is_green() -> None:
    listed = run("envs", "--json")
    ids = [json.loads(line)["id"] for line in listed.stdout.splitlines()]
    assert {"hyperrl/GSM8K-v0", "hyperrl/ReverseText-v0", "hyperrl/SortDigits-v0"} <= set(ids)
    checked = run("check", "hyperrl/GSM8K-v0", "--env-arg", "mode=calculator", "--json")
    assert checked.returncode == 0, checked.stdout
    assert json.loads(checked.stdout)["ok"] is True


def test_check_of_an_unknown_environment_offers_the_nearest() -> None:
    result = run("check", "hyperrl/SortDigit-v0")
    assert result.returncode == 2
    assert "Did you mean 'hyperrl/SortDigits-v0'" in result.stderr


def test_models_init_refuses_to_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "tiny"
    assert run("models", "init", str(path)).returncode == 0
    assert (path / "model.safetensors").exists()
    refused = run("models", "init", str(path))
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert run("models", "init", str(path), "--overwrite").returncode == 0


def test_fetching_an_unknown_model_names_the_known(tmp_path: Path) -> None:
    result = run("models", "fetch", "smolm2-135m", "--cache", str(tmp_path))
    assert result.returncode == 2
    assert "smollm2-135m" in result.stderr


def test_environments_of_the_working_directory_are_found(tmp_path: Path) -> None:
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium\n"
        "from hyperrl.envs import TextEnv, reward\n"
        "class Parrot(TextEnv):\n"
        "    'Guess a word.'\n"
        "    splits = ('train',)\n"
        "    def tasks(self):\n        return [{'word': 'polly'}, {'word': 'cracker'}]\n"
        "    def start(self, task):\n        return f'The word has {len(task[\"word\"])} letters.'\n"
        "    @reward\n"
        "    def same(self, task, answer):\n        return answer == task['word']\n"
        "    def gold(self, task):\n        return task['word']\n"
        "gymnasium.register('my/Parrot-v0', entry_point=Parrot)\n"
    )
    program = [sys.executable, "-P", "-m", "hyperrl.cli"]  # -P: like an installed script
    found = [
        subprocess.run([*program, "check", name], cwd=tmp_path, check=False, capture_output=True, text=True)
        for name in ("my_envs:my/Parrot-v0", "my_envs:my/Parot-v0", "your_envs:my/Parrot-v0", "my/Parrot-v0")
    ]
    assert [one.returncode for one in found] == [0, 2, 2, 2], found[0].stdout + found[0].stderr
    assert "Did you mean 'my/Parrot-v0'?" in found[1].stderr
    assert "'your_envs' of the environment" in found[2].stderr
    assert "is named with its module" in found[3].stderr
