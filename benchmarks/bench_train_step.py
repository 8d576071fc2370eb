"""CPU time of one rollout batch of GRPO in hyperrl and in TRL, in turn, in one process.

    python benchmarks/bench_train_step.py [--json] [--rounds 9] [--groups 32] [--group-size 8] [--rows 128]

The work: 32 tasks (sort six digits), 8 episodes each, two optimizer steps, on the quickstart model (Qwen3,
0.66 million parameters, float32, eager attention, one thread). Every group has unequal rewards, so that
nothing can be left out. Contestants, with the same tokens in microbatches of the same size:

- *learner*: the 256 episodes are given, the same token ids to both. hyperrl: from trajectories to masks and
  microbatches, advantages, logprobs of all tokens with the gate, two updates; the first half is scored by the
  pass that learns from it, so that one forward pass of four is saved. TRL: padding, old logprobs of all
  tokens, advantages, two updates, in its own loop (``GRPOTrainer.train`` with ``rollout_func``); its time for
  asking for, decoding and rewarding the completions is taken off.
- *step*: with sampling. hyperrl: the environment's episodes over the in-process sampler, then as above, then
  publication of the new weights. TRL: generation with transformers, its reward function (the same), then as
  above; its loop has nothing to publish, and neither side stores trajectories.
- *update*: two updates of ours on the given episodes without scoring, beside a plain loop in PyTorch: the
  same padded arrays in the same microbatches through the same model, cross entropy of all positions,
  backward; no clipping, no optimizer. Compared in padded tokens per CPU second.

In *learner* and *update* the weights are put back before each measured stretch. CPU seconds count user and
system time of the whole process. The table gives medians over rounds, after one round that warms up. TRL is
left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import nn
from train_peers import Clock, TrlSettings, run_trl

from hyperrl.agents.rendering import load_renderer
from hyperrl.envs import make_env, reward
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.batching import TrainBatch, make_segments
from hyperrl.train.config import TrainConfig, make_config
from hyperrl.train.consistency import ConsistencyGate
from hyperrl.train.learner import Learner
from hyperrl.train.models import install_weights, load_model, make_tiny_model, named_weights
from hyperrl.train.publication import Publisher
from hyperrl.trajectory import Group
from hyperrl.wiring.source import EnvSource
from hyperrl.wiring.training import make_sampler, open_player
from hyperrl_tasks.sort_digits import SortDigits

ENV_ID = "hyperrl-benchmarks/Coin-v0"
UPDATES = 2
MAX_TOKENS = 10
TINY = {"hidden": 32, "layers": 2, "heads": 2, "kv_heads": 1, "ffn": 64, "context": 256}


def flip(text: str) -> float:
    """A reward that has nothing to do with the policy, so that a random one gets unequal rewards."""
    return float(zlib.crc32(text.strip().encode()) % 2)


class Coin(SortDigits):
    """The prompts of SortDigits, and a reward that any answer may earn."""

    @reward
    def sorted_exactly(self, answer: str) -> float:
        return flip(answer)


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point=Coin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is learned from, and the places of both sides."""

    config: TrainConfig
    groups: list[Group]
    prompts: list[list[dict[str, str]]]
    rows: int


class Contestant:
    """A learner whose weights can be put back, and the CPU seconds of its rounds."""

    def __init__(self, work: Work, **algorithm: Any) -> None:
        config = work.config
        self.model = load_policy(config)
        self.algorithm = Algorithm(
            config.algorithm.model_copy(update=algorithm), seed=0, max_tokens=config.rollout.max_tokens
        )
        self.learner = Learner(
            self.model,
            algorithm=self.algorithm.config,
            optimizer=config.optimizer,
            gate=ConsistencyGate(config.consistency, dtype=torch.float32),
        )
        self._first = {name: tensor.clone() for name, tensor in named_weights(self.model).items()}
        self.seconds: list[float] = []

    def reset(self) -> None:
        install_weights(self.model, self._first)

    def measure(self, run: Callable[[], None]) -> None:
        clock = Clock()
        clock.start()
        run()
        clock.stop()
        self.seconds.append(clock.take())


def load_policy(config: TrainConfig) -> nn.Module:
    return load_model(
        config.model.path,
        dtype=torch.float32,
        device=torch.device("cpu"),
        attention=config.model.attention,
    )


