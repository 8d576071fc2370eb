"""Evaluations of scripted players: figures, folders, going on after an end that was none."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eval_players
import pytest

from hyperrl.envs.baseline import find_baseline
from hyperrl.envs.registration import make_env
from hyperrl.errors import ConfigError, RolloutError, RunDirectoryError
from hyperrl.sampling import EpisodeKey
from hyperrl.store import TrajectoryWriter, read_trajectories
from hyperrl.train.config import make_config
from hyperrl.trajectory import Failure, Trajectory
from hyperrl.wiring.display import Silent
from hyperrl.wiring.eval_policies import ScriptedChoice
from hyperrl.wiring.evaluation import EvalReport, EvalSettings, run_evaluation

HERE = Path(__file__).parent


def settings(
    player: str, *, env: str = "hyperrl/SortDigits-v0", tasks: int = 6, **values: Any
) -> EvalSettings:
    config = make_config(
        {"env": {"id": env}, "evaluation": {"episodes": tasks}, "rollout": {"max_concurrent": 3}}
    )
    return EvalSettings(config=config, policy=ScriptedChoice(player), **values)


def evaluate(player: str, **values: Any) -> EvalReport:
    return run_evaluation(settings(player, **values), Silent())


def stored(folder: Path) -> dict[EpisodeKey, Trajectory]:
    found = list(read_trajectories(folder / "trajectories"))
    named = {EpisodeKey(t.group_id, t.sample_index): dataclasses.replace(t, timings={}) for t in found}
    assert len(named) == len(found), "no episode is there twice"
    return named


@pytest.fixture(autouse=True)
def no_stop() -> Iterator[None]:
    yield
    eval_players.STOP_AFTER.clear()


@pytest.mark.parametrize("env", ["hyperrl/SortDigits-v0", "hyperrl/GSM8K-v0", "hyperrl/Wordle-v0"])
def test_the_gold_reaches_every_task(env: str) -> None:
    figures = evaluate("gold", env=env, samples=2, ks=(1, 2)).figures
    assert figures.success.mean == figures.pass_at[2].mean == 1
    assert (figures.episodes, figures.scored, figures.success.tasks) == (12, 12, 6)


def test_an_environment_exposes_its_baseline_by_convention() -> None:
    report = evaluate("baseline", env="hyperrl/Countdown-v0", samples=4, ks=(1, 4))
    assert report.figures.pass_at[4].mean >= report.figures.pass_at[1].mean > 0
    with pytest.raises(ConfigError, match="comes with no scripted player: define 'def baseline"):
        find_baseline(make_env("graded_env:hyperrl-tests/Graded-v0"))


def test_an_episode_is_the_same_whenever_it_is_played(tmp_path: Path) -> None:
    evaluate("eval_players:drawing", samples=3, out=tmp_path / "a")
    evaluate("eval_players:waiting", samples=3, out=tmp_path / "b")
    evaluate("eval_players:drawing", samples=1, out=tmp_path / "c")
    first, second, fewer = (stored(tmp_path / name) for name in "abc")
    assert first == second
    assert fewer.items() <= first.items()
    said = {event.action for t in first.values() for event in t.events}
    assert len(said) > 3, "samples differ"


@pytest.mark.parametrize(
    ("player", "message"),
    [
        ("golden", "expected one of gold, baseline.*Did you mean 'gold'"),
        ("nowhere:play", "module 'nowhere' cannot be imported"),
        ("eval_players:drawin", "Did you mean 'drawing'"),
    ],
)
def test_a_player_that_is_not_there_is_named_before_anything_is_written(
    player: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(player, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_player_that_says_nothing_is_a_failure_and_no_zero() -> None:
    with pytest.raises(RolloutError, match="must return a str, got NoneType"):
        evaluate("eval_players:speechless")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"samples": 2, "ks": (1, 4)}, "pass@4 needs .* give --samples 4"),
        ({"resume": True}, "give --out"),
        ({"samples": 0}, "at least 1"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("gold", **values)


def test_a_folder_keeps_what_was_asked_played_and_found(tmp_path: Path) -> None:
    report = evaluate("eval_players:drawing", samples=2, out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "eval.lock",
        "evaluation.json",
        "summary.json",
        "trajectories",
    ]
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary == report.summary()
    assert summary["policy"] == {"kind": "scripted", "name": "eval_players:drawing"}
    assert list(stored(tmp_path)) == sorted(stored(tmp_path))
    assert all(turn.behavior_logprobs is None for t in stored(tmp_path).values() for turn in t.turns)


def test_it_goes_on_with_exactly_what_is_missing(tmp_path: Path) -> None:
    evaluate("eval_players:stopping", samples=4, out=tmp_path / "whole")
    eval_players.STOP_AFTER[:] = [10]
    with pytest.raises(ConfigError, match="stopped by the player"):
        evaluate("eval_players:stopping", samples=4, out=tmp_path / "cut")
    there = stored(tmp_path / "cut")
    assert 0 < len(there) <= 10
    eval_players.STOP_AFTER[:] = [24 - len(there)]
    report = evaluate("eval_players:stopping", samples=4, out=tmp_path / "cut", resume=True)
    assert eval_players.STOP_AFTER == [0], "no episode was played twice"
    assert report.resumed == len(there)
    assert stored(tmp_path / "cut") == stored(tmp_path / "whole")
    again = evaluate("eval_players:stopping", samples=4, out=tmp_path / "cut", resume=True)
    assert again.figures == report.figures
    assert again.resumed == 24


def test_failed_episodes_are_played_again(tmp_path: Path) -> None:
    evaluate("eval_players:drawing", samples=2, out=tmp_path)
    good = stored(tmp_path)
    key = min(good)
    failed = dataclasses.replace(
        good[key],
        reward_terms=(),
        failure=Failure(kind="endpoint_refused", stage="policy", reason="no server"),
    )
    TrajectoryWriter(tmp_path / "trajectories").write_part([*good.values(), failed][1:], iteration=0)
    report = evaluate("eval_players:drawing", samples=2, out=tmp_path, resume=True)
    assert report.resumed == 11
    assert stored(tmp_path) == good


def test_another_evaluation_is_not_gone_on_with(tmp_path: Path) -> None:
    evaluate("eval_players:drawing", out=tmp_path)
    with pytest.raises(RunDirectoryError, match="go on with the evaluation in it with --resume"):
        evaluate("eval_players:drawing", out=tmp_path)
    with pytest.raises(RunDirectoryError, match=r"\(temperature: 1\.0 there, 0\.5 here\)") as caught:
        evaluate("eval_players:drawing", out=tmp_path, resume=True, temperature=0.5)
    assert "samples" not in str(caught.value)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "file").touch()
    with pytest.raises(RunDirectoryError, match="holds no evaluation to go on with"):
        evaluate("eval_players:drawing", out=tmp_path / "strange", resume=True)


def test_a_task_whose_samples_are_compared_is_played_whole(tmp_path: Path) -> None:
    """A scorer sees all samples of a task, also where an earlier part had played some of them."""
    asked = settings("eval_players:drawing", samples=3, out=tmp_path)
    env = asked.config.env.model_copy(update={"scorers": ["eval_players:beats_the_others"]})
    asked = dataclasses.replace(asked, config=asked.config.model_copy(update={"env": env}))
    whole = run_evaluation(asked, Silent())
    good = stored(tmp_path)
    TrajectoryWriter(tmp_path / "trajectories").write_part(list(good.values())[1:], iteration=0)
    report = run_evaluation(dataclasses.replace(asked, resume=True), Silent())
    assert report.resumed == 15
    assert report.figures == whole.figures
    assert stored(tmp_path) == good


def command(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hyperrl.cli", "eval", *map(str, arguments)],
        cwd=HERE,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_killed_evaluation_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ("hyperrl/SortDigits-v0", "--policy", "eval_players:killing", "--tasks", 40, "--out", out)
    killed = command(*asked, "--concurrency", 2, env={"KILL_WITH_A_PART_IN": str(out / "trajectories")})
    assert killed.returncode == -signal.SIGKILL
    there = stored(out)
    assert 0 < len(there) < 40
    resumed = command(*asked, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert f"({len(there)} from before)" in resumed.stdout
    whole = command(*asked[:-1], tmp_path / "whole", "--json")
    lines = [json.loads(done.stdout.splitlines()[-1]) for done in (resumed, whole)]
    assert lines[0] == lines[1]
    assert stored(out) == stored(tmp_path / "whole")


def test_neither_torch_nor_transformers_are_loaded_for_scripts_and_endpoints() -> None:
    code = (
        "import sys\n"
        "from hyperrl.cli import main\n"
        "try:\n    main(['eval', 'hyperrl/SortDigits-v0', '--policy', 'gold', '--tasks', '2'])\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "import hyperrl.agents.endpoint\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'jinja2', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say who plays: --policy gold"),
        (("--policy", "gold", "--model", "m"), "leave out --model"),
        (("--endpoint", "http://127.0.0.1:1/v1"), "--endpoint needs --model"),
        (("--policy", "gold", "--k", "1;2"), "--k must be whole numbers"),
        (("--policy", "gold", "--split", "tset"), "Did you mean 'test'"),
        (("--policy", "gold", "--set", "run.seed=1"), "arguments are --env-arg"),
        (("--model", "m", "--retries", "1"), "belong to --endpoint"),
    ],
)
def test_options_that_do_not_fit_exit_with_2(arguments: tuple[str, ...], message: str) -> None:
    done = command("hyperrl/SortDigits-v0", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
