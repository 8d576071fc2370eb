"""The supervised warm start."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from training_cases import policy_logprobs, tiny_model, trajectory, turn

from hyperrl.errors import DataError, NonFiniteError
from hyperrl.train.config import AlgorithmConfig, SftConfig
from hyperrl.train.metrics import find_metric
from hyperrl.train.sft import run_sft


def gold(count=6):
    """Conversations of different length whose answer copies the prompt's first token."""
    return [
        trajectory([turn([i + 1, 20, *[21] * (i % 3)], [i + 1, 22], sampled=False)], sample=i)
        for i in range(count)
    ]


def run(model, conversations, **fields):
    seed = fields.pop("seed", 0)
    algorithm = AlgorithmConfig.model_validate(
        {name: fields.pop(name) for name in ("microbatch_tokens", "skip_limit") if name in fields}
    )
    seen = []
    metrics = run_sft(
        model,
        conversations,
        SftConfig.model_validate(fields),
        seed=seed,
        algorithm=algorithm,
        on_step=lambda index, metrics: seen.append((index, metrics)),
    )
    assert seen[-1][1] == metrics
    assert [step for step, _ in seen if step] == list(range(1, seen[-1][0] + 1))
    return [metrics for _, metrics in seen]


def test_the_loss_is_the_mean_cross_entropy_of_the_action_tokens():
    model = tiny_model(torch.float64)
    conversations = gold()
    (metrics,) = run(model, conversations, steps=1, batch_size=6)
    twin = tiny_model(torch.float64)
    values = [
        value
        for episode in conversations
        for one in episode.turns
        for value in policy_logprobs(twin, one.context_ids.tolist(), one.action_ids.tolist())
    ]
    assert metrics["sft/loss"] == pytest.approx(-math.fsum(values) / len(values), rel=1e-6)
    assert metrics["sft/tokens"] == 12


def test_only_action_tokens_are_learned():
    # the same conversation, its first action given as gold, or only read as context
    model, twin = tiny_model(), tiny_model()
    read = [
        trajectory([turn([1, 2], [3], sampled=False, use="context"), turn([4], [5], parent=0, sampled=False)])
    ]
    prompt = [trajectory([turn([1, 2, 3, 4], [5], sampled=False)])]
    one = run(model, read, steps=2, batch_size=1)
    two = run(twin, prompt, steps=2, batch_size=1)
    assert [m["sft/loss"] for m in one] == [m["sft/loss"] for m in two]
    assert one[0]["sft/tokens"] == 1


def test_it_learns_and_is_deterministic():
    results = []
    for _ in range(2):
        model = tiny_model()
        losses = [m["sft/loss"] for m in run(model, gold(), steps=30, batch_size=4, lr=1e-2)]
        results.append((losses, [p.clone() for p in model.parameters()]))
    (first, one), (second, two) = results
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert first[-1] < 0.3 < first[0]


