"""Faults that users of other trainers reported, and that no other test of ours holds: rewards and answers."""

from __future__ import annotations

import pytest

from hyperrl.envs import TextEnv, reward, tool
from hyperrl.envs.grading import grade_answer, grade_math


class Leak(TextEnv):
    """A tool says the answer; only what the policy writes may be rewarded."""

    def tasks(self):
        return [{}]

    def start(self):
        return "What does the tool say?"

    @tool
    def look(self) -> str:
        """Look it up."""
        return "TOOL_LEAK"

    @reward
    def right(self, answer):
        return "TOOL_LEAK" in answer


@pytest.mark.parametrize(("answer", "expected"), [("I do not know.", 0), ("TOOL_LEAK", 1), ("", 0)])
def test_what_a_tool_says_is_not_the_policys_answer(answer, expected):
    # verl PR 6392: reward managers decoded the tool's output as part of the answer
    env = Leak()
    env.reset(seed=0)
    observation, *_ = env.step('<tool_call>{"name": "look", "arguments": {}}</tool_call>')
    assert "TOOL_LEAK" in observation
    _, found, terminated, _, _ = env.step(answer)
    assert terminated
    assert found == expected


def test_an_answer_with_a_long_tail_is_found():
    # verl PR 7274: only the last 300 characters were searched
    assert grade_answer("#### 42" + "\n" + "So it is. " * 48, "42", style="gsm8k").equal


def test_an_answer_that_cannot_be_read_moves_no_others_verdict():
    # NeMo-RL PR 3635: one that could not be parsed had two scores, and all later ones moved by one
    pytest.importorskip("math_verify")
    responses = [r"\boxed{137}", r"\boxed{}", "no box at all", r"\boxed{\frac{1}{2}}", r"\boxed{1}"]
    golds = ["137", "5", "137", "0.5", "137"]
    verdicts = [grade_math(text, gold) for text, gold in zip(responses, golds, strict=True)]
    assert [verdict.equal for verdict in verdicts] == [True, False, False, True, False]
    assert verdicts[0].extracted == "137"  # it was recorded as "1"
