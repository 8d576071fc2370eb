"""Rollouts through real tokenizers and chat templates: the record is what the sampler was given."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playground import CountingPool, SpySampler, plans, settings

from hyperrl.agents.recorder import PolicySeat
from hyperrl.agents.rendering import Renderer, load_renderer
from hyperrl.agents.rollout import play_groups
from hyperrl.sampling import Completion, RequestKey, SamplingParams
from hyperrl.trajectory import Trajectory

CALL = (
    '<think>\nadd them\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
)


class Spy(SpySampler):
    """Keeps what it answered, too."""

    def __init__(self, renderer: Renderer, script: object) -> None:
        super().__init__(script)
        self._renderer = renderer
        self.answers: dict[RequestKey, Completion] = {}

    async def generate(self, *args: object, **names: object) -> Completion:
        completion = await super().generate(*args, **names)  # type: ignore[arg-type]
        self.answers[names["request_id"]] = completion  # type: ignore[index]
        return completion


def play(renderer: Renderer, env_id: str, script: object, **kwargs: object) -> tuple[list[Trajectory], Spy]:
    sampler = Spy(renderer, script)
    sitting = PolicySeat(sampler=sampler, renderer=renderer, params=SamplingParams(max_tokens=200))
    shared = settings(sampler, seats={"main": sitting})
    groups = asyncio.run(play_groups(plans(env_id, 2, 2, **kwargs), shared, envs=CountingPool()))
    return [trajectory for group in groups for trajectory in group], sampler


def check_exact(trajectories: list[Trajectory], sampler: Spy) -> None:
    for trajectory in trajectories:
        assert trajectory.failure is None
        for i, turn in enumerate(trajectory.turns):
            key = RequestKey(trajectory.group_id, trajectory.sample_index, "main", i)
            assert trajectory.prompt_ids(i).tolist() == sampler.prompts[key]
            assert turn.action_ids.tolist() == list(sampler.answers[key].action_ids)
            assert turn.parent == (i - 1 if i else None)


def test_a_byte_level_chatml_model(chatml_dir: Path) -> None:
    renderer = load_renderer(chatml_dir)
    trajectories, sampler = play(renderer, "Echo", lambda prompt, key: f"turn {key.ordinal} é 🙂", turns=12)
    check_exact(trajectories, sampler)
    assert [len(trajectory.turns) for trajectory in trajectories] == [12] * 4


@pytest.mark.parametrize("fixture", ["qwen3_dir", "smollm2_tokenizer_dir"])
def test_tools_through_a_real_template(fixture: str, request: pytest.FixtureRequest) -> None:
    renderer = load_renderer(request.getfixturevalue(fixture))
    trajectories, sampler = play(renderer, "Adder", [CALL, "<think>\nread it\n</think>\n\n5"])
    check_exact(trajectories, sampler)
    for trajectory in trajectories:
        assert [record.status for record in trajectory.events[0].tool_calls] == ["ok"]
        assert trajectory.reward == 1.0
    text = renderer.decode(sampler.prompts[RequestKey((0, 0), 0, "main", 1)])
    assert "add them" in text, "the reasoning of earlier turns is kept"
