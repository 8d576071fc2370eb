"""The same ids as other people's code makes: the `renderers` library and transformers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from tokenizers import Tokenizer

from hyperrl.agents.rendering import ChatTemplate, TemplateRenderer
from hyperrl.errors import TemplateError

TEXTS = [
    "What is 2 + 3?",
    "Ünïcödé, 日本語, 🧑‍🚀",
    "def f(x):\n    return x\n",
    "line one\n\nline two",
    "x",
    '{"a": [1, 2]}',
]
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
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
PATTERNS = [("user",), ("tool",), ("tool", "tool"), ("tool", "user"), ("tool", "tool", "tool")]


class Adapter:
    """A tokenizer as the `renderers` library wants it."""

    unk_token_id = None

    def __init__(self, model_dir: Path, eos: str) -> None:
        self.name_or_path = str(model_dir)
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self.eos_token_id = self._tokenizer.token_to_id(eos)

    def encode(self, text: str, *args: Any, **kwargs: Any) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Any, *args: Any, **kwargs: Any) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if isinstance(tokens, str):
            return self._tokenizer.token_to_id(tokens)
        return [self._tokenizer.token_to_id(token) for token in tokens]


@pytest.fixture(scope="module")
def typed(qwen3_dir: Path) -> Any:
    """The hand-written Qwen3 renderer of `renderers` 0.1.12."""
    library = pytest.importorskip("renderers", reason="the `renderers` library is not installed")
    config = pytest.importorskip("renderers.configs").Qwen3RendererConfig(thinking_retention="all")
    return library.create_renderer(Adapter(qwen3_dir, "<|im_end|>"), config)


def test_first_prompts_equal_those_of_the_typed_renderer(qwen3: TemplateRenderer, typed: Any) -> None:
    for text in TEXTS:
        user = {"role": "user", "content": text}
        system = {"role": "system", "content": text}
        for messages in ([user], [system, user]):
            for tools in ([], [TOOL]):
                rendered = typed.render(messages, tools=tools or None, add_generation_prompt=True)
                assert qwen3.first(messages, tools) == list(rendered.token_ids)


def test_bridges_equal_those_of_the_typed_renderer(qwen3: TemplateRenderer, typed: Any) -> None:
    drawn = random.Random(3)
    prompt = qwen3.first([{"role": "user", "content": "hi"}], [TOOL])
    compared = 0
    for pattern in PATTERNS * 40:
        action = qwen3.encode_action(f"<think>\n{drawn.choice(TEXTS)}\n</think>\n\n{drawn.choice(TEXTS)}")
        if drawn.random() < 0.3:
            action = action[:-1]
        new = [{"role": role, "content": drawn.choice(TEXTS), "tool_call_id": "c"} for role in pattern]
        theirs = typed.bridge_to_next_turn(prompt, action, new, tools=[TOOL])
        assert theirs is not None
        assert prompt + action + qwen3.bridge(action, new) == list(theirs.token_ids)
        compared += 1
    assert compared == 200


CONVERSATIONS: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
    ([{"role": "user", "content": "hi"}], []),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], []),
    ([{"role": "user", "content": "hi"}], [TOOL]),
    (
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "So.", "reasoning_content": "hm"},
            {"role": "user", "content": "and?"},
        ],
        [],
    ),
    (
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "5", "tool_call_id": "c", "name": "add"},
        ],
        [TOOL],
    ),
]


@pytest.mark.slow
def test_templates_render_as_transformers_renders_them(trl_templates: dict[str, str]) -> None:
    module = pytest.importorskip("transformers.utils.chat_template_utils")
    compared = refused = 0
    for name, source in trl_templates.items():
        template = ChatTemplate(source, named_tokens={"bos_token": "<s>", "eos_token": "</s>"})
        for messages, tools in CONVERSATIONS:
            theirs = _transformers_text(module.render_jinja_template, source, messages, tools)
            try:
                ours: str | None = template.render(messages, tools)
            except TemplateError:
                ours = None
            if "strftime_now" in source:  # transformers writes today's date
                assert (ours is None) == (theirs is None), name
                continue
            assert ours == theirs, name
            compared += ours is not None
            refused += ours is None
    assert compared > 250
    assert refused < 60


def _transformers_text(
    render: Callable[..., Any], source: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            texts, _ = render(
                [messages],
                tools=tools or None,
                chat_template=source,
                add_generation_prompt=True,
                bos_token="<s>",
                eos_token="</s>",
            )
        except Exception:  # noqa: BLE001 whatever a template does
            return None
    return texts[0]