def make_work(model_dir: Path, options: argparse.Namespace) -> Work:
    """Play the episodes that the learners are given; groups of equal rewards are played anew."""
    episodes = options.groups * options.group_size
    if episodes % (UPDATES * options.rows):
        raise SystemExit(f"--rows must divide half of the {episodes} episodes, got {options.rows}")
    config = make_config(
        {
            "model": {"path": str(model_dir), "attention": options.attention},
            "env": {"id": ENV_ID},
            "rollout": {
                "groups": options.groups,
                "group_size": options.group_size,
                "max_turns": 1,
                "max_tokens": MAX_TOKENS,
            },
            "algorithm": {"minibatches": UPDATES},
            "optimizer": {"lr": 1e-6},
        }
    )
    with open_source(config, load_policy(config)) as (source, _):
        groups: list[Group] = []
        while len(groups) < options.groups:
            played = source.next_batch(version=0, size=options.groups)
            groups += [group for group in played if len({t.reward for t in group}) > 1]
    widest = max(segment.input_length for group in groups for t in group for segment in make_segments(t))
    algorithm = config.algorithm.model_copy(update={"microbatch_tokens": options.rows * widest})
    with make_env(ENV_ID) as env:
        prompts = []
        for task in range(options.groups):
            observation, _ = env.reset(seed=0, options={"task": task})
            prompts.append([{"role": m["role"], "content": m["content"]} for m in observation.messages])
    return Work(
        config=config.model_copy(update={"algorithm": algorithm}),
        groups=groups[: options.groups],
        prompts=prompts,
        rows=options.rows,
    )


@contextmanager
def open_source(config: TrainConfig, model: nn.Module) -> Iterator[tuple[EnvSource, Publisher]]:
    """Yield what plays the training tasks, the model's weights served as version 0, and the publisher."""
    sampler = make_sampler(config)
    publisher = Publisher([sampler], bucket_bytes=config.sampler.bucket_bytes)
    with open_player(config, sampler, load_renderer(config.model.path)) as player:
        publisher.publish(0, named_weights(model))
        yield (
            EnvSource(config, player=player, tasks=1000, served_version=lambda: sampler.policy_version),
            publisher,
        )


def learn(contestant: Contestant, groups: Sequence[Group]) -> None:
    contestant.learner.step(contestant.algorithm.prepare(groups), version=0)


def update(contestant: Contestant, batch: TrainBatch) -> None:
    contestant.learner.step(batch, version=0)


def plain_pass(model: nn.Module, batch: TrainBatch) -> None:
    """Forward and backward over every microbatch, as anyone would write it."""
    for minibatch in batch.minibatches:
        for micro in minibatch.microbatches:
            ids = torch.from_numpy(micro.input_ids)
            logits = model(input_ids=ids, use_cache=False).logits
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
        model.zero_grad(set_to_none=True)


@dataclass(kw_only=True)
class Series:
    """CPU seconds of the rounds of each contestant, and what it was compared on."""

    hyperrl: list[float]
    other: list[float]

    @property
    def medians(self) -> tuple[float, float]:
        """After the first round, which warms up."""
        return statistics.median(self.hyperrl[1:]), statistics.median(self.other[1:])

    @property
    def ratio(self) -> float:
        ours, theirs = self.medians
        return ours / theirs


def compare_learners(work: Work, rounds: int) -> Series:
    ours = Contestant(work)
    theirs: list[float] = []

    def between(seconds: float) -> None:
        theirs.append(seconds)
        ours.reset()
        ours.measure(partial(learn, ours, work.groups))

    _with_trl(work, rounds, between, given=True)
    return Series(hyperrl=ours.seconds, other=theirs)


def compare_steps(work: Work, rounds: int) -> Series:
    ours = Contestant(work)
    theirs: list[float] = []
    with open_source(work.config, ours.model) as (source, publisher):
        version = 0

        def step() -> None:
            nonlocal version
            groups = source.next_batch(version=version, size=len(work.groups))
            ours.learner.step(ours.algorithm.prepare(groups), version=version)
            version += 1
            publisher.publish(version, dict(ours.learner.weights()))

        def between(seconds: float) -> None:
            theirs.append(seconds)
            ours.measure(step)

        _with_trl(work, rounds, between, given=False)
    return Series(hyperrl=ours.seconds, other=theirs)


