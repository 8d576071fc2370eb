"""The in-process sampler: exactness, determinism, publication, cancellation, errors."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from hyperrl.errors import (
    ConfigError,
    ContextOverflowError,
    PublicationError,
    SamplerClosedError,
    SamplingError,
)
from hyperrl.sampling import Attendance, Completion, EpisodeKey, RequestKey, Sampler, SamplingParams
from hyperrl.train.models import load_model, make_tiny_model, named_weights
from hyperrl.train.publication import Publisher, make_buckets, make_manifest
from hyperrl.train.samplers import TorchSampler
from hyperrl.trajectory import StopReason

CPU = torch.device("cpu")
CONTEXT = 96


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return make_tiny_model(
        tmp_path_factory.mktemp("tiny") / "model",
        seed=3,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        ffn=48,
        context=CONTEXT,
    )


def weights(model_dir, dtype=torch.float32, scale=1.0):
    model = load_model(model_dir, dtype=dtype, device=CPU)
    return {name: tensor * scale for name, tensor in named_weights(model).items()}


def make_sampler(model_dir, *, publish=True, dtype=torch.float32, **options):
    sampler = TorchSampler(model_dir, dtype=dtype, **options)
    if publish:
        Publisher([sampler]).publish(0, weights(model_dir, dtype))
    return sampler


def key(position, ordinal=0, sample=0):
    return RequestKey((0, position), sample, "main", ordinal)


def prompt_of(position, length=None):
    draw = random.Random(position)
    return [draw.randrange(3, 500) for _ in range(length or draw.randrange(1, 30))]


async def ask(sampler, position, *, prompt=None, seed=None, **params):
    params = SamplingParams(**{"max_tokens": 3 + position * 7 % 20, **params})
    return await sampler.generate(
        prompt or prompt_of(position),
        params,
        seed=position if seed is None else seed,
        request_id=key(position),
    )


async def held_while_decoding(sampler):
    """Wait until a row has its first tokens, then hold the sampler there."""
    while not sampler.decoding:  # noqa: ASYNC110 - another thread brings it about
        await asyncio.sleep(0)
    sampler.pause()


def run(body, sampler):
    """Run ``body()`` on an event loop and close the sampler on it."""

    async def wrapped():
        try:
            return await asyncio.wait_for(body(), timeout=60)
        finally:
            await sampler.aclose()

    return asyncio.run(wrapped())


def rescored(model, prompt, completion, temperature=1.0):
    """Logprobs of the action under one full forward of the model's own code, right-padded to 16."""
    ids = [*prompt, *completion.action_ids]
    padded = torch.tensor([ids + [0] * max(0, 16 - len(ids))])
    with torch.no_grad():
        logits = model(input_ids=padded).logits[0, len(prompt) - 1 : len(ids) - 1]
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return logprobs.gather(1, torch.tensor(completion.action_ids)[:, None])[:, 0]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 0.0), (torch.float32, 2e-6)])
def test_decoding_gives_the_logprobs_of_a_full_forward(model_dir, dtype, limit, attention):
    model = load_model(model_dir, dtype=dtype, device=CPU, attention=attention)
    sampler = make_sampler(model_dir, dtype=dtype, attention=attention, max_batch=5, admission="immediate")

    async def body():  # more rows than slots, of unequal length: joins and leaves at every few tokens
        return await asyncio.gather(*(ask(sampler, i, temperature=0.8) for i in range(16)))

    completions = run(body, sampler)
    differences = [
        (rescored(model, prompt_of(i), completion, 0.8) - torch.tensor(completion.logprobs)).abs().max()
        for i, completion in enumerate(completions)
    ]
    assert max(differences) <= limit
    assert [len(c.action_ids) for c in completions] == [3 + i * 7 % 20 for i in range(16)]