def test_microbatches_do_not_matter():
    losses = [
        [
            m["sft/loss"]
            for m in run(tiny_model(torch.float64), gold(), steps=4, batch_size=6, microbatch_tokens=n)
        ]
        for n in (1, 16384)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_seed_decides_the_order():
    losses = [
        [m["sft/loss"] for m in run(tiny_model(), gold(), steps=3, batch_size=2, seed=s)] for s in (0, 1)
    ]
    assert losses[0] != losses[1]


def test_an_epoch_holds_every_conversation_once():
    metrics = run(tiny_model(), gold(), steps=4, batch_size=3)
    assert [m["sft/tokens"] for m in metrics] == [6] * 4
    first = {round(m["sft/loss"], 9) for m in run(tiny_model(), gold(), steps=6, batch_size=1, lr=1e-12)}
    assert len(first) == 6


def test_epochs_are_passes_over_all_with_a_last_batch_of_what_is_left():
    metrics = run(tiny_model(), gold(7), epochs=2, batch_size=3)
    assert [m["sft/tokens"] for m in metrics] == [6, 6, 2] * 2
    assert [m["sft/epoch"] for m in metrics] == [0, 0, 0, 1, 1, 1]


def test_held_out_conversations_are_measured_and_never_learned():
    metrics = run(tiny_model(), gold(8), epochs=1, batch_size=2, validation=0.25, validation_every=2)
    before, *steps = metrics
    assert set(before) == {"sft/validation_loss"}
    assert ["sft/validation_loss" in m for m in steps] == [False, True, True]
    assert [m["sft/tokens"] for m in steps] == [4, 4, 4]
    # the same two, learned from alone by a model that learns next to nothing, have the same loss
    everything = run(tiny_model(), gold(8), steps=1, batch_size=8, lr=1e-12)[0]["sft/loss"]
    learned = run(tiny_model(), gold(8), epochs=1, batch_size=6, validation=0.25, lr=1e-12)[1]["sft/loss"]
    held_out = before["sft/validation_loss"]
    assert 8 * everything == pytest.approx(6 * learned + 2 * held_out, rel=1e-5)


def test_a_batch_larger_than_the_data_takes_all_of_it():
    assert run(tiny_model(), gold(3), steps=1, batch_size=64)[0]["sft/tokens"] == 6


def test_the_learning_rate_falls_to_a_tenth_along_a_cosine():
    rates = [m["sft/lr"] for m in run(tiny_model(), gold(), steps=100, batch_size=1, lr=1e-3)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[50] == pytest.approx(0.55e-3)
    assert rates[-1] == pytest.approx(1e-4, rel=0.01)
    assert rates == sorted(rates, reverse=True)


def test_every_metric_has_a_row():
    assert all(find_metric(name) for name in run(tiny_model(), gold(), steps=1)[0])


@pytest.mark.parametrize("conversations", [[], [trajectory([turn([1], [2])])]])
def test_nothing_to_learn_from_is_refused(conversations):
    with pytest.raises(DataError, match="none of the"):
        run_sft(tiny_model(), conversations, SftConfig())


BAD = 4
"""The conversation of ``gold`` that a model made by ``impossible`` cannot say."""


def impossible(seed=0):
    """A model that gives the first answer token of one conversation the probability 0."""
    model = tiny_model(seed=seed)
    model.lm_head.register_forward_hook(
        lambda module, args, logits: logits.index_fill(-1, torch.tensor([BAD + 1]), -torch.inf)
    )
    return model


@pytest.mark.parametrize("budget", [1, 16384])
def test_a_step_that_is_not_finite_is_left_out_named_and_the_schedule_waits(caplog, budget):
    conversations = gold()
    with caplog.at_level(logging.WARNING):
        metrics = run(impossible(), conversations, steps=12, batch_size=3, lr=1e-3, microbatch_tokens=budget)
    skipped = [int(m["sft/skipped"]) for m in metrics]
    assert sum(skipped) == 6
    assert [math.isfinite(m["sft/loss"]) for m in metrics] == [not one for one in skipped]
    # every rate that is given to an update comes once, in the order of the schedule
    applied = [m["sft/lr"] for m in metrics if not m["sft/skipped"]]
    whole = [m["sft/lr"] for m in run(tiny_model(), conversations, steps=12, batch_size=3, lr=1e-3)]
    assert applied == whole[:6]
    named = f"caused by task task-0 of test/Env-v0 (group (0, 0), sample {BAD})"
    assert len(caplog.records) == 6
    assert all(record.getMessage().endswith(named) for record in caplog.records)


def test_steps_that_are_left_out_change_no_weight():
    model = impossible()
    before = [p.clone() for p in model.parameters()]
    run(model, [gold()[BAD]], steps=3, batch_size=1, lr=1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_too_many_steps_in_a_row_end_learning_with_evidence():
    steps = []
    with pytest.raises(
        NonFiniteError, match=r"3 updates in a row .* step 3 .* sample 4\). .*sft\.lr"
    ) as caught:
        run_sft(
            impossible(),
            [gold()[BAD]],
            SftConfig(steps=9, batch_size=1),
            algorithm=AlgorithmConfig(skip_limit=3),
            on_step=lambda index, metrics: steps.append(metrics["sft/skipped"]),
        )
    assert steps == [1, 1, 1]
    assert [(one["step"], one["loss"]) for one in caught.value.evidence] == [
        (1, "inf"),
        (2, "inf"),
        (3, "inf"),
    ]
    # an update in between ends the row: of three steps an epoch one is left out, so at most two in a row
    assert len(run(impossible(), gold(), steps=30, batch_size=2, skip_limit=3)) == 30


def test_weights_that_are_not_finite_are_named_instead_of_conversations():
    model = tiny_model()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = math.nan
    with pytest.raises(NonFiniteError, match=r"not finite: model\.layers\.0\.mlp\.up_proj\.weight"):
        run(model, gold(), steps=4, skip_limit=1)
