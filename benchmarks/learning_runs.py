"""The runs of `make check-learning`: what each trains, how it is warmed up, and the record that it leaves."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hyperrl.errors import LearningError
from hyperrl.train.config import TrainConfig, dump_config, load_config
from hyperrl.train.models import make_tiny_model
from hyperrl.train.models.tiny import TinyShape
from hyperrl.wiring.display import Silent
from hyperrl.wiring.models import fetch_pretrained_model
from hyperrl.wiring.run_directory import write_atomic
from hyperrl.wiring.saved_model import evaluate_model
from hyperrl.wiring.sft import run_warm_start
from hyperrl.wiring.training import run_training

CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "learning"
PRETRAINED = "smollm2-135m"
FLOOR = 0.08
"""Sampled success on training tasks up to which a warm start goes on."""
FURTHER_STEPS, FURTHER_LR = 30, 0.3
"""Steps of each further round, and what is left of the learning rate: AdamW's moments begin anew."""
MOST_ROUNDS = 8
SHAPES: Mapping[str, TinyShape] = {
    "calculator": {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 128, "context": 1024}
}
"""Sizes of the random models that are not the 0.66 million parameters of the others."""
HABITS = {
    "calculator": (
        "env.kwargs.direct_share=0.5",
        "sft.steps=30",
        "sft.examples=960",
        "sft.lr=2.0e-4",
    )
}
"""What a warm start ends with: gold of which half does not call the calculator, so that the policy can
choose."""
TOOL_FLOOR = 0.02
"""The most that a model which learned to use its calculator may reach without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRun:
    """One training run with one seed.

    Attributes:
        task: stem of the config in ``configs/learning``.
        algorithm: the name that the tables show.
        seed: ``run.seed``, and that of the random weights.
        overrides: what differs from the task's config, as for ``--set``.
        cost: CPU seconds that it takes about; the longest are started first.
    """

    task: str
    algorithm: str
    seed: int = 0
    overrides: tuple[str, ...] = ()
    cost: float = 100.0

    @property
    def name(self) -> str:
        return f"{self.task}-{self.algorithm}-{self.seed}"

    @property
    def pretrained(self) -> bool:
        return self.task.endswith("smollm2")

    def config(self, root: Path, *more: str) -> TrainConfig:
        """Return the config, with ``more`` overrides; everything that the run writes lies under ``root``."""
        warm = "PRETRAINED" if self.pretrained else str(root / "warm" / f"{self.task}-{self.seed}" / "model")
        paths = [f"run.dir={root / self.name / 'run'}", f"model.path={warm}", "run.overwrite=true"]
        named = [f"run.name={self.name}", f"run.seed={self.seed}"]
        return load_config(CONFIGS / f"{self.task}.yaml", [*paths, *named, *self.overrides, *more])

    def digest(self) -> str:
        """Return what a record is valid for: the resolved config, whichever commit and folder."""
        text = dump_config(self.config(Path("."))) + f"{FLOOR} {FURTHER_STEPS} {FURTHER_LR} {TOOL_FLOOR}"
        text += json.dumps([SHAPES.get(self.task), HABITS.get(self.task)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


PPO = ("algorithm.name=ppo", "algorithm.minibatches=2", "optimizer.decay_steps=0")
_SINGLE = {
    "dr_grpo": ("algorithm.name=dr_grpo",),
    # made for answers of thousands of tokens; with seven, a sequence's mean log ratio moves further
    "gspo": ("algorithm.name=gspo", "algorithm.clip_low=0.05", "algorithm.clip_high=0.07"),
    "cispo": ("algorithm.name=cispo",),
    # no ratio: one update an iteration, with a higher rate
    "rloo": (
        "algorithm.name=rloo",
        "algorithm.minibatches=1",
        "optimizer.lr=3.0e-4",
        "optimizer.warmup_steps=5",
        "optimizer.decay_steps=0",
    ),
}
RUNS: tuple[LearningRun, ...] = (
    LearningRun(task="arithmetic_smollm2", algorithm="grpo", cost=300),
    LearningRun(task="calculator", algorithm="grpo", cost=250),
    *(
        LearningRun(task=task, algorithm=algorithm, seed=seed, overrides=overrides, cost=cost)
        for task in ("sort6", "reverse5")
        for algorithm, overrides, cost in (("ppo", PPO, 200.0), ("grpo", (), 120.0))
        for seed in (0, 1, 2)
    ),
    *(
        LearningRun(task="sort6", algorithm=algorithm, overrides=overrides, cost=120)
        for algorithm, overrides in _SINGLE.items()
    ),
)


def read_record(run: LearningRun, root: Path) -> dict[str, Any] | None:
    """Return the record of a run that has ended with the config it has now, else ``None``."""
    try:
        record = json.loads((root / run.name / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("digest") == run.digest() else None


def execute(run: LearningRun, root: Path) -> dict[str, Any]:
    """Warm up, train, measure, and leave ``summary.json`` in the run's folder.

    A run that does not show what its config requires is recorded as such; any other error leaves no record.
    """
    began, cpu = time.monotonic(), time.process_time()
    config, digest = run.config(root), run.digest()
    if run.pretrained:
        config = _with_model(config, fetch_pretrained_model(PRETRAINED, cache=None))
        warm: dict[str, Any] = {"steps": 0}
    else:
        habit = run.config(root, *HABITS[run.task]) if run.task in HABITS else None
        warm = warm_up(config, SHAPES.get(run.task, {}), habit)
    unmet: list[str] = []
    try:
        run_training(config, Silent())
    except LearningError:
        unmet = json.loads((config.run.dir / "summary.json").read_text(encoding="utf-8"))["unmet"]
    extra, more = _without_tool(config) if "calculator" in config.env.kwargs else ({}, [])
    record = {
        "name": run.name,
        "task": run.task,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "digest": digest,
        "unmet": [*unmet, *more],
        "warm": warm,
        **describe_run(config.run.dir),
        **extra,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        **describe_machine(),
    }
    write_atomic(root / run.name / "summary.json", json.dumps(record, indent=1) + "\n")
    return record


def warm_up(config: TrainConfig, shape: TinyShape, habit: TrainConfig | None = None) -> dict[str, Any]:
    """Make ``model.path``: random weights, then gold answers until :data:`FLOOR` is reached.

    Then come the gold answers of ``habit``, where there is one. Runs with the same task and seed share the
    result; the first one makes it.
    """
    folder = config.model.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "warm.json"
    made_from = {"env": config.env.model_dump(mode="json"), "sft": config.sft.model_dump(mode="json")}
    made_from["sft"].pop("start")
    made_from["rounds"] = [dict(shape), FLOOR, FURTHER_STEPS, FURTHER_LR]
    if habit is not None:
        made_from["habit"] = [habit.env.model_dump(mode="json"), habit.sft.model_dump(mode="json")]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(note.read_text(encoding="utf-8"))
            if known.pop("made_from") == made_from:
                return dict(known)
        done = _warm_up(config, make_tiny_model(folder / "random", seed=config.run.seed, **shape))
        if habit is not None:
            done = _learn_gold(habit, config.model.path, done["steps"])
        write_atomic(note, json.dumps({**done, "made_from": made_from}) + "\n")
        return done


def _warm_up(config: TrainConfig, start: Path) -> dict[str, Any]:
    done = _learn_gold(config, start, 0)
    for round_ in range(1, MOST_ROUNDS):
        if done["success"] >= FLOOR:
            break
        # a seed of its own for each round: other gold answers, and no more than it will look at
        examples = min(config.sft.examples, FURTHER_STEPS * config.sft.batch_size)
        changed = {"steps": FURTHER_STEPS, "lr": FURTHER_LR * config.sft.lr, "examples": examples}
        again = {
            "sft": config.sft.model_copy(update=changed),
            "run": config.run.model_copy(update={"seed": config.run.seed + 1000 * round_}),
        }
        done = _learn_gold(config.model_copy(update=again), config.model.path, done["steps"])
    return done


def _learn_gold(config: TrainConfig, start: Path, taken: int) -> dict[str, Any]:
    """Make one warm start; return all steps so far, and the sampled success on training tasks."""
    sft = config.sft.model_copy(update={"start": start})
    run_warm_start(config.model_copy(update={"sft": sft}), Silent())
    on_training_tasks = config.evaluation.model_copy(update={"split": config.env.train_split})
    found = evaluate_model(config.model_copy(update={"evaluation": on_training_tasks}), Silent())
    return {"steps": taken + sft.steps, "success": found.sampled.success.mean}


def _without_tool(config: TrainConfig) -> tuple[dict[str, Any], list[str]]:
    """Play the held-out tasks with the trained model and a calculator that is switched off, or none."""
    if config.env.kwargs["calculator"] != "works":
        return {}, []
    trained = _with_model(config, config.run.dir / "model")
    found: dict[str, Any] = {}
    for mode in ("off", "none"):
        env = config.env.model_copy(update={"kwargs": {**config.env.kwargs, "calculator": mode}})
        evaluation = evaluate_model(trained.model_copy(update={"env": env}), Silent())
        found[f"calculator_{mode}"] = evaluation.sampled.success.mean
    unmet = [
        f"{name}: {success:.3f} without the calculator; at most {TOOL_FLOOR} is allowed"
        for name, success in found.items()
        if not success <= TOOL_FLOOR
    ]
    return found, unmet


def describe_run(folder: Path) -> dict[str, Any]:
    """Return the figures of a finished run from its own files."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if "validation/tasks" in (row := json.loads(line))]
    names = ("sampled_success", "sampled_success_low", "sampled_success_high", "greedy_success")
    return {
        **{name: _rounded(summary[name]) for name in ("before", "after", "gain", "gain_low", "gain_high")},
        "iterations": summary["iterations"],
        "tasks": int(rows[-1]["validation/tasks"]),
        "curve": [[row["step"], *(_rounded(row[f"validation/{name}"]) for name in names)] for row in rows],
    }


def describe_machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()}), one thread a run",
        "versions": {
            "Python": platform.python_version(),
            **{package: version(package) for package in ("torch", "transformers", "numpy")},
        },
    }


def _with_model(config: TrainConfig, path: Path) -> TrainConfig:
    return config.model_copy(update={"model": config.model.model_copy(update={"path": path})})


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)


def walk_records(runs: Mapping[str, LearningRun], root: Path) -> Iterator[dict[str, Any]]:
    """Yield the records that there are, in the order of the runs."""
    for run in runs.values():
        if (record := read_record(run, root)) is not None:
            yield record