FAMILY_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def make_family(directory, name, **options):
    """Save a random model of a transformers family whose norms and biases are not trivial."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**FAMILY_SIZES, **options)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    model.save_pretrained(directory)


def check_exactness(directory, **options):
    model = load_model(directory, dtype=torch.float64, device=CPU, **options)
    sampler = TorchSampler(directory, dtype=torch.float64, max_batch=3, **options)
    Publisher([sampler]).publish(0, named_weights(model))
    prompts = [[token % 64 for token in prompt_of(i)] for i in range(6)]

    async def body():
        return await asyncio.gather(*(ask(sampler, i, prompt=p) for i, p in enumerate(prompts)))

    for prompt, completion in zip(prompts, run(body, sampler), strict=True):
        assert torch.equal(rescored(model, prompt, completion), torch.tensor(completion.logprobs))


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Mistral", {"sliding_window": None}),
        ("Qwen2", {"rope_parameters": YARN}),
        ("Qwen3", {"head_dim": 16}),
    ],
)
def test_each_cached_family_is_exact(tmp_path, caplog, name, options, attention):
    make_family(tmp_path, name, **options)
    check_exactness(tmp_path, attention=attention)
    assert "without a key/value cache" not in caplog.text


@pytest.mark.parametrize(
    ("name", "options"), [("Mistral", {"sliding_window": 8}), ("Gemma2", {"head_dim": 8})]
)
def test_other_architectures_use_their_own_forward(tmp_path, caplog, name, options):
    make_family(tmp_path, name, **options)
    check_exactness(tmp_path)
    assert "without a key/value cache" in caplog.text


def test_it_satisfies_its_contracts(model_dir):
    sampler = make_sampler(model_dir)
    assert isinstance(sampler, Sampler)
    assert isinstance(sampler, Attendance)
    sampler.close()


def test_what_a_row_draws_does_not_depend_on_its_company(model_dir):
    sampler = make_sampler(model_dir, dtype=torch.float64, max_batch=8)

    async def body():
        alone = await ask(sampler, 2)
        crowd = await asyncio.gather(*(ask(sampler, i) for i in (5, 4, 3, 2, 1, 0)))
        return alone, crowd[3]

    alone, among_others = run(body, sampler)
    assert alone == among_others


def test_equal_prompts_are_read_once_and_answered_by_their_own_seeds(model_dir):
    model = load_model(model_dir, dtype=torch.float64, device=CPU)
    sampler = make_sampler(model_dir, dtype=torch.float64, max_batch=8)
    prompt = prompt_of(1, 20)

    async def body():
        requests = (ask(sampler, 1, prompt=prompt, seed=s, max_tokens=12) for s in range(6))
        return await asyncio.gather(*requests)

    completions = run(body, sampler)
    assert len({tuple(c.action_ids) for c in completions}) == 6
    for completion in completions:
        assert torch.equal(rescored(model, prompt, completion), torch.tensor(completion.logprobs))


async def play(sampler, episodes, *, shuffle):
    """Episodes of 1 to 3 turns whose context grows; returns the completions by request."""
    rng = random.Random(shuffle)
    found = {}

    async def episode(position):
        async with sampler.attend(EpisodeKey((0, position), 0)):
            ids = prompt_of(position)
            for ordinal in range(1 + position % 3):
                await asyncio.sleep(rng.random() * 0.01 if shuffle else 0)
                name = key(position, ordinal)
                params = SamplingParams(max_tokens=4 + position % 5)
                completion = await sampler.generate(
                    ids, params, seed=position * 10 + ordinal, request_id=name
                )
                found[name] = completion
                ids = [*ids, *completion.action_ids, 7]

    order = list(range(episodes))
    rng.shuffle(order)
    await asyncio.gather(*(episode(position) for position in order))
    return found


@pytest.mark.parametrize("max_batch", [4, 16])
def test_waves_give_the_same_bits_in_any_order_of_arrival(model_dir, max_batch):
    sampler = make_sampler(model_dir, max_batch=max_batch, admission="waves")

    async def body():
        return [await play(sampler, 12, shuffle=shuffle) for shuffle in (0, 1, 2, 3)]

    first, *others = run(body, sampler)
    assert len(first) == sum(1 + i % 3 for i in range(12))
    assert all(other == first for other in others)


def test_a_wave_waits_for_every_live_episode(model_dir):
    sampler = make_sampler(model_dir, admission="waves")

    async def body():
        async with sampler.attend(EpisodeKey((0, 0), 0)):
            leaving = sampler.attend(EpisodeKey((0, 1), 0))
            await leaving.__aenter__()
            waiting = asyncio.ensure_future(ask(sampler, 0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await leaving.__aexit__(None, None, None)
            return await waiting

    assert run(body, sampler).stop_reason == StopReason.LENGTH


def test_a_request_that_nobody_announced_does_not_wait_for_a_wave(model_dir):
    sampler = make_sampler(model_dir, admission="waves")

    async def body():
        async with sampler.attend(EpisodeKey((0, 0), 0)):
            return await ask(sampler, 9)

    assert len(run(body, sampler).action_ids) == 3 + 63 % 20


def test_two_requests_of_one_episode_share_a_wave(model_dir):
    sampler = make_sampler(model_dir, admission="waves")

    async def body():
        async with sampler.attend(EpisodeKey((0, 0), 0)):
            params = SamplingParams(max_tokens=3)
            requests = (sampler.generate([5, 6], params, seed=n, request_id=key(0, n)) for n in range(3))
            return await asyncio.gather(*requests)

    assert len(run(body, sampler)) == 3


def test_immediate_requests_join_while_others_decode(model_dir):
    sampler = make_sampler(model_dir, admission="immediate")

    async def body():
        long = asyncio.ensure_future(ask(sampler, 0, prompt=[5], max_tokens=CONTEXT))
        await held_while_decoding(sampler)
        short = asyncio.ensure_future(ask(sampler, 1, max_tokens=1))
        await asyncio.sleep(0.01)
        sampler.resume()
        ended = []
        long.add_done_callback(lambda _: ended.append("long"))
        short.add_done_callback(lambda _: ended.append("short"))
        await asyncio.gather(long, short)
        return ended

    assert run(body, sampler) == ["short", "long"]


def test_stop_ids_end_the_action_and_belong_to_it(model_dir):
    sampler = make_sampler(model_dir, dtype=torch.float64)

    async def body():
        free = await ask(sampler, 4, max_tokens=20)
        stop = free.action_ids[6]
        stopped = await ask(sampler, 4, max_tokens=20, stop_ids=(stop,))
        return free, stopped, free.action_ids.index(stop)

    free, stopped, end = run(body, sampler)
    assert stopped.action_ids == free.action_ids[: end + 1]
    assert stopped.logprobs == free.logprobs[: end + 1]
    assert stopped.stop_reason == StopReason.STOP
    assert free.stop_reason == StopReason.LENGTH


def test_temperature_0_takes_the_most_likely_token_and_reports_at_1(model_dir):
    model = load_model(model_dir, dtype=torch.float64, device=CPU)
    sampler = make_sampler(model_dir, dtype=torch.float64)
    prompt = prompt_of(1, 20)

    async def body():
        return await asyncio.gather(
            ask(sampler, 0, prompt=prompt, temperature=0, max_tokens=9),
            ask(sampler, 1, prompt=prompt, temperature=0, max_tokens=9),
            ask(sampler, 2, prompt=prompt, top_k=1, max_tokens=9),
        )

    greedy, again, top_1 = run(body, sampler)
    assert greedy.action_ids == again.action_ids == top_1.action_ids
    assert torch.equal(rescored(model, prompt, greedy), torch.tensor(greedy.logprobs))
    assert greedy.logprobs == top_1.logprobs, "logprobs are reported before any truncation"


def test_the_context_ends_an_action_with_length(model_dir):
    sampler = make_sampler(model_dir)

    async def body():
        completion = await ask(sampler, 0, prompt=[5] * (CONTEXT - 2), max_tokens=50)
        with pytest.raises(ContextOverflowError, match=f"{CONTEXT} tokens leaves no room"):
            await ask(sampler, 1, prompt=[5] * CONTEXT)
        return completion

    completion = run(body, sampler)
    assert len(completion.action_ids) == 2
    assert completion.stop_reason == StopReason.LENGTH


@pytest.mark.parametrize(("prompt", "message"), [([512], "token id 512 is outside"), ([-1], "token id -1")])
def test_unknown_ids_are_refused(model_dir, prompt, message):
    sampler = make_sampler(model_dir)
    with pytest.raises(SamplingError, match=message):
        run(lambda: ask(sampler, 0, prompt=prompt), sampler)


def test_an_empty_prompt_is_refused(model_dir):
    sampler = make_sampler(model_dir)
    with pytest.raises(SamplingError, match="no token"):
        run(lambda: sampler.generate([], SamplingParams(max_tokens=1), seed=0, request_id=key(0)), sampler)


def test_options_are_checked(model_dir):
    with pytest.raises(ConfigError, match="Did you mean 'waves'"):
        TorchSampler(model_dir, admission="wave")
    with pytest.raises(ConfigError, match="max_batch"):
        TorchSampler(model_dir, max_batch=0)


def test_nothing_is_sampled_before_the_first_publication(model_dir):
    sampler = make_sampler(model_dir, publish=False)
    assert sampler.policy_version == -1
    assert sampler.digest is None
    with pytest.raises(SamplerClosedError, match="no policy version was published"):
        run(lambda: ask(sampler, 0), sampler)


def test_a_publication_changes_rows_on_their_way(model_dir):
    old, new = weights(model_dir, torch.float64), weights(model_dir, torch.float64, scale=1.5)
    sampler = make_sampler(model_dir, dtype=torch.float64, max_batch=4)
    models = {}
    for version, named in enumerate((old, new)):
        models[version] = load_model(model_dir, dtype=torch.float64, device=CPU)
        models[version].load_state_dict(named, strict=False)
    prompt = prompt_of(3, 20)

    async def body():
        tasks = [
            asyncio.ensure_future(ask(sampler, i, prompt=prompt, seed=i, max_tokens=70)) for i in range(3)
        ]
        await held_while_decoding(sampler)
        await asyncio.get_running_loop().run_in_executor(None, Publisher([sampler]).publish, 1, new)
        return await asyncio.gather(*tasks)

    completions = run(body, sampler)
    assert {v for c in completions for v in c.policy_versions} == {0, 1}
    for completion in completions:
        versions = torch.tensor(completion.policy_versions)
        assert torch.equal(versions, versions.sort().values)
        by_version = [rescored(models[v], prompt, completion) for v in (0, 1)]
        expected = torch.where(versions == 0, *by_version)
        assert torch.equal(expected, torch.tensor(completion.logprobs)), "no cached key outlives its version"


def test_pause_holds_requests_and_resume_lets_them_go(model_dir):
    sampler = make_sampler(model_dir)

    async def body():
        sampler.pause()
        waiting = asyncio.ensure_future(ask(sampler, 0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        sampler.resume()
        return await waiting

    assert isinstance(run(body, sampler), Completion)


def staged(sampler, version, named):
    sampler.begin(make_manifest(version, named))
    for bucket in make_buckets(named, 10_000):
        sampler.stage(bucket)


def test_a_version_goes_up_and_is_never_replaced_by_other_weights(model_dir):
    sampler = make_sampler(model_dir)
    same, other = weights(model_dir), weights(model_dir, scale=2.0)
    Publisher([sampler]).publish(0, same)
    with pytest.raises(PublicationError, match="cannot be replaced"):
        sampler.begin(make_manifest(0, other))
    Publisher([sampler]).publish(5, other)
    with pytest.raises(PublicationError, match="older than version 5"):
        sampler.begin(make_manifest(4, same))
    assert sampler.policy_version == 5
    assert sampler.digest == make_manifest(9, other).digest
    sampler.close()


def test_a_commit_needs_verify_and_verify_needs_every_byte(model_dir):
    sampler = make_sampler(model_dir)
    other = weights(model_dir, scale=2.0)
    with pytest.raises(PublicationError, match="no publication was begun"):
        sampler.commit()
    staged(sampler, 1, other)
    with pytest.raises(PublicationError, match="not verified"):
        sampler.commit()
    with pytest.raises(PublicationError, match="still being staged"):
        sampler.begin(make_manifest(2, other))
    sampler.stage({"model.norm.weight": other["model.norm.weight"] + 1})
    with pytest.raises(PublicationError, match=r"'model\.norm\.weight' arrived damaged"):
        sampler.verify()
    with pytest.raises(PublicationError, match="not verified"):
        sampler.commit()
    sampler.abort()
    assert sampler.policy_version == 0
    sampler.close()


def test_cancelling_frees_the_place_of_a_request(model_dir):
    sampler = make_sampler(model_dir, max_batch=1)

    async def body():
        decoding = asyncio.ensure_future(ask(sampler, 0, prompt=[5], max_tokens=CONTEXT))
        await held_while_decoding(sampler)
        waiting = asyncio.ensure_future(ask(sampler, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        decoding.cancel()
        cancelled = await asyncio.gather(decoding, waiting, return_exceptions=True)
        sampler.resume()
        return cancelled, await ask(sampler, 2)

    cancelled, after = run(body, sampler)
    assert [type(error) for error in cancelled] == [asyncio.CancelledError] * 2
    assert isinstance(after, Completion)


def test_a_cancelled_row_does_not_hold_up_the_next_wave(model_dir):
    sampler = make_sampler(model_dir, admission="waves")

    async def body():
        async with sampler.attend(EpisodeKey((0, 0), 0)):
            gone = asyncio.ensure_future(ask(sampler, 0, prompt=[5], max_tokens=CONTEXT))
            await held_while_decoding(sampler)
            gone.cancel()
            await asyncio.sleep(0)
            sampler.resume()
            return await ask(sampler, 0)

    assert isinstance(run(body, sampler), Completion)


def test_closing_fails_what_waits_and_what_comes_later(model_dir):
    sampler = make_sampler(model_dir, max_batch=1)

    async def body():
        tasks = [asyncio.ensure_future(ask(sampler, i, prompt=[5], max_tokens=CONTEXT)) for i in range(3)]
        await held_while_decoding(sampler)
        await sampler.aclose()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(SamplerClosedError, match="closed"):
            await ask(sampler, 4)
        return ends

    assert [type(end) for end in run(body, sampler)] == [SamplerClosedError] * 3


def test_weights_that_overflow_fail_the_request_and_not_the_sampler(model_dir):
    good, bad = weights(model_dir), weights(model_dir)
    bad["model.norm.weight"] = torch.full_like(bad["model.norm.weight"], float("nan"))
    sampler = make_sampler(model_dir, publish=False)
    Publisher([sampler]).publish(0, bad)

    async def body():
        with pytest.raises(SamplingError, match=r"0-3-0-main-0: the model's logits are not finite"):
            await ask(sampler, 3)
        Publisher([sampler]).publish(1, good)
        return await ask(sampler, 3)

    assert isinstance(run(body, sampler), Completion)


def test_an_exception_while_decoding_fails_its_requests_and_hangs_nobody(model_dir):
    sampler = make_sampler(model_dir)
    activation = sampler._model.get_submodule("model.layers.1.mlp.act_fn")
    forward = activation.forward

    async def body():
        activation.forward = lambda states: forward(states)[:, :5]
        ends = await asyncio.gather(*(ask(sampler, i) for i in range(3)), return_exceptions=True)
        activation.forward = forward
        return ends, await ask(sampler, 0)

    ends, after = run(body, sampler)
    assert all(type(end) is SamplingError and "decoding failed: RuntimeError" in str(end) for end in ends)
    assert isinstance(after, Completion)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_fails_takes_nobody_with_it(model_dir):
    sampler = make_sampler(model_dir, max_batch=1)

    def fail(_count):
        raise RuntimeError("admission is broken")

    async def body():
        first = asyncio.ensure_future(ask(sampler, 0, prompt=[5], max_tokens=CONTEXT))
        await held_while_decoding(sampler)
        second = asyncio.ensure_future(ask(sampler, 1))
        await asyncio.sleep(0)
        sampler._thread._admission.take = fail
        sampler.resume()
        return await asyncio.gather(first, second, return_exceptions=True)

    ends = run(body, sampler)
    assert [type(end) for end in ends] == [SamplerClosedError] * 2


def test_requests_of_several_event_loops_are_answered_on_their_own(model_dir):
    sampler = make_sampler(model_dir, admission="immediate")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda i: asyncio.run(ask(sampler, i, max_tokens=9)), range(3)))
    sampler.close()
    assert [len(completion.action_ids) for completion in found] == [9, 9, 9]
