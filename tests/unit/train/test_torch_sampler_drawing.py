"""Drawing tokens: the right distribution, from a row's own stream, whatever is in the batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperrl.sampling import SamplingParams
from hyperrl.train.samplers.drawing import Uniforms, draw


def drawn(logits, uniforms, **params):
    """Ids that the rows of ``uniforms`` draw from one row of logits."""
    rows = torch.tensor(logits, dtype=torch.float32).expand(len(uniforms), -1)
    return draw(rows, [SamplingParams(max_tokens=1, **params)] * len(uniforms), uniforms)[0]


def test_uniforms_are_the_philox_stream_of_the_seed():
    uniforms = Uniforms(7)
    stream = np.random.Generator(np.random.Philox(7)).random(1000)
    assert [uniforms[i] for i in (999, 0, 300)] == [stream[i] for i in (999, 0, 300)]


def test_the_cumulative_distribution_is_inverted_in_the_order_of_the_ids():
    logits = np.log([0.25, 0.5, 0.25]).tolist()
    assert drawn(logits, [0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53]) == [0, 0, 1, 1, 2, 2]


def test_tokens_without_probability_are_never_drawn():
    logits = [float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]
    assert set(drawn(logits, [0.0, 0.3, 0.5, 0.7, 1 - 2**-53])) == {1, 3}


def test_frequencies_follow_the_probabilities():
    probabilities = np.array([0.1, 0.2, 0.3, 0.4])
    uniforms = np.random.default_rng(0).random(20_000).tolist()
    counts = np.bincount(drawn(np.log(probabilities).tolist(), uniforms), minlength=4) / 20_000
    assert np.abs(counts - probabilities).max() < 0.01


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 1}, {3}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.4}, {3}),
        ({"top_p": 0.41}, {1, 3}),
        ({"top_p": 0.9}, {1, 2, 3}),
        ({"top_k": 2, "top_p": 0.5}, {3}),
        ({"temperature": 0.0}, {3}),
        ({"temperature": 0.0, "top_k": 3}, {3}),
    ],
)
def test_truncation_keeps_the_most_likely(params, allowed):
    logits = np.log([0.1, 0.3, 0.2, 0.4]).tolist()
    uniforms = [*np.linspace(0, 0.999, 100).tolist(), 1 - 2**-53]
    assert set(drawn(logits, uniforms, **params)) == allowed


def test_of_equally_likely_tokens_greedy_takes_the_lowest_id():
    assert drawn([1.0, 2.0, 2.0], [0.9], temperature=0) == [1]


def test_logprobs_are_untruncated_at_the_temperature():
    logits = torch.tensor([[0.5, 1.5, -1.0]])
    params = SamplingParams(max_tokens=1, temperature=0.5, top_k=1)
    (token,), (logprob,) = draw(logits, [params], [0.3])
    assert logprob == torch.log_softmax(logits / 0.5, -1)[0, token].item()
    greedy = SamplingParams(max_tokens=1, temperature=0)
    assert draw(logits, [greedy], [0.3])[1] == [torch.log_softmax(logits, -1)[0, 1].item()]


def test_rows_that_are_not_finite_say_so_and_leave_the_others_alone():
    logits = torch.tensor([[0.0, float("nan")], [0.0, 1.0]])
    _, logprobs = draw(logits, [SamplingParams(max_tokens=1)] * 2, [0.9, 0.9])
    assert not np.isfinite(logprobs[0])
    assert np.isfinite(logprobs[1])


params_of_rows = st.builds(
    SamplingParams,
    max_tokens=st.just(1),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_p=st.sampled_from([0.2, 0.7, 1.0]),
    top_k=st.sampled_from([0, 1, 5]),
)


@given(st.lists(params_of_rows, min_size=1, max_size=8), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_a_row_draws_the_same_alone_and_among_others(params, seed):
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 4, (len(params), 33))).float()
    uniforms = rng.random(len(params)).tolist()
    together = draw(logits, params, uniforms)
    alone = [draw(logits[i : i + 1], params[i : i + 1], uniforms[i : i + 1]) for i in range(len(params))]
    assert together == ([ids[0] for ids, _ in alone], [logprobs[0] for _, logprobs in alone])
