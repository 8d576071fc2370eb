from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from hyperrl.agents.rendering import TemplateRenderer
from hyperrl.errors import SamplingError, TemplateError

Family = Callable[[str], TemplateRenderer]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}
USER = {"role": "user", "content": "What is 2 + 3?"}
PATTERNS = [("user",), ("tool",), ("tool", "tool"), ("tool", "user"), ("system",)]


def _names(text: str) -> list[str]:
    return text.split()


HOLDS = _names(
    """
    llama3 llama3_training llama3_1 llama3_2 lfm2 lfm2_training lfm2_v2 lfm2_v2_training lfm2_2_5
    lfm2_2_5_v2 lfm2_2_5_vl gemma4_v2 nemotron_3_nano nemotron_3_nano_training nemotron_3_super
    nemotron_3_super_training nemotron_3_ultra nemotron_3_ultra_training nemotron_3_5_lightning
    nemotron_3_5_lightning_training qwen2_5 qwen2_5_training qwen2_5_vl qwen2_5_vl_training qwen3
    qwen3_training qwen3_instruct_2507 qwen3_instruct_2507_training
    """
)
NO_SYSTEM = _names(
    """
    qwen3_5_nothink qwen3_5_nothink_training qwen3_5_think qwen3_5_think_training qwen3_6
    qwen3_6_training qwen3_8 qwen3_8_training qwen3_vl qwen3_vl_training
    """
)
NO_TOOLS = _names(
    """
    phi3 phi3_training phi3_5 phi3_5_training gemma4 gemma4_v3 gemma4_v4 gemma4_v5 diffusion_gemma
    diffusion_gemma_training
    """
)
USER_ONLY = _names(
    """
    cohere cohere_training deepseek_r1_distill deepseek_r1_distill_training deepseekv3
    deepseekv3_training gemma gemma_training gemma3 gemma3_training glm4moe_training muse_glimmer
    muse_glimmer_training
    """
)
REFUSED = _names(
    """
    cohere2 cohere2_training glm4moe gptoss gptoss_training idefics3
    idefics3_training llava_next llava_next_training smolvlm smolvlm_training
    """
)


def messages(*roles: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": f"This is {role} {i}."} for i, role in enumerate(roles)]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (HOLDS, set()),
        (NO_SYSTEM, {("system",)}),
        (NO_TOOLS, {("tool",), ("tool", "tool"), ("tool", "user")}),
        (USER_ONLY, {("tool",), ("tool", "tool"), ("tool", "user"), ("system",)}),
    ],
    ids=["all", "no system", "no tools", "user only"],
)
def test_which_templates_hold(family: Family, names: list[str], refused: set[tuple[str, ...]]) -> None:
    for name in names:
        assert set(family(name).refused) == refused, name


def test_refused_templates_say_why(family: Family) -> None:
    for name in REFUSED:
        with pytest.raises(TemplateError, match=rf"{name}: .*cannot be bridged.*Use a model with"):
            family(name)


def test_every_template_found_is_in_the_table(trl_templates: dict[str, str]) -> None:
    assert set(trl_templates) == {*HOLDS, *NO_SYSTEM, *NO_TOOLS, *USER_ONLY, *REFUSED}


def test_a_refused_pattern_is_refused_with_the_failing_example(family: Family) -> None:
    renderer = family("deepseek_r1_distill")
    action = renderer.encode_action("x")
    assert renderer.bridge(action, messages("user"))
    with pytest.raises(TemplateError, match=r"\[tool\] after .*depends on the history: .*Example 0"):
        renderer.bridge(action, messages("tool"))
    phi = family("phi3")
    with pytest.raises(TemplateError, match=r"leaves 'Example 0 of a tool message\.' out"):
        phi.bridge(action, messages("tool"))
    with pytest.raises(TemplateError, match=r"leaves 'Example 0 of a tool message\.' out"):
        phi.first([USER, {"role": "tool", "content": "5"}])
    with pytest.raises(TemplateError, match="System message must be at the beginning"):
        family("qwen3_5_think").prove(("system",))


@pytest.mark.parametrize("name", ["qwen3", "smollm2", "chatml"])
def test_all_patterns_hold_on_our_models(request: pytest.FixtureRequest, name: str) -> None:
    renderer: TemplateRenderer = request.getfixturevalue(name)
    assert not renderer.refused
    for pattern in (*PATTERNS, ("tool",) * 7, ("user", "user"), ("system", "user"), ()):
        renderer.prove(pattern)


@pytest.mark.parametrize("roles", PATTERNS[:4], ids=",".join)
@pytest.mark.parametrize(
    "name", ["chatml", "smollm2", "qwen2_5_training", "llama3", "lfm2", "qwen3_instruct_2507"]
)
def test_a_bridged_conversation_is_what_the_template_renders_whole(
    request: pytest.FixtureRequest, family: Family, name: str, roles: tuple[str, ...]
) -> None:
    """On templates that keep what they wrote before, and for actions as the template would write them."""
    ours = ("chatml", "smollm2")
    renderer: TemplateRenderer = request.getfixturevalue(name) if name in ours else family(name)
    new = messages(*roles)
    history: list[dict[str, Any]] = [USER]
    ids = renderer.first(history)
    for turn in range(4):
        text = f"Answer {turn}."
        action = renderer.encode_action(text)
        ids += action + renderer.bridge(action, new)
        history += [{"role": "assistant", "content": text}, *new]
        assert ids == renderer.first(history)


