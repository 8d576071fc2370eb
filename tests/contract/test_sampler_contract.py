"""What every Sampler must do, whatever computes it.

The suite runs against each sampler that ``make_sampler`` is parametrised with. To run it against
another one, import the tests into a module of your own and give it a ``make_sampler`` fixture: a
context manager that yields a sampler with published weights whose vocabulary has at least 64 ids.
"""

import asyncio
import contextlib
import math

import pytest

from hyperrl.errors import ContextOverflowError, SamplerClosedError
from hyperrl.sampling import Attendance, EpisodeKey, RequestKey, Sampler, SamplingParams
from hyperrl.trajectory import StopReason


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    pytest.importorskip("transformers")
    from hyperrl.train.models import make_tiny_model

    shape = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 48, "context": 64}
    return make_tiny_model(tmp_path_factory.mktemp("contract") / "tiny", seed=11, **shape)


@pytest.fixture(params=["waves", "immediate"])
def make_sampler(request, model_dir):
    import torch

    from hyperrl.train.models import load_model, named_weights
    from hyperrl.train.publication import Publisher
    from hyperrl.train.samplers import TorchSampler

    @contextlib.contextmanager
    def make():
        sampler = TorchSampler(model_dir, dtype=torch.float64, admission=request.param, max_batch=4)
        model = load_model(model_dir, dtype=torch.float64, device=torch.device("cpu"))
        Publisher([sampler]).publish(0, named_weights(model))
        try:
            yield sampler
        finally:
            sampler.close()

    return make


def name(position, ordinal=0):
    return RequestKey((0, position), 0, "main", ordinal)


def generate(sampler, position, prompt=(5, 6, 7), **params):
    return sampler.generate(
        list(prompt),
        SamplingParams(**{"max_tokens": 6, **params}),
        seed=position,
        request_id=name(position),
    )


def run(make_sampler, body):
    with make_sampler() as sampler:
        return asyncio.run(asyncio.wait_for(body(sampler), timeout=60))


def test_it_is_a_sampler(make_sampler):
    with make_sampler() as sampler:
        assert isinstance(sampler, Sampler)
        assert sampler.policy_version >= 0


def test_a_completion_describes_every_token(make_sampler):
    async def body(sampler):
        completion = await generate(sampler, 0, temperature=0.7)
        count = len(completion.action_ids)
        assert 1 <= count <= 6
        assert len(completion.logprobs) == len(completion.policy_versions) == count
        assert all(math.isfinite(x) and x <= 0 for x in completion.logprobs)
        assert set(completion.policy_versions) == {sampler.policy_version}
        assert all(isinstance(token, int) and token >= 0 for token in completion.action_ids)
        assert completion.stop_reason in (StopReason.STOP, StopReason.LENGTH)

    run(make_sampler, body)


def test_the_prompt_is_read_and_not_changed(make_sampler):
    async def body(sampler):
        prompt = [5, 6, 7]
        await sampler.generate(prompt, SamplingParams(max_tokens=2), seed=0, request_id=name(0))
        assert prompt == [5, 6, 7]

    run(make_sampler, body)


def test_the_same_seed_draws_the_same_action_and_others_differ(make_sampler):
    async def body(sampler):
        first, again = await generate(sampler, 1), await generate(sampler, 1)
        assert first == again
        several = [await generate(sampler, seed) for seed in range(2, 6)]
        assert len({tuple(c.action_ids) for c in several}) > 1

    run(make_sampler, body)


def test_concurrent_requests_each_get_their_own_answer(make_sampler):
    async def body(sampler):
        alone = [await generate(sampler, i, prompt=(3 + i,), max_tokens=3 + i) for i in range(9)]
        together = await asyncio.gather(
            *(generate(sampler, i, prompt=(3 + i,), max_tokens=3 + i) for i in range(9))
        )
        assert [c.action_ids for c in together] == [c.action_ids for c in alone]

    run(make_sampler, body)


def test_it_stops_at_a_stop_id_and_keeps_it(make_sampler):
    async def body(sampler):
        free = await generate(sampler, 2)
        stop = free.action_ids[2]
        stopped = await generate(sampler, 2, stop_ids=(stop,))
        assert stopped.action_ids[-1] == stop
        assert stop not in stopped.action_ids[:-1]
        assert stopped.stop_reason == StopReason.STOP
        assert free.stop_reason == StopReason.LENGTH

    run(make_sampler, body)


def test_temperature_0_ignores_the_seed(make_sampler):
    async def body(sampler):
        first, second = await generate(sampler, 1, temperature=0), await generate(sampler, 2, temperature=0)
        assert first == second

    run(make_sampler, body)


def test_a_full_context_is_an_error_and_a_nearly_full_one_a_length_stop(make_sampler):
    async def body(sampler):
        completion = await generate(sampler, 0, prompt=[5] * 63, max_tokens=10)
        assert len(completion.action_ids) == 1
        assert completion.stop_reason == StopReason.LENGTH
        with pytest.raises(ContextOverflowError):
            await generate(sampler, 0, prompt=[5] * 64)

    run(make_sampler, body)


def test_a_cancelled_request_leaves_the_sampler_usable(make_sampler):
    async def body(sampler):
        task = asyncio.ensure_future(generate(sampler, 0, max_tokens=60))
        await asyncio.sleep(0.005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await generate(sampler, 1)

    assert run(make_sampler, body).action_ids


def test_attendance_lets_episodes_of_unequal_length_end(make_sampler):
    async def body(sampler):
        if not isinstance(sampler, Attendance):
            return

        async def episode(position):
            async with sampler.attend(EpisodeKey((0, position), 0)):
                for _ in range(position):
                    await generate(sampler, position)

        await asyncio.gather(*(episode(position) for position in range(5)))

    run(make_sampler, body)


def test_an_episode_that_fails_does_not_hold_up_the_others(make_sampler):
    async def body(sampler):
        if not isinstance(sampler, Attendance):
            return None

        async def fails():
            async with sampler.attend(EpisodeKey((0, 1), 0)):
                await asyncio.sleep(0.01)
                raise ValueError("the environment broke")

        async def plays():
            async with sampler.attend(EpisodeKey((0, 0), 0)):
                return await generate(sampler, 0)

        return await asyncio.gather(plays(), fails(), return_exceptions=True)

    ends = run(make_sampler, body)
    assert ends is None or (ends[0].action_ids and isinstance(ends[1], ValueError))


def test_a_closed_sampler_says_so(make_sampler):
    with make_sampler() as sampler:
        pass
    with pytest.raises(SamplerClosedError):
        asyncio.run(generate(sampler, 0))
