"""Tokens per second of TorchSampler against Hugging Face generate, on the same model and work.

    python benchmarks/bench_sampler.py [--json] [--rounds 7] [--requests 64] [--attention eager]

The work: requests of unequal length (prompts of 8 to 64 tokens, actions of 8 to 128 tokens) on the
quickstart model (0.66 million parameters, float32), one CPU thread, sampling at temperature 1
without truncation. Hugging Face decodes all of them in one left-padded call, for as many tokens as
the longest action; only the tokens that were asked for count. The order alternates between rounds;
the table gives medians over rounds: tokens per second of wall time, and per CPU second of the whole
process, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
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
class Result:
    attention: str
    requests: int
    useful_tokens: int
    hyperrl_tokens_per_s: float
    huggingface_tokens_per_s: float
    ratio: float
    hyperrl_tokens_per_cpu_s: float
    huggingface_tokens_per_cpu_s: float
    cpu_ratio: float


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


def compare(model_dir: Path, attention: str, requests: int, rounds: int) -> Result:
    work = make_work(requests)
    model = load_model(model_dir, dtype=torch.float32, device=torch.device("cpu"), attention=attention)
    sampler = TorchSampler(model_dir, attention=attention, max_batch=requests)
    Publisher([sampler]).publish(0, named_weights(model))
    run_sampler(sampler, work, Stopwatch())
    run_huggingface(model, work, Stopwatch())
    ours, theirs = Stopwatch(), Stopwatch()
    for turn in range(rounds):
        if turn % 2:
            run_sampler(sampler, work, ours)
            run_huggingface(model, work, theirs)
        else:
            run_huggingface(model, work, theirs)
            run_sampler(sampler, work, ours)
    sampler.close()
    median = statistics.median
    return Result(
        attention=attention,
        requests=requests,
        useful_tokens=work.useful_tokens,
        hyperrl_tokens_per_s=work.useful_tokens / median(ours.wall),
        huggingface_tokens_per_s=work.useful_tokens / median(theirs.wall),
        ratio=median(theirs.wall) / median(ours.wall),
        hyperrl_tokens_per_cpu_s=work.useful_tokens / median(ours.cpu),
        huggingface_tokens_per_cpu_s=work.useful_tokens / median(theirs.cpu),
        cpu_ratio=median(theirs.cpu) / median(ours.cpu),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--attention", choices=["eager", "sdpa", "both"], default="both")
    parser.add_argument("--json", action="store_true", help="print the results as a last line of JSON")
    options = parser.parse_args()
    set_threads(1)
    chosen = ["eager", "sdpa"] if options.attention == "both" else [options.attention]
    with tempfile.TemporaryDirectory() as folder:
        model_dir = make_tiny_model(Path(folder) / "tiny", seed=0)
        results = [compare(model_dir, attention, options.requests, options.rounds) for attention in chosen]
    print(f"{'':<10}{'':>9}{'':>8}{'tokens per second':>27}{'tokens per CPU second':>32}")
    head = f"{'hyperrl':>10}{'generate':>10}{'ratio':>7}"
    print(f"{'attention':<10}{'requests':>9}{'tokens':>8}{head}     {head}")
    for r in results:
        wall = f"{r.hyperrl_tokens_per_s:>10.0f}{r.huggingface_tokens_per_s:>10.0f}{r.ratio:>7.2f}"
        cpu = f"{r.hyperrl_tokens_per_cpu_s:>10.0f}{r.huggingface_tokens_per_cpu_s:>10.0f}{r.cpu_ratio:>7.2f}"
        print(f"{r.attention:<10}{r.requests:>9}{r.useful_tokens:>8}{wall}     {cpu}")
    if options.json:
        print(json.dumps({"benchmark": "sampler", "results": [asdict(r) for r in results]}))


if __name__ == "__main__":
    main()
