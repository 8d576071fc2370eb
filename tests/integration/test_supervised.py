"""Supervised learning from files of conversations: what is learned, left out, held out and written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hyperrl.errors import DataError, NonFiniteError, RunDirectoryError
from hyperrl.train.models import load_model_info
from hyperrl.wiring.display import Silent
from hyperrl.wiring.lessons import read_lessons
from hyperrl.wiring.sft import run_warm_start


def chat(number: int) -> dict[str, Any]:
    answer = str(number % 7)
    return {
        "messages": [
            {"role": "user", "content": f"{number % 7}"},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "again"},
            {"role": "assistant", "content": answer * 2},
        ]
    }


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat(i)) + "\n" for i in range(40)), encoding="utf-8")
    return path


def make_sft(make_run, tiny_model: Path, tmp_path: Path, **sft: Any):
    return make_run(
        model={"path": str(tmp_path / "taught")}, sft={"start": str(tiny_model), "lr": 3e-3, **sft}
    )


def test_a_model_learns_conversations_and_keeps_the_numbers(
    make_run, tiny_model: Path, tmp_path: Path, chats: Path
) -> None:
    config = make_sft(
        make_run,
        tiny_model,
        tmp_path,
        data=str(chats),
        epochs=8,
        batch_size=10,
        validation=0.25,
        validation_every=10,
    )
    assert run_warm_start(config, Silent()) == tmp_path / "taught"
    lines = (tmp_path / "taught" / "sft-metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == list(range(25))
    assert [row["step"] for row in rows if "sft/validation_loss" in row] == [0, 10, 20, 24]
    assert [row["sft/epoch"] for row in rows[1:]] == [epoch for epoch in range(8) for _ in range(3)]
    summary = json.loads((tmp_path / "taught" / "sft-summary.json").read_text(encoding="utf-8"))
    assert summary["validation_loss_after"] < 0.7 * summary["validation_loss_before"]
    assert summary["steps"] == 24
    assert summary["conversations"] == 40
    assert summary["action_tokens"] == sum(row.get("sft/tokens", 0) for row in rows)
    assert load_model_info(tmp_path / "taught").context_length == 256
    assert not list(tmp_path.glob("*.sft-metrics.jsonl"))
    with pytest.raises(RunDirectoryError, match="exists already"):
        run_warm_start(config, Silent())


def test_what_is_too_long_or_refused_is_left_out_whole_and_counted(
    make_run, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [
        chat(1),
        {"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2" * 300}]},
        {"messages": [{"role": "user", "content": "1"}]},
        {
            "messages": [
                {"role": "user", "content": "1"},
                {"role": "narrator", "content": "2"},
                *chat(1)["messages"],
            ]
        },
        {"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2", "weight": 0}]},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chats.parquet")
    config = make_sft(make_run, tiny_model, tmp_path, data=str(tmp_path / "chats.parquet"))
    lessons = read_lessons(config, Silent())
    assert len(lessons.trajectories) == 1
    assert lessons.left_out == {"over 256 tokens": 1, "without an assistant message": 2, "refused": 1}
    assert "row 3: message 1 has the role 'narrator'" in lessons.describe()
    short = make_sft(make_run, tiny_model, tmp_path, data=str(tmp_path / "chats.parquet"), max_length=3)
    with pytest.raises(DataError, match=r"nothing to learn from: 0 conversations.*2 over 3 tokens"):
        read_lessons(short, Silent())


def test_the_same_seed_gives_the_same_model(make_run, tiny_model: Path, tmp_path: Path, chats: Path) -> None:
    weights = []
    for name in ("a", "b"):
        config = make_run(
            model={"path": str(tmp_path / name)},
            sft={"start": str(tiny_model), "data": str(chats), "steps": 3, "validation": 0.1},
        )
        weights.append((run_warm_start(config, Silent()) / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_nothing_left_to_learn_from_is_refused(
    make_run, tiny_model: Path, tmp_path: Path, chats: Path
) -> None:
    config = make_sft(make_run, tiny_model, tmp_path, data=str(chats), validation=0.99)
    with pytest.raises(DataError, match="holds out 40 of 40"):
        run_warm_start(config, Silent())


def test_learning_that_is_never_finite_ends_with_evidence_and_without_a_model(
    make_run, tiny_model: Path, tmp_path: Path, chats: Path
) -> None:
    # a rate without measure: the first update throws the weights so far that no loss is finite any more
    broken = {"data": str(chats), "steps": 50, "batch_size": 4, "lr": 1e25, "clip_norm": 1e30}
    config = make_sft(make_run, tiny_model, tmp_path, **broken)
    config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"skip_limit": 3})})
    with pytest.raises(NonFiniteError, match=r"3 updates in a row .*taught\.sft-nonfinite\.json"):
        run_warm_start(config, Silent())
    evidence = json.loads((tmp_path / "taught.sft-nonfinite.json").read_text(encoding="utf-8"))
    steps = [one["step"] for one in evidence]
    assert steps == [steps[0], steps[0] + 1, steps[0] + 2]
    rows = {f"chats.jsonl, row {i}" for i in range(40)}
    assert all(one["conversations"] and set(one["conversations"]) <= rows for one in evidence)
    lines = (tmp_path / "taught.sft-metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["sft/skipped"] for line in lines[-3:]] == [1, 1, 1]
    assert not (tmp_path / "taught").exists()
    # the next attempt leaves nothing of this one
    run_warm_start(make_sft(make_run, tiny_model, tmp_path, data=str(chats), steps=1), Silent())
    assert not list(tmp_path.glob("taught.sft-*"))
    summary = json.loads((tmp_path / "taught" / "sft-summary.json").read_text(encoding="utf-8"))
    assert summary["skipped"] == 0
