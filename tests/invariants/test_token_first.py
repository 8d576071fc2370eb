"""Ids are recorded, never made again: what the sampler saw and drew is what is stored and learned from."""

import asyncio
import random
import tempfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hyperrl.agents.byte_renderer import ByteRenderer
from hyperrl.agents.recorder import PolicySeat
from hyperrl.agents.rollout import EpisodePlan, RolloutLimits, RolloutSettings, play_groups
from hyperrl.sampling import Completion, EpisodeKey, SamplingParams
from hyperrl.store import TrajectoryWriter, read_trajectories
from hyperrl.train.batching import make_segments
from hyperrl.trajectory import StopReason, Trajectory

RENDERER = ByteRenderer()
[END] = RENDERER.stop_ids
CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "2+3"}}</tool_call>'


class Babbler:
    """Draws ids that no text encodes to, now and then a tool call, and keeps what it saw and said."""

    policy_version = 0

    def __init__(self, seed: int, control: bool) -> None:
        self.random = random.Random(seed)
        self.ids = RENDERER.vocab_size if control else 256
        self.calls: dict = {}

    async def generate(self, prompt_ids, params, *, seed, request_id) -> Completion:
        await asyncio.sleep(0)
        ids = [self.random.randrange(self.ids) for _ in range(self.random.randrange(1, 30))]
        if self.random.random() < 0.6:
            ids += RENDERER.encode_action(CALL)[:-1]
        stopped = self.random.random() < 0.8
        ids = [*ids, END] if stopped else ids
        logprobs = [-self.random.random() for _ in ids]
        reason = StopReason.STOP if stopped else StopReason.LENGTH
        self.calls[request_id] = (list(prompt_ids), list(ids), logprobs, seed)
        return Completion(
            action_ids=ids, logprobs=logprobs, policy_versions=[0] * len(ids), stop_reason=reason
        )


def play(sampler: Babbler, run_seed: int = 0) -> list[Trajectory]:
    seat = PolicySeat(sampler=sampler, renderer=RENDERER, params=SamplingParams(max_tokens=200))
    settings = RolloutSettings(
        run_id="run", run_seed=run_seed, seats={"main": seat}, limits=RolloutLimits(max_turns=4)
    )
    plans = [
        EpisodePlan(
            key=EpisodeKey((0, position), sample),
            env_id="hyperrl/GSM8K-v0",
            env_kwargs={"mode": "calculator"},
            task=position,
        )
        for position in range(2)
        for sample in range(2)
    ]
    groups = asyncio.run(play_groups(plans, settings))
    return [trajectory for group in groups for trajectory in group]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
@example(0, True)
def test_the_record_is_what_the_sampler_saw_and_drew(seed, control):
    sampler = Babbler(seed, control)
    played = play(sampler)
    count = 0
    for trajectory in played:
        assert trajectory.failure is None
        for index, turn in enumerate(trajectory.turns):
            key = next(
                key
                for key in sampler.calls
                if key.episode == (trajectory.group_id, trajectory.sample_index) and key.ordinal == index
            )
            prompt, action, logprobs, _ = sampler.calls[key]
            assert trajectory.prompt_ids(index).tolist() == prompt
            assert turn.action_ids.tolist() == action
            assert turn.behavior_logprobs.tolist() == np.array(logprobs, np.float32).tolist()
            count += 1
    assert count == len(sampler.calls)

    with tempfile.TemporaryDirectory() as directory:
        TrajectoryWriter(directory).write_part(played, iteration=0)
        assert list(read_trajectories(directory)) == played


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_segment_is_the_last_prompt_and_its_answer(seed):
    for trajectory in play(Babbler(seed, control=False)):
        assert [turn.parent for turn in trajectory.turns] == [None, *range(len(trajectory.turns) - 1)]
        last = len(trajectory.turns) - 1
        whole = [*trajectory.prompt_ids(last).tolist(), *trajectory.turns[last].action_ids.tolist()]
        [segment] = make_segments(trajectory)
        assert segment.token_ids.tolist() == whole
        assert segment.sampled_mask.sum() == sum(len(turn.action_ids) for turn in trajectory.turns)


def test_seeds_of_requests_are_those_of_their_names():
    one, two = Babbler(1, control=False), Babbler(1, control=False)
    play(one)
    play(two)
    assert {key: call[3] for key, call in one.calls.items()} == {key: c[3] for key, c in two.calls.items()}
    other = Babbler(1, control=False)
    play(other, run_seed=1)
    assert all(other.calls[key][3] != call[3] for key, call in one.calls.items() if key in other.calls)


def test_no_tool_of_a_cut_action_is_run():
    class Cut(Babbler):
        async def generate(self, prompt_ids, params, *, seed, request_id) -> Completion:
            ids = RENDERER.encode_action(CALL)[:-1]
            return Completion(
                action_ids=ids,
                logprobs=[0.0] * len(ids),
                policy_versions=[0] * len(ids),
                stop_reason=StopReason.LENGTH,
            )

    for trajectory in play(Cut(0, control=False)):
        assert len(trajectory.turns) == 1
        assert [call.status for event in trajectory.events for call in event.tool_calls] == ["not_run"]
        assert trajectory.reward == pytest.approx(0.0)
