"""Tokens per second of TorchSampler against Hugging Face generate, on the same model and work.

    python benchmarks/bench_sampler.py [--json] [--rounds 7] [--requests 64]

The work: requests of unequal length (prompts of 8 to 64 tokens, actions of 8 to 128 tokens) on the
quickstart model (0.66 million parameters, float32), one CPU thread, sampling at temperature 1
without truncation. Hugging Face decodes all of them in one left-padded call, for as many tokens as
the longest action; only the tokens that were asked for count. Both run with eager attention, which
is what the quickstart trains and samples with, and with sdpa, which is the setting in which
generate is fastest. Each round runs all four, starting with another one each time. The tables give
medians over rounds: tokens per second of wall time, and per CPU second of the whole process, which
other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from hyperrl.sampling import RequestKey, SamplingParams
from hyperrl.train.device import set_threads
from hyperrl.train.models import load_model, make_tiny_model, named_weights
from hyperrl.train.publication import Publisher
from hyperrl.train.samplers import TorchSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    prompts: list[list[int]]
    lengths: list[int]

    @property
    def useful_tokens(self) -> int:
        return sum(self.lengths)


class Stopwatch:
    """Wall and CPU seconds of the runs of one contestant."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._started
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Medians over rounds."""

    contestant: str
    attention: str
    tokens_per_s: float
    tokens_per_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast TorchSampler is."""

    hyperrl_attention: str
    generate_attention: str
    wall: float
    cpu: float


Run = Callable[[Stopwatch], None]


def make_work(requests: int, seed: int = 0) -> Work:
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(3, 500, size).tolist() for size in rng.integers(8, 65, requests)]
    return Work(prompts=prompts, lengths=rng.integers(8, 129, requests).tolist())


def run_sampler(sampler: TorchSampler, work: Work, watch: Stopwatch) -> None:
    async def one(index: int) -> int:
        completion = await sampler.generate(
            work.prompts[index],
            SamplingParams(max_tokens=work.lengths[index]),
            seed=index,
            request_id=RequestKey((0, index), 0, "main", 0),
        )
        return len(completion.action_ids)

    async def everything() -> list[int]:
        return await asyncio.gather(*(one(index) for index in range(len(work.prompts))))

    with watch:
        lengths = asyncio.run(everything())
    assert lengths == work.lengths


def run_huggingface(model: torch.nn.Module, work: Work, watch: Stopwatch) -> None:
    width, longest = max(map(len, work.prompts)), max(work.lengths)
    ids = torch.tensor([[0] * (width - len(p)) + p for p in work.prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in work.prompts])
    torch.manual_seed(0)
    with watch:
        out = model.generate(  # type: ignore[operator]
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=longest,
            min_new_tokens=longest,
        )
    assert out.shape == (len(work.prompts), width + longest)


def make_contestants(model_dir: Path, work: Work, stack: ExitStack) -> Iterator[tuple[tuple[str, str], Run]]:
    """Yield name and attention of each contestant with what runs it once; ``stack`` closes them."""
    for attention in ("eager", "sdpa"):
        model = load_model(model_dir, dtype=torch.float32, device=torch.device("cpu"), attention=attention)
        sampler = TorchSampler(model_dir, attention=attention, max_batch=len(work.prompts))
        stack.callback(sampler.close)
        Publisher([sampler]).publish(0, named_weights(model))
        yield ("hyperrl", attention), partial(run_sampler, sampler, work)
        yield ("generate", attention), partial(run_huggingface, model, work)


def measure(contestants: Sequence[tuple[tuple[str, str], Run]], work: Work, rounds: int) -> list[Speed]:
    watches = {name: Stopwatch() for name, _ in contestants}
    for _, run in contestants:
        run(Stopwatch())
    for turn in range(rounds):
        first = turn % len(contestants)
        for name, run in contestants[first:] + contestants[:first]:
            run(watches[name])
    return [
        Speed(
            contestant=name,
            attention=attention,
            tokens_per_s=work.useful_tokens / statistics.median(watch.wall),
            tokens_per_cpu_s=work.useful_tokens / statistics.median(watch.cpu),
        )
        for (name, attention), watch in watches.items()
    ]


def compare(speeds: Sequence[Speed]) -> list[Ratio]:
    """Each of ours against each of theirs."""
    ours = [speed for speed in speeds if speed.contestant == "hyperrl"]
    theirs = [speed for speed in speeds if speed.contestant == "generate"]
    return [
        Ratio(
            hyperrl_attention=mine.attention,
            generate_attention=other.attention,
            wall=mine.tokens_per_s / other.tokens_per_s,
            cpu=mine.tokens_per_cpu_s / other.tokens_per_cpu_s,
        )
        for mine in ours
        for other in theirs
    ]


def print_tables(speeds: Sequence[Speed], ratios: Sequence[Ratio]) -> None:
    print(f"{'tokens per':<30}{'second':>12}{'CPU second':>12}")
    for s in speeds:
        print(f"{s.contestant + ', ' + s.attention:<30}{s.tokens_per_s:>12.0f}{s.tokens_per_cpu_s:>12.0f}")
    print(f"{'hyperrl / generate':<30}{'wall':>12}{'CPU':>12}")
    for r in ratios:
        print(f"{r.hyperrl_attention + ' / ' + r.generate_attention:<30}{r.wall:>12.2f}{r.cpu:>12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print the results as a last line of JSON")
    options = parser.parse_args()
    set_threads(1)
    work = make_work(options.requests)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model_dir = make_tiny_model(Path(folder) / "tiny", seed=0)
        speeds = measure(list(make_contestants(model_dir, work, stack)), work, options.rounds)
    ratios = compare(speeds)
    print(f"{options.requests} requests, {work.useful_tokens} tokens, {options.rounds} rounds")
    print_tables(speeds, ratios)
    if options.json:
        result = {
            "benchmark": "sampler",
            "requests": options.requests,
            "useful_tokens": work.useful_tokens,
            "rounds": options.rounds,
            "speeds": [asdict(speed) for speed in speeds],
            "ratios": [asdict(ratio) for ratio in ratios],
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