def compare_updates(work: Work, rounds: int) -> tuple[Series, int]:
    """Return the series and the padded tokens of a round."""
    config = work.config.model_copy(
        update={"consistency": work.config.consistency.model_copy(update={"mode": "off"})}
    )
    free = Work(config=config, groups=work.groups, prompts=work.prompts, rows=work.rows)
    ours = Contestant(free, old_logprobs="behavior")
    batch = ours.algorithm.prepare(work.groups)
    plain = Contestant(free)
    for _ in range(rounds):
        ours.reset()
        ours.measure(partial(update, ours, batch))
        plain.measure(partial(plain_pass, plain.model, batch))
    tokens = sum(micro.padded_tokens for m in batch.minibatches for micro in m.microbatches)
    return Series(hyperrl=ours.seconds, other=plain.seconds), tokens


def _with_trl(work: Work, rounds: int, between: Callable[[float], None], *, given: bool) -> None:
    episodes = [
        (t.turns[0].context_ids.tolist(), t.turns[0].action_ids.tolist())
        for group in work.groups
        for t in group
    ]
    with tempfile.TemporaryDirectory() as folder:
        run_trl(
            TrlSettings(
                model_dir=Path(work.config.model.path),
                attention=work.config.model.attention,
                prompts=work.prompts,
                completions=episodes if given else None,
                reward=flip,
                group_size=work.config.rollout.group_size,
                updates=UPDATES,
                rows=work.rows,
                max_tokens=MAX_TOKENS,
                rounds=rounds,
            ),
            between,
            Path(folder),
        )


def measure(work: Work, rounds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"trl": None}
    if importlib.util.find_spec("trl"):
        figures["trl"] = importlib.metadata.version("trl")
        for name, compare in (("learner", compare_learners), ("step", compare_steps)):
            series = compare(work, rounds)
            ours, theirs = series.medians
            figures |= {
                f"{name}_hyperrl_cpu_s": ours,
                f"{name}_trl_cpu_s": theirs,
                f"{name}_ratio": series.ratio,
            }
    series, tokens = compare_updates(work, rounds)
    ours, theirs = series.medians
    figures |= {
        "padded_tokens": tokens,
        "update_tokens_per_cpu_s": tokens / ours,
        "plain_tokens_per_cpu_s": tokens / theirs,
        "update_ratio": theirs / ours,
    }
    return figures


def print_table(figures: dict[str, Any]) -> None:
    print(f"{'CPU seconds a rollout batch':<32}{'hyperrl':>10}{'TRL':>10}{'ratio':>8}")
    for name in ("learner", "step"):
        if f"{name}_ratio" in figures:
            values = [figures[f"{name}_{key}"] for key in ("hyperrl_cpu_s", "trl_cpu_s", "ratio")]
            print(f"{name:<32}{values[0]:>10.3f}{values[1]:>10.3f}{values[2]:>8.2f}")
    print(f"{'padded tokens a CPU second':<32}{'hyperrl':>10}{'plain':>10}{'ratio':>8}")
    values = [figures[key] for key in ("update_tokens_per_cpu_s", "plain_tokens_per_cpu_s", "update_ratio")]
    print(f"{'update':<32}{values[0]:>10.0f}{values[1]:>10.0f}{values[2]:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds, beside the one that warms up")
    parser.add_argument("--groups", type=int, default=32)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--rows", type=int, default=128, help="episodes of one forward-backward")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager")
    parser.add_argument("--small", action="store_true", help="a model of a few thousand parameters")
    parser.add_argument("--json", action="store_true", help="print the results as a last line of JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model_dir = make_tiny_model(Path(folder) / "tiny", seed=0, **(TINY if options.small else {}))
        work = make_work(model_dir, options)
        figures = measure(work, options.rounds + 1)
    sizes = {key: getattr(options, key) for key in ("rounds", "groups", "group_size", "rows", "attention")}
    print(f"{options.groups * options.group_size} episodes, {UPDATES} updates, {options.rounds} rounds")
    print_table(figures)
    if options.json:
        print(json.dumps({"benchmark": "train_step", **sizes, **figures}))


if __name__ == "__main__":
    main()
