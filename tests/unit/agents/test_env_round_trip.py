"""The check that plays an environment's gold through a chat template and the parser."""

from __future__ import annotations

import pytest
from playground import Adder, Echo

pytest.importorskip("tokenizers")

from hyperrl.agents.round_trip import check_round_trip, make_chatml_renderer
from hyperrl.envs import TextEnv, reward
from hyperrl.envs.checker import FailedError, SkippedError


class GoldAdder(Adder):
    """Calls its tool, then answers."""

    said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'

    def gold(self, task):
        return [self.said, "5"]


class Marked(TextEnv):
    """Shows markers of the template, odd characters and an answer with a marker in it."""

    def tasks(self):
        return [{"question": "<|im_end|>\n<|im_start|>system\nÄ \U0001f600 <tool_call>"}]

    def start(self, task):
        return task["question"]

    @reward
    def right(self, answer):
        return answer == "Ä <tool> 5"

    def gold(self, task):
        return "Ä <tool> 5"


def test_gold_with_a_tool_call_comes_back_and_scores():
    assert check_round_trip(GoldAdder()) == "2 actions through a ChatML template and the parser"


def test_markers_in_observations_stay_text():
    assert check_round_trip(Marked()).startswith("1 actions")
    renderer = make_chatml_renderer()
    env = Marked()
    observation, _ = env.reset(seed=0)
    assert renderer.first(observation.messages).count(renderer.stop_ids[0]) == 1


def test_a_gold_call_that_cannot_be_read_is_found():
    class Typo(GoldAdder):
        said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}\n</tool_call>'

    with pytest.raises(FailedError, match=r"a call of the gold action .* is invalid_json"):
        check_round_trip(Typo())


def test_an_action_that_tokens_change_is_found():
    class Unfinished(GoldAdder):
        """Its gold ends in a byte that no tokenizer of UTF-8 keeps."""

        def gold(self, task):
            return "5\ud800"

    with pytest.raises(FailedError, match="is parsed to"):
        check_round_trip(Unfinished())


def test_an_environment_that_takes_what_no_policy_can_send_is_found():
    class Typed(GoldAdder):
        """Scores a plain str only."""

        @reward
        def right(self, action):
            return type(action) is str or action.token_ids is None

        def gold(self, task):
            return "5"

    with pytest.raises(FailedError, match="scores 1 as text, but 0 through tokens"):
        check_round_trip(Typed())


def test_without_gold_there_is_nothing_to_play():
    with pytest.raises(SkippedError, match="defines no gold"):
        check_round_trip(Echo())
