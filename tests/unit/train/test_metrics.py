"""The table of metrics, its page, and the trackers."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hyperrl.errors import ConfigError
from hyperrl.train.metrics import METRICS, find_metric, metrics_page, reduce_metrics, summarise
from hyperrl.train.trackers import JsonlTracker, MetricsLogger

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_the_table():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page(), "run: python -m hyperrl.train.metrics > docs/metrics.md"


def test_every_row_is_complete_and_named_alike():
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[a-z]\w*(/[a-z]\w*)+(/<[a-z]+>)?", name), name
        assert metric.unit
        assert metric.meaning.endswith("."), name


def test_a_family_takes_any_word_but_no_path():
    assert find_metric("episodes/excluded/tool_timeout").name == "episodes/excluded/<kind>"
    for name in ("episodes/excluded/", "episodes/excluded/a/b", "episodes/excluded"):
        with pytest.raises(ConfigError):
            find_metric(name)


def test_an_unknown_name_is_refused_with_the_nearest_one_and_nothing_is_logged(tmp_path):
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    with MetricsLogger([tracker]) as logger, pytest.raises(ConfigError, match="mean 'actor/entropy'"):
        logger.log(1, {"actor/lr": 1.0, "actor/entropie": 2.0})
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_reductions():
    parts = [
        {"actor/pg_loss": 1.0, "actor/lr": 0.1, "actor/updates_applied": 1.0, "critic/rewards/max": 3.0},
        {"actor/pg_loss": 2.0, "actor/lr": 0.2, "actor/updates_applied": 1.0, "critic/rewards/max": 1.0},
        {"critic/rewards/min": 4.0},
    ]
    assert reduce_metrics(parts) == {
        "actor/pg_loss": 1.5,
        "actor/lr": 0.2,
        "actor/updates_applied": 2,
        "critic/rewards/max": 3,
        "critic/rewards/min": 4,
    }
    assert math.isnan(reduce_metrics([{"actor/pg_loss": math.nan}, {"actor/pg_loss": 1.0}])["actor/pg_loss"])


def test_summaries():
    assert summarise("critic/rewards", [1.0, 2.0, 6.0]) == {
        "critic/rewards/mean": 3,
        "critic/rewards/max": 6,
        "critic/rewards/min": 1,
    }
    assert summarise("critic/rewards", []) == {}


def test_jsonl_is_one_strict_object_a_line(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricsLogger([JsonlTracker(path)]) as logger:
        logger.log(1, {"actor/lr": 0.1, "actor/pg_loss": math.nan})
        logger.log(2, {"actor/lr": 1e-300})
    lines = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert lines == [{"step": 1, "actor/lr": 0.1, "actor/pg_loss": None}, {"step": 2, "actor/lr": 1e-300}]


def test_a_torn_line_is_ended_before_the_next(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "act')
    tracker = JsonlTracker(path)
    tracker.log(3, {"actor/lr": 0.5})
    tracker.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2, "act\n{"step": 3, "actor/lr": 0.5}\n'


def test_a_killed_process_loses_nothing_it_logged(tmp_path):
    path = tmp_path / "metrics.jsonl"
    code = (
        "import os, signal, sys; from pathlib import Path; from hyperrl.train.trackers import JsonlTracker\n"
        "tracker = JsonlTracker(Path(sys.argv[1]))\n"
        "for step in range(50): tracker.log(step, {'actor/lr': 0.5})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == list(range(50))
