"""Small byte-level tokenizers with the control tokens of a model family, for its chat template.

The real tokenizers of most families cannot be had offline; what matters for rendering is which strings are
control tokens, and those stand in the templates.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

CONTROL = re.compile(
    r"<\|[^|<>{}'\"]{1,40}\|>|<｜[^｜<>]{1,40}｜>|</?[a-zA-Z_]{2,24}>|\[/?[A-Z_]{2,16}\]|<\|[a-z_]+>|<[a-z_]+\|>"
)
TEXT = "tools function-name args-json-object function parameter name description type parameters required"
NOT_CONTROL = {f"<{slash}{name}>" for name in [*TEXT.split(), "IMPORTANT"] for slash in ("", "/")}
"""Markup that stands in templates and is ordinary text to their tokenizers."""


def control_tokens(template: str) -> list[str]:
    """Return what looks like a control token in a template."""
    return sorted(set(CONTROL.findall(template)) - NOT_CONTROL)


def write_family(folder: Path, template: str, *, eos: str | None = None, extra: tuple[str, ...] = ()) -> Path:
    """Write a model directory whose tokenizer has 256 bytes and the control tokens of ``template``."""
    import tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: i for i, character in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    eos = eos or "<|end_of_text|>"
    tokens = dict.fromkeys(["<|begin_of_text|>", eos, *extra, *control_tokens(template)])
    # as in Qwen3, markup of tools and reasoning is an added token, but not a special one
    tokenizer.add_tokens(
        [
            tokenizers.AddedToken(t, special="tool" not in t and "think" not in t, normalized=False)
            for t in tokens
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<|begin_of_text|>", "eos_token": eos, "pad_token": eos}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder
