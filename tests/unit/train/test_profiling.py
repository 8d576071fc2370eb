"""Where an iteration's time goes, and how much of what a model needs to compute that is."""

from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from training_cases import make_learner, random_groups, tiny_model

from hyperrl.errors import ConfigError
from hyperrl.train.algorithms import Algorithm
from hyperrl.train.config import AlgorithmConfig, make_config
from hyperrl.train.device import find_peak_flops, known_peak_flops
from hyperrl.train.flops import UpdateMeter, count_forward_flops
from hyperrl.train.profiling import IterationProfiler, StageClock
from hyperrl.train.scoring import compute_logprobs


def microbatches(seed=1, **algorithm):
    batch = Algorithm(AlgorithmConfig.model_validate(algorithm)).prepare(random_groups(seed))
    return batch.minibatches[0].microbatches


def test_model_flops_are_those_that_torch_counts_but_for_what_attention_masks():
    model = tiny_model()
    (row, *_) = (row for micro in microbatches() for row in micro.rows())
    with FlopCounterMode(display=False) as counter:
        compute_logprobs(model, row)
    length = int(row.segment_lengths[0])
    masked = 2 * 4 * 4 * 8 * length * (length - 1) / 2  # layers, 4 FLOPs, heads, head size
    assert count_forward_flops(model, row) == counter.get_total_flops() - masked


@pytest.mark.parametrize("packing", ["padded", "packed"])
def test_padding_is_no_work_that_counts(packing):
    model = tiny_model()
    whole = microbatches(packing=packing, microbatch_tokens=60)
    rows = [row for micro in whole for row in micro.rows()]
    parts = [sum(count_forward_flops(model, micro) for micro in some) for some in (whole, rows)]
    assert parts[0] == pytest.approx(parts[1])
    lengths = np.concatenate([micro.segment_lengths for micro in whole])
    assert lengths.tolist() == [row.padded_tokens for row in rows]


def test_the_flops_of_a_mixture_of_experts_are_not_known():
    model = tiny_model()
    model.config.num_experts = 8
    assert count_forward_flops(model, microbatches()[0]) == 0
    meter = UpdateMeter(model)
    meter.add(microbatches()[0])
    assert "perf/tflops/actor" not in meter.take(1.0)


def test_an_update_says_what_it_computed():
    learner = make_learner(tiny_model())
    batch = Algorithm(AlgorithmConfig(epochs=2)).prepare(random_groups(2))
    metrics = learner.step(batch, version=0)
    learned = [
        m for m in batch.minibatches[0].microbatches if batch.minibatches[0].advantages[m.tokens].any()
    ]
    assert metrics["perf/update_tokens"] == sum(int(m.segment_lengths.sum()) for m in learned)
    assert 0 < metrics["perf/padding_fraction"] < 1
    assert metrics["perf/update_throughput"] == pytest.approx(
        metrics["perf/update_tokens"] / metrics["timing_s/update_actor"]
    )
    flops = 3 * sum(count_forward_flops(learner.model, m) for m in learned)
    assert metrics["perf/tflops/actor"] == pytest.approx(flops / metrics["timing_s/update_actor"] / 1e12)
    assert "perf/mfu/actor" not in metrics  # no peak is known for a CPU
    assert metrics["perf/cpu_memory_used_gb"] > 0
    repeated = learner.step(dataclasses.replace(batch, minibatches=batch.minibatches * 2), version=0)
    assert repeated["perf/update_tokens"] == 2 * metrics["perf/update_tokens"]


def test_utilisation_is_a_share_of_a_known_peak():
    meter = UpdateMeter(tiny_model())
    meter._peak = 1e12
    meter.add(microbatches()[0])
    metrics = meter.take(0.5)
    assert metrics["perf/mfu/actor"] == pytest.approx(metrics["perf/tflops/actor"])
    assert meter.take(0.5) == {}
    assert known_peak_flops(torch.device("cpu"), torch.bfloat16) == 0


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA H20-3e", 148e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A40", 149.7e12),
        ("NVIDIA L40S", 362.05e12),
        ("Ascend910B3", 354e12),
        ("Ascend910_9382", 354e12),
        ("NVIDIA RTX A4000", 0),
        ("NVIDIA L4", 0),
    ],
)
def test_the_peak_of_a_device_goes_by_its_name(name, peak):
    assert find_peak_flops(name) == peak


def test_stages_add_up():
    clock = StageClock()
    for stage in ("a", "b", "a"):
        with clock.measure(stage):
            time.sleep(0.002)
    assert set(clock.metrics()) == {"timing_s/a", "timing_s/b"}
    assert clock.seconds["a"] >= 0.004
    assert clock.total >= sum(clock.seconds.values())


def test_only_chosen_iterations_leave_a_trace(tmp_path):
    profiler = IterationProfiler(tmp_path / "profile", [2])
    for iteration in (1, 2, 3):
        with profiler(iteration), StageClock().measure("gen"):
            torch.ones(2) + 1
    (file,) = (tmp_path / "profile").iterdir()
    assert file.name == "iteration-2.json"
    names = {event.get("name") for event in json.loads(file.read_text(encoding="utf-8"))["traceEvents"]}
    assert names >= {"hyperrl/gen", "aten::add"}


def test_an_iteration_that_there_is_not_cannot_be_traced():
    with pytest.raises(ConfigError, match=r"run\.profile asks for iteration 4 of 3"):
        make_config({"run": {"profile": [1, 4]}, "iterations": 3})
