"""Which tokens are the assistant's: ours come from rendering twice, transformers' from generation blocks.

trl ships templates with ``{% generation %}`` blocks, from which transformers makes an assistant mask. For
every family that can be rendered, the same conversation must give the same ids and the same mask. Some
blocks also hold what no policy samples: the ``<think>`` that a template opens an answer with, and the line
break that it writes behind the stop token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from families import write_family

transformers = pytest.importorskip("transformers")

from hyperrl.agents.demonstrations import Demonstration, make_demonstration  # noqa: E402
from hyperrl.agents.rendering import TemplateRenderer, load_renderer  # noqa: E402
from hyperrl.errors import TemplateError  # noqa: E402
from hyperrl.train.batching import make_segments  # noqa: E402

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number", "description": "One."}},
            "required": ["a"],
        },
    },
}
CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "two answers": (
        [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": "Good night: 日本語."},
        ],
        [],
    ),
    "reasoning": (
        [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."},
        ],
        [],
    ),
    "a tool": (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Two?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "2", "tool_call_id": "call00001", "name": "add"},
            {"role": "assistant", "content": "Two."},
        ],
        [TOOL],
    ),
}

COMPARED = {
    "two answers": [
        "cohere",
        "diffusion_gemma",
        "gemma",
        "gemma3",
        "glm4moe",
        "lfm2",
        "lfm2_v2",
        "llama3",
        "phi3",
        "phi3_5",
        "qwen2_5",
        "qwen2_5_vl",
        "qwen3",
        "qwen3_5_nothink",
        "qwen3_5_think",
        "qwen3_6",
        "qwen3_8",
        "qwen3_instruct_2507",
        "qwen3_vl",
    ],
    "reasoning": [
        "diffusion_gemma",
        "glm4moe",
        "nemotron_3_5_lightning",
        "nemotron_3_nano",
        "nemotron_3_super",
        "nemotron_3_ultra",
        "qwen3",
        "qwen3_5_think",
        "qwen3_6",
        "qwen3_8",
    ],
    "a tool": ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"],
}
"""What can be compared: the others are refused by our renderer, with reasons (see ``hyperrl template``)."""


def theirs(folder: Path, template: str, messages: Any, tools: Any) -> tuple[list[int], list[int]]:
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
    )
    found = tokenizer.apply_chat_template(
        messages,
        tools=tools or None,
        chat_template=template,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return found["input_ids"], found["assistant_masks"]


def runs(mask: list[int] | list[bool]) -> list[tuple[int, int]]:
    """First and one-past-last position of every run of the assistant's tokens."""
    padded = [False, *map(bool, mask), False]
    edges = [i for i in range(len(padded) - 1) if padded[i] != padded[i + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def check_masks(renderer: TemplateRenderer, folder: Path, template: str, name: str, compare: Any) -> None:
    messages, tools = CONVERSATIONS[name]
    demonstration = Demonstration(messages=messages, tools=tools)
    made = make_demonstration(renderer, demonstration, history="template")
    assert made == make_demonstration(renderer, demonstration, history="rollout")
    (segment,) = make_segments(made, learn="gold")
    ids, mask = theirs(folder, template, messages, tools)
    oracle = "transformers' chat templates"
    compare("tokens of a conversation", oracle, segment.token_ids, ids[: len(segment)], limit=0.0)
    ours, blocks = runs(segment.loss_mask.tolist()), runs(mask)
    assert len(ours) == len(blocks) == sum(message["role"] == "assistant" for message in messages)
    for (start, end), (first, last) in zip(ours, blocks, strict=True):
        assert first <= start < end <= last
        # what the template itself opens an answer with, and what it writes behind a stop token
        assert renderer.decode(ids[first:start]).strip() in ("", "<think>", "<think>\n\n</think>")
        assert ids[end - 1] in renderer.stop_ids
        assert renderer.decode(ids[end:last]).strip() in ("", "<|end_of_text|>")
        mask[first:start], mask[end:last] = [0] * (start - first), [0] * (last - end)
    compare("mask of the assistant's tokens", oracle, segment.loss_mask, mask[: len(segment)], limit=0.0)
    assert not any(mask[len(segment) :])


@pytest.mark.slow
def test_masks_equal_those_of_generation_blocks(
    trl_templates: dict[str, str], tmp_path: Path, compare: Any
) -> None:
    compared: dict[str, set[str]] = {name: set() for name in CONVERSATIONS}
    for family, template in trl_templates.items():
        if not family.endswith("_training") or "strftime_now" in template:  # dates differ
            continue
        folder = write_family(tmp_path / family, template)
        for name in CONVERSATIONS:
            if name == "reasoning" and "reasoning_content" not in template:
                continue  # such a template loses it; we write it into the content
            if name == "a tool" and "tools" not in template:
                continue  # such a template loses them; we write them into the system message
            try:
                check_masks(load_renderer(folder), folder, template, name, compare)
            except TemplateError:
                continue
            compared[name].add(family.removesuffix("_training"))
    assert {name: sorted(found) for name, found in compared.items()} == COMPARED