def test_a_qwen3_bridge_is_the_tail_of_the_whole_rendering(qwen3: TemplateRenderer) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    asks = {"role": "assistant", "content": "", "tool_calls": [call, call]}
    for new in (
        messages("tool", "tool"),
        messages("user"),
        messages("tool", "tool", "user"),
        messages("system"),
    ):
        whole = qwen3.first([USER, asks, *new], [TOOL])
        tail = qwen3.bridge([qwen3.stop_ids[0]], new)
        assert whole[-len(tail) :] == tail
        assert whole[-len(tail) - 1] == qwen3.stop_ids[0]


def sampled_action(renderer: TemplateRenderer, drawn: random.Random, turn: int) -> list[int]:
    """Return ids as a policy may sample them: reasoning, odd splits, broken characters, no stop token."""
    text = f"<think>\nstep {turn}: 日本 🧑‍🚀\n</think>\n\nThe value is {turn}."
    if turn % 3 == 0:
        text += f'\n<tool_call>\n{{"name": "add", "arguments": {{"a": {turn}, "b": 1}}}}\n</tool_call>'
    ids = renderer.encode_action(text)
    if turn % 2:  # letter by letter: not what an encoder would have made of it
        ids = [i for letter in text for i in renderer.encode_action(letter)[:-1]] + [ids[-1]]
    if turn % 5 == 0:
        ids = ids[:-1] + [drawn.randrange(1000, renderer.tokenizer.vocab_size) for _ in range(3)]
    return ids


@pytest.mark.parametrize("name", ["qwen3", "smollm2"])
def test_200_turns_keep_every_sampled_token(request: pytest.FixtureRequest, name: str) -> None:
    renderer: TemplateRenderer = request.getfixturevalue(name)
    drawn = random.Random(7)
    history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, USER]
    ids = renderer.first(history, [TOOL])
    actions: list[tuple[int, list[int]]] = []
    for turn in range(200):
        action = sampled_action(renderer, drawn, turn)
        new = messages(*PATTERNS[turn % 4])
        actions.append((len(ids), action))
        before = list(ids)
        ids = ids + action + renderer.bridge(action, new)
        assert ids[: len(before)] == before
        parsed = renderer.parse(action, id_prefix=f"call_{turn}")
        assert len(parsed.tool_calls) == (turn % 3 == 0)
        history += [{"role": "assistant", "content": parsed.text}, *new]
    assert all(ids[start : start + len(action)] == action for start, action in actions)
    for start, action in actions:  # exactly one stop token ends each action
        ended = action[-1] in renderer.stop_ids
        assert ended or ids[start + len(action)] == renderer.stop_ids[0]
    again = renderer.first(history, [TOOL])
    assert again != ids
    assert again[: actions[0][0]] == ids[: actions[0][0]]


def test_rendering_the_history_again_loses_reasoning_and_prefix(qwen3: TemplateRenderer) -> None:
    """Why nothing is rendered twice: Qwen3's template drops reasoning once a user speaks again."""
    prompt = qwen3.first([USER])
    action = qwen3.encode_action("<think>\n2 + 3 is 5\n</think>\n\nFive.")
    exact = prompt + action + qwen3.bridge(action, messages("user"))
    parsed = qwen3.parse(action, id_prefix="c")
    said = {"role": "assistant", "content": parsed.content, "reasoning_content": parsed.reasoning}
    again = qwen3.first([USER, said, *messages("user")])
    assert exact[: len(prompt) + len(action)] == prompt + action
    assert again[: len(prompt) + len(action)] != prompt + action
    assert "2 + 3 is 5" in qwen3.decode(exact)
    assert "2 + 3 is 5" not in qwen3.decode(again)


def test_the_stop_token_is_added_only_where_it_is_missing(qwen3: TemplateRenderer) -> None:
    ended = qwen3.encode_action("Five.")
    cut = ended[:-1]
    new = messages("user")
    assert ended + qwen3.bridge(ended, new) == cut + qwen3.bridge(cut, new)
    inside_thinking = [*qwen3.encode_action("<think>\nhm")[:-1], qwen3.stop_ids[0]]
    assert qwen3.bridge(inside_thinking, new) == qwen3.bridge(ended, new)
    assert qwen3.bridge([], new)[0] == qwen3.stop_ids[0]


def test_an_assistant_message_is_no_continuation(qwen3: TemplateRenderer) -> None:
    with pytest.raises(SamplingError, match="that was not sampled cannot follow an action"):
        qwen3.bridge([1], messages("user", "assistant"))


def test_a_sentinel_in_a_message_does_not_confuse_the_bridge(qwen3: TemplateRenderer) -> None:
    text = "\ufdd1reply<|im_end|>\ufdd1reply"
    ids = qwen3.bridge([], [{"role": "user", "content": text}])
    assert ids.count(qwen3.stop_ids[0]) == 2
    assert qwen3.decode(ids).startswith("<|im_end|>\n<|im_start|>user\n\ufffdreply<|im_end|>\ufffdreply")


def test_tool_names_that_only_the_call_knows_are_not_guessed(family: Family) -> None:
    with pytest.raises(TemplateError, match=r"depends on the history.*probe_1"):
        family("muse_glimmer").bridge([], messages("tool"))


def test_reasoning_that_the_prompt_opens_is_split_off(family: Family) -> None:
    renderer = family("qwen3_5_think")
    assert renderer.decode(renderer.first([USER])).endswith("<think>\n")
    parsed = renderer.parse(renderer.encode_action("hm\n</think>\n\nFive."), id_prefix="c")
    assert (parsed.reasoning, parsed.content) == ("hm", "Five.")
    assert renderer.parse(renderer.encode_action("still thinking"), id_prefix="c").content == ""
