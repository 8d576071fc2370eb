import itertools
import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import short_text

from hyperrl.errors import ConfigError
from hyperrl.sampling import (
    Attendance,
    ChatPolicy,
    Completion,
    EpisodeKey,
    Reply,
    RequestKey,
    Sampler,
    SamplingParams,
    ToolCall,
    request_seed,
)
from hyperrl.trajectory import StopReason

integers = st.integers(0, 2**40)
request_keys = st.builds(
    RequestKey,
    group_id=st.tuples(integers, integers),
    sample_index=st.integers(0, 1000),
    seat=short_text,
    ordinal=st.integers(0, 1000),
)


@given(st.integers(), request_keys)
def test_a_request_seed_depends_on_nothing_but_its_name(run_seed, key):
    seed = request_seed(run_seed, key)
    assert 0 <= seed < 2**63
    assert request_seed(run_seed, RequestKey(*pickle.loads(pickle.dumps(tuple(key))))) == seed


def test_request_seeds_are_frozen():
    # Runs are replayed with these numbers: a change of the hash breaks every recorded seed.
    assert request_seed(0, RequestKey((0, 0), 0, "main", 0)) == 5525722216373594500
    assert request_seed(7, RequestKey((1, 2), 3, "main", 4)) == 4952509889389190058


@given(st.integers(0, 2**32), request_keys, request_keys)
def test_different_requests_draw_different_numbers(run_seed, one, other):
    assume(one != other)
    assert request_seed(run_seed, one) != request_seed(run_seed, other)
    assert request_seed(run_seed, one) != request_seed(run_seed + 1, one)


def test_neighbouring_requests_have_unrelated_seeds():
    keys = [
        RequestKey((epoch, position), sample, "main", ordinal)
        for epoch in range(3)
        for position in range(20)
        for sample in range(8)
        for ordinal in range(5)
    ]
    seeds = [request_seed(0, key) for key in keys]
    assert len(set(seeds)) == len(keys)
    ones = sum(seed.bit_count() for seed in seeds) / (63 * len(seeds))
    assert abs(ones - 0.5) < 0.01
    changed = [(a ^ b).bit_count() / 63 for a, b in itertools.pairwise(seeds)]
    assert abs(sum(changed) / len(changed) - 0.5) < 0.01


def test_request_keys_sort_in_the_order_of_a_batch():
    keys = [
        RequestKey((0, 2), 0, "main", 0),
        RequestKey((0, 10), 0, "judge", 9),
        RequestKey((0, 10), 0, "main", 0),
        RequestKey((0, 10), 0, "main", 1),
        RequestKey((0, 10), 1, "main", 0),
        RequestKey((1, 0), 0, "main", 0),
    ]
    assert sorted(keys[index] for index in (3, 0, 5, 1, 4, 2)) == keys
    assert keys[3].episode == EpisodeKey((0, 10), 0)
    assert str(keys[3]) == "0-10-0-main-1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"temperature": -0.1}, "temperature must be finite and >= 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be finite and >= 0, got nan"),
        ({"temperature": float("inf")}, "temperature must be finite and >= 0, got inf"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"top_p": 1.01}, r"top_p must be in \(0, 1\], got 1.01"),
        ({"top_k": -1}, r"top_k must be >= 0 \(0 keeps all tokens\), got -1"),
    ],
)
def test_sampling_params_out_of_range_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        SamplingParams(**({"max_tokens": 8} | values))


@given(st.floats(0, 100), st.floats(0, 1, exclude_min=True), st.integers(0, 100))
def test_sampling_params_know_whether_they_truncate(temperature, top_p, top_k):
    params = SamplingParams(max_tokens=1, temperature=temperature, top_p=top_p, top_k=top_k)
    assert params.truncates == (top_p < 1 or top_k > 0)
    assert pickle.loads(pickle.dumps(params)) == params


@pytest.mark.parametrize(
    "record",
    [
        SamplingParams(max_tokens=1),
        Completion(action_ids=[1], logprobs=[-0.5], policy_versions=[0], stop_reason=StopReason.STOP),
        ToolCall(call_id="c", name="add", arguments={}, raw="{}"),
        Reply(message={"role": "assistant", "content": "4"}, text="4"),
    ],
)
def test_records_cannot_be_changed(record):
    with pytest.raises(AttributeError):  # FrozenInstanceError is one
        setattr(record, next(iter(type(record).__annotations__)), None)


def test_protocols_are_recognised_by_their_methods():
    class Mute:
        policy_version = 0

        async def generate(self, prompt_ids, params, *, seed, request_id): ...

        async def respond(self, messages, tools=()): ...

    assert isinstance(Mute(), Sampler)
    assert isinstance(Mute(), ChatPolicy)
    assert not isinstance(Mute(), Attendance)
    assert not isinstance(object(), Sampler)
