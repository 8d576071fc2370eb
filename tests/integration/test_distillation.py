"""Distillation from a store: which episodes are chosen, and that sampled ids are learned exactly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperrl.errors import DataError, StoreError
from hyperrl.store import TrajectoryWriter, read_tokenizers, read_trajectories
from hyperrl.train.batching import make_loss_tokens, make_segments
from hyperrl.trajectory import Failure, RewardTerm, Trajectory, Turn
from hyperrl.wiring.display import Silent
from hyperrl.wiring.distillation import as_lesson, read_episodes
from hyperrl.wiring.saved_model import roll_out
from hyperrl.wiring.sft import run_warm_start


def turn(context: list[int], action: list[int], parent: int | None = None, **fields: Any) -> Turn:
    return Turn(
        parent=parent,
        context_ids=np.array(context, np.int32),
        action_ids=np.array(action, np.int32),
        behavior_logprobs=np.full(len(action), -0.5, np.float32),
        policy_versions=np.zeros(len(action), np.int32),
        **fields,
    )


def episode(position: int, sample: int, score: float | None, **fields: Any) -> Trajectory:
    error = None if score is not None else Failure(kind="reward_error", stage="reward", reason="broke")
    return Trajectory(
        run_id="run",
        group_id=(0, position),
        sample_index=sample,
        task_id=f"{position}",
        env_id="env",
        turns=fields.pop("turns", (turn([1, 2], [3, 4]),)),
        reward_terms=(RewardTerm(name="score", score=score, error=error),),
        **fields,
    )


def keys(trajectories: Any) -> list[tuple[int, int]]:
    return [(t.group_id[1], t.sample_index) for t in trajectories]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    played = [
        episode(0, 0, 0.0),
        episode(0, 1, 1.0),
        episode(0, 2, 1.0),
        episode(1, 0, None),
        episode(1, 1, 0.25),
        episode(2, 0, 0.5, turns=(turn([1], [2] * 300),)),
    ]
    TrajectoryWriter(tmp_path / "run" / "trajectories").write_part(played, iteration=1)
    return tmp_path / "run"


def test_the_best_of_each_group_is_chosen(make_run, tiny_model: Path, store: Path) -> None:
    config = make_run(sft={"start": str(tiny_model), "from_store": str(store)})
    lessons = read_episodes(config)
    assert keys(lessons.trajectories) == [(0, 1), (1, 1)]
    assert lessons.left_out == {
        "unscored or excluded": 1,
        "over 256 tokens": 1,
        "not the best of their group": 2,
    }


def test_all_above_a_reward_are_chosen(make_run, tiny_model: Path, store: Path) -> None:
    sft = {"start": str(tiny_model), "from_store": str(store / "trajectories"), "select": "all"}
    assert keys(read_episodes(make_run(sft=sft)).trajectories) == [(0, 0), (0, 1), (0, 2), (1, 1)]
    good = make_run(sft={**sft, "min_reward": 1.0})
    assert keys(read_episodes(good).trajectories) == [(0, 1), (0, 2)]
    with pytest.raises(DataError, match=r"nothing to learn from: 0 conv.*5 with a reward below 2"):
        read_episodes(make_run(sft={**sft, "min_reward": 2.0}))


def test_sampled_ids_are_learned_exactly_and_nothing_else() -> None:
    # ids that no encoder would give, another seat, a side turn, a temperature
    turns = (
        turn([7, 8], [9, 9, 200], temperature=0.5),
        turn([10], [11], policy="opponent"),
        turn([12], [13], use="side"),
        turn([14], [15, 16], parent=0, temperature=0.5),
    )
    (segment,) = make_segments(as_lesson(episode(0, 0, 1.0, turns=turns)), learn="gold")
    tokens = make_loss_tokens([segment])
    assert segment.token_ids.tolist() == [7, 8, 9, 9, 200, 14, 15, 16]
    assert tokens.token_ids.tolist() == [9, 9, 200, 15, 16]
    assert set(tokens.temperature.tolist()) == {1.0}


def test_token_ids_of_another_vocabulary_are_refused(
    make_run, tiny_model: Path, tmp_path: Path, store: Path
) -> None:
    strange = episode(0, 0, 1.0, turns=(turn([1], [60000]),))
    TrajectoryWriter(tmp_path / "strange").write_part([strange], iteration=0)
    config = make_run(sft={"start": str(tiny_model), "from_store": str(tmp_path / "strange")})
    with pytest.raises(DataError, match="holds the token id 60000"):
        read_episodes(config)
    TrajectoryWriter(tmp_path / "named", tokenizer="ab" * 32).write_part([episode(0, 0, 1.0)], iteration=0)
    assert read_tokenizers(tmp_path / "named") == {"ab" * 32}
    assert read_tokenizers(store / "trajectories") == set()
    with pytest.raises(DataError, match=r"another vocabulary \(abababababab\)"):
        read_episodes(make_run(sft={"start": str(tiny_model), "from_store": str(tmp_path / "named")}))
    with pytest.raises(StoreError, match="there is no trajectory store"):
        read_episodes(make_run(sft={"start": str(tiny_model), "from_store": str(tmp_path / "nothing")}))


def test_what_a_model_played_can_be_distilled(make_run, tiny_model: Path, tmp_path: Path) -> None:
    roll_out(make_run(), Silent(), out=tmp_path / "episodes")
    (digest,) = read_tokenizers(tmp_path / "episodes")
    config = make_run(
        model={"path": str(tmp_path / "student")},
        sft={
            "start": str(tiny_model),
            "from_store": str(tmp_path / "episodes"),
            "steps": 20,
            "batch_size": 4,
            "lr": 1e-2,
        },
    )
    run_warm_start(config, Silent())
    lines = (tmp_path / "student" / "sft-metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [json.loads(line)["sft/loss"] for line in lines]
    assert losses[-1] < 0.5 * losses[0]
    best = read_episodes(config).trajectories
    played = {(t.group_id, t.sample_index): t for t in read_trajectories(tmp_path / "episodes")}
    for lesson in best:
        original = played[lesson.group_id, lesson.sample_index]
        assert [t.action_ids.tolist() for t in lesson.turns] == [
            t.action_ids.tolist() for t in original.turns
        ]
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    spec = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = spec["model"]["vocab"]
    first, second = sorted(vocab, key=vocab.get)[:2]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (other / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    swapped = config.model_copy(update={"sft": config.sft.model_copy(update={"start": other})})
    with pytest.raises(DataError, match=f"another vocabulary \\({digest[:12]}"):
        read_episodes(swapped)
