"""Peak memory and CPU time of logprobs over a large vocabulary, forward and backward.

    python benchmarks/bench_logprobs.py [--json] [--tokens 2048] [--vocabulary 151936] [--hidden 64]

One Qwen3 layer, so that next to nothing but the output layer is measured, on one thread. Contestants, each
in a process of its own:

- *chunks*: ``hyperrl.train.scoring.compute_logprobs`` as it is;
- *whole logits*: the same with the logits of all tokens kept for the backward pass;
- *plain*: ``log_softmax(model(ids).logits.float() / temperature)`` and ``gather``.

Memory is what the process' resident set has grown by at its peak, model and libraries taken off: the gradient
of the output layer (``vocabulary * hidden`` numbers) is in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hyperrl.train import scoring
from hyperrl.train.batching import Microbatch

TEMPERATURE = 0.7


def make_model(args: argparse.Namespace) -> Any:
    config = Qwen3Config(
        vocab_size=args.vocabulary,
        hidden_size=args.hidden,
        intermediate_size=args.hidden,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=args.hidden,
        max_position_embeddings=args.tokens + 1,
        attn_implementation="sdpa",
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).to(getattr(torch, args.dtype)).eval()


def make_microbatch(args: argparse.Namespace) -> Microbatch:
    """One episode, of which every token but the first is learned from."""
    ids = np.random.default_rng(0).integers(0, args.vocabulary, args.tokens + 1)
    places = np.arange(args.tokens)
    return Microbatch(
        input_ids=ids[None, :-1],
        tokens=places,
        predictors=places,
        sequence=np.zeros_like(places),
        targets=ids[1:],
        temperature=np.full(args.tokens, TEMPERATURE),
    )


def plain(model: Any, micro: Microbatch) -> torch.Tensor:
    logits = model(torch.from_numpy(micro.input_ids)).logits[0]
    logprobs = torch.log_softmax(logits.float() / TEMPERATURE, -1)
    return logprobs.gather(-1, torch.from_numpy(micro.targets)[:, None]).squeeze(-1)


def whole_logits(model: Any, micro: Microbatch) -> torch.Tensor:
    scoring.OUTPUT_ELEMENTS = 2**62
    return scoring.compute_logprobs(model, micro)


CONTESTANTS: dict[str, Callable[[Any, Microbatch], torch.Tensor]] = {
    "chunks": scoring.compute_logprobs,
    "whole logits": whole_logits,
    "plain": plain,
}


def measure(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Run a contestant in this process, which is fresh."""
    torch.set_num_threads(1)
    model, micro = make_model(args), make_microbatch(args)
    compute_a_little(model)
    before, start = peak_bytes(), time.process_time()
    logprobs = CONTESTANTS[name](model, micro)
    logprobs.sum().backward()
    return {
        "peak_mib": (peak_bytes() - before) / 2**20,
        "cpu_s": time.process_time() - start,
        "mean_logprob": float(logprobs.detach().mean()),
        "grad_norm": float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])),
    }


def compute_a_little(model: Any) -> None:
    """Load what a first pass loads, without what is measured."""
    model.base_model(torch.zeros(1, 2, dtype=torch.int64)).last_hidden_state.sum().backward()
    for parameter in model.parameters():
        parameter.grad = None


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(name: str, argv: list[str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *argv, "--contestant", name], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="end with one line of figures")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--contestant", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        print(json.dumps(measure(args.contestant, args)))
        return
    argv = [f"--{name}={getattr(args, name)}" for name in ("tokens", "vocabulary", "hidden", "dtype")]
    figures = {name: run(name, argv) for name in CONTESTANTS}
    print(f"{args.tokens} tokens, {args.vocabulary} vocabulary, hidden {args.hidden}, {args.dtype}")
    print(f"{'':14}{'peak MiB':>10}{'CPU s':>8}{'mean logprob':>15}{'gradient norm':>15}")
    for name, one in figures.items():
        print(
            f"{name:14}{one['peak_mib']:10.0f}{one['cpu_s']:8.1f}"
            f"{one['mean_logprob']:15.6f}{one['grad_norm']:15.6f}"
        )
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
