"""Programs over the official clients, recorded token by token through the real Qwen3 tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from playground import CountingPool, plans

pytest.importorskip("uvicorn")
import openai
from wire_clients import AGENTS, Said, agent_program

from hyperrl.agents.base import EpisodeContext, FunctionProgram
from hyperrl.agents.recorder import PolicySeat
from hyperrl.agents.rendering import TemplateRenderer, load_renderer
from hyperrl.agents.rollout import RolloutLimits, RolloutSettings, play_groups
from hyperrl.agents.scripted import ScriptedSampler
from hyperrl.harness.gateway import Gateway, GatewaySettings
from hyperrl.sampling import Completion, RequestKey, SamplingParams
from hyperrl.train.batching import make_segments
from hyperrl.trajectory import StopReason, Trajectory, TruncationReason

CALL = '<tool_call>\n{"name": "add",   "arguments": {"b": 3, "a": 2}}\n</tool_call>'
BAD = '<tool_call>\n{"name": "add", "arguments": {"a": 2,, }\n</tool_call>'
SCRIPT = (
    f"<think>\nI should add.\n</think>\n\nLet me see.\n{CALL}\n{CALL}",
    BAD,
    f"{CALL}",
    "<think>\nThat is it.\n</think>\n\n5",
)
WAYS = [(kind, stream) for kind in AGENTS for stream in (False, True)]


class Spy(ScriptedSampler):
    """Keeps what it was given and what it gave; every token has a logprob of its own."""

    def __init__(self, renderer: TemplateRenderer, script: Any, **options: Any) -> None:
        super().__init__(renderer, script, policy_version=3, **options)
        self.prompts: dict[RequestKey, Sequence[int]] = {}
        self.actions: dict[RequestKey, Sequence[int]] = {}
        self.params: dict[RequestKey, SamplingParams] = {}

    async def generate(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, seed: int, request_id: RequestKey
    ) -> Completion:
        drawn = await super().generate(prompt_ids, params, seed=seed, request_id=request_id)
        self.prompts[request_id], self.actions[request_id] = prompt_ids, drawn.action_ids
        self.params[request_id] = params
        logprobs = [-0.001 * (i + 1) for i in range(len(drawn.action_ids))]
        return Completion(
            action_ids=drawn.action_ids,
            logprobs=logprobs,
            policy_versions=drawn.policy_versions,
            stop_reason=drawn.stop_reason,
        )


@pytest.fixture(scope="module")
def renderer(qwen3_dir: Any) -> TemplateRenderer:
    return load_renderer(qwen3_dir)


def play(
    program: Any,
    sampler: Any,
    renderer: Any,
    *,
    episodes: int = 1,
    limits: RolloutLimits | None = None,
    gateway: GatewaySettings | None = None,
    seats: Mapping[str, Any] | None = None,
    max_tokens: int = 256,
) -> list[Trajectory]:
    seat = PolicySeat(sampler=sampler, renderer=renderer, params=SamplingParams(max_tokens=max_tokens))

    async def main() -> list[Trajectory]:
        before = asyncio.all_tasks()
        async with Gateway(gateway) as served:
            settings = RolloutSettings(
                run_id="run",
                run_seed=7,
                seats=seats or {"main": seat},
                program=FunctionProgram("client", program),
                limits=limits or RolloutLimits(wall_clock_s=60),
                gateway=served,
            )
            groups = await play_groups(plans("Adder", 1, episodes), settings, envs=CountingPool())
            assert not served.sessions
        assert asyncio.all_tasks() == before
        return list(groups[0].trajectories)

    return asyncio.run(main())


def check_token_exact(trajectory: Trajectory, spy: Spy) -> None:
    """Assert that every sampled token stands in the record once, after exactly the prompt that drew it."""
    keys = sorted(key for key in spy.prompts if key.sample_index == trajectory.sample_index)
    assert len(trajectory.turns) == len(keys)
    for index, (turn, key) in enumerate(zip(trajectory.turns, keys, strict=True)):
        assert turn.action_ids.tolist() == list(spy.actions[key])
        assert trajectory.prompt_ids(index).tolist() == list(spy.prompts[key])
        assert turn.behavior_logprobs is not None
        wanted = -0.001 * (np.arange(len(turn.action_ids), dtype=np.float32) + 1)
        np.testing.assert_allclose(turn.behavior_logprobs, wanted, rtol=1e-5)
        assert set(turn.policy_versions.tolist()) == {3}
        if turn.parent is not None:
            parent = keys[turn.parent]
            before = [*spy.prompts[parent], *spy.actions[parent]]
            assert list(spy.prompts[key][: len(before)]) == before


@pytest.mark.parametrize(("kind", "stream"), WAYS)
def test_a_program_with_an_official_client_is_recorded_token_exactly(
    kind: str, stream: bool, renderer: TemplateRenderer
) -> None:
    spy, said = Spy(renderer, SCRIPT), list[Said]()
    [trajectory] = play(agent_program(kind, stream=stream, said=said), spy, renderer)
    assert trajectory.failure is None
    assert trajectory.reward == 1.0
    assert trajectory.terminated
    assert not trajectory.truncated
    check_token_exact(trajectory, spy)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1, 2]
    assert {turn.use for turn in trajectory.turns} == {"train"}
    assert trajectory.metrics["new_root_rate"] == 0.0
    assert trajectory.metrics["delivered_fraction"] == 1.0
    assert trajectory.metrics["gateway_requests"] == 4

    first, bad, again, last = said
    assert (first.text, first.reasoning, first.end) == ("Let me see.", "I should add.", "tools")
    assert [name for _, name, _ in first.calls] == ["add", "add"]
    assert len({call_id for answer in said for call_id, _, _ in answer.calls}) == 4
    assert bad.end == again.end == "tools"
    assert (last.text, last.reasoning, last.end) == ("5", "That is it.", "stop")
    usage = [(len(trajectory.prompt_ids(i)), len(t.action_ids)) for i, t in enumerate(trajectory.turns)]
    assert [answer.usage for answer in said] == usage
    assert [record.result for record in trajectory.events[0].tool_calls] == ["5", "5"]
    assert trajectory.events[1].tool_calls[0].status == "invalid_json"


def test_all_formats_give_the_policy_the_same_tokens(renderer: TemplateRenderer) -> None:
    prompts = []
    for kind, stream in WAYS:
        spy = Spy(renderer, SCRIPT[:1] + SCRIPT[2:])
        play(agent_program(kind, stream=stream), spy, renderer)
        prompts.append([list(prompt) for prompt in spy.prompts.values()])
    assert all(found == prompts[0] for found in prompts)


@pytest.mark.parametrize(("kind", "stream"), WAYS)
def test_an_answer_cut_by_length_ends_the_episode_truncated_and_scored(
    kind: str, stream: bool, renderer: TemplateRenderer
) -> None:
    said = list[Said]()

    async def gives_up(ctx: EpisodeContext) -> None:
        await agent_program(kind, stream=stream, said=said)(ctx)

    async def fails(ctx: EpisodeContext) -> None:
        agent = AGENTS[kind](ctx.base_url, ctx.api_key, stream=stream)
        said.append(await agent.ask(agent.user("go"), ctx.tools))
        await agent.close()
        raise RuntimeError("the answer is not complete")

    for program in (gives_up, fails):
        said.clear()
        spy = Spy(renderer, SCRIPT)
        [trajectory] = play(program, spy, renderer, max_tokens=24)
        assert trajectory.failure is None
        assert trajectory.truncated
        assert trajectory.truncation_reason is TruncationReason.MAX_TOKENS
        assert trajectory.reward == 0.0
        assert trajectory.turns[0].stop_reason is StopReason.LENGTH
        assert said[0].end == "length"
        assert said[0].calls == []  # half a call, or a whole one before the cut, is never run


def test_a_limit_ends_the_episode_truncated_not_failed(renderer: TemplateRenderer) -> None:
    for limits, reason, ways in (
        (RolloutLimits(max_turns=2, wall_clock_s=60), TruncationReason.MAX_TURNS, WAYS[::2]),
        (RolloutLimits(max_context=430, wall_clock_s=60), TruncationReason.CONTEXT, WAYS[1::2]),
    ):
        for kind, stream in ways:
            program = agent_program(kind, stream=stream)
            [trajectory] = play(program, Spy(renderer, [CALL] * 50), renderer, limits=limits)
            assert trajectory.failure is None
            assert trajectory.truncation_reason is reason
            assert trajectory.reward == 0.0


def test_many_episodes_share_one_gateway(renderer: TemplateRenderer) -> None:
    spy = Spy(renderer, SCRIPT)
    ended = play(agent_program("responses", stream=True), spy, renderer, episodes=12)
    for trajectory in ended:
        assert trajectory.reward == 1.0
        check_token_exact(trajectory, spy)


def test_of_two_seats_the_frozen_one_is_never_learned_from(renderer: TemplateRenderer) -> None:
    async def talk(ctx: EpisodeContext) -> None:
        async with openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key) as client:
            heard = [{"role": "user", "content": "start"}]
            for speaker in ("opponent", "main", "opponent", "main"):  # each hears the other as its user
                asked = [*heard] if speaker == "main" else [{"role": "user", "content": "x"}, *heard]
                answer = await client.chat.completions.create(model=speaker, messages=asked)  # type: ignore[arg-type]
                heard += [{"role": "user", "content": str(answer.choices[0].message.content)}]
        await ctx.step("5")

    learns = Spy(renderer, ["I learn", "I learn more"])
    frozen = Spy(renderer, ["I am frozen", "I stay frozen"])
    params = SamplingParams(max_tokens=64)
    seats = {
        "opponent": PolicySeat(sampler=frozen, renderer=renderer, params=params, frozen=True),
        "main": PolicySeat(sampler=learns, renderer=renderer, params=params),
    }
    limits = RolloutLimits(max_turns=2, wall_clock_s=60)
    [trajectory] = play(talk, None, renderer, seats=seats, limits=limits)
    assert trajectory.reward == 1.0
    assert [(turn.policy, turn.use) for turn in trajectory.turns] == [
        ("opponent", "side"),
        ("main", "train"),
    ] * 2
    assert {trajectory.turns[i].policy for i in trajectory.main_path} == {"main"}
    learned = np.concatenate([s.token_ids[s.loss_mask] for s in make_segments(trajectory)])
    drawn = [token for action in learns.actions.values() for token in action]
    assert sorted(learned.tolist()) == sorted(drawn)
    sampled = sum(map(len, [*learns.actions.values(), *frozen.actions.values()]))
    assert trajectory.metrics["delivered_fraction"] == pytest.approx(len(drawn) / sampled)
