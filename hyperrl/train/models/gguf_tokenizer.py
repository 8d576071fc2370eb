"""Take the tokenizer and chat template out of a GGUF file, with neither torch nor transformers.

What transformers 5.24 makes of such a file lacks the pre-tokenizer that the file names (``smollm``
splits digits off first, so that two newlines before a digit are one token), hence our own way.
Importing this raises MissingExtraError where gguf or tokenizers is not installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hyperrl.errors import DataError, MissingExtraError, ModelError

try:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
except ImportError as error:
    raise MissingExtraError("tokenizers", "agents") from error
try:
    from gguf import GGUFReader
except ImportError as error:
    raise MissingExtraError("gguf", "models") from error

__all__ = ["convert_gguf_tokenizer"]

CONTROL, USER_DEFINED = 3, 4  # token types of the GGUF format
PRE_TOKENIZERS = ("smollm",)


def convert_gguf_tokenizer(gguf_path: Path, model_dir: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into ``model_dir``.

    Args:
        gguf_path: a GGUF file with a byte-level BPE tokenizer inside.
        model_dir: made if it is not there.

    Raises:
        DataError: the file is missing or is not GGUF.
        ModelError: its tokenizer is of a kind that is not known here.
    """
    fields = _read_fields(gguf_path)
    kind = (fields["tokenizer.ggml.model"], fields.get("tokenizer.ggml.pre"))
    if kind[0] != "gpt2" or kind[1] not in PRE_TOKENIZERS:
        raise ModelError(
            f"{gguf_path}: tokenizer {kind[0]!r} with pre-tokenizer {kind[1]!r}; only byte-level BPE ('gpt2')"
            f" with one of {', '.join(PRE_TOKENIZERS)} can be converted"
        )
    model_dir.mkdir(parents=True, exist_ok=True)
    _bpe(fields).save(str(model_dir / "tokenizer.json"))
    config = json.dumps(_config(fields), indent=2, ensure_ascii=False)
    (model_dir / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    template = fields.get("tokenizer.chat_template")
    if template:
        (model_dir / "chat_template.jinja").write_text(template, encoding="utf-8")


def _read_fields(path: Path) -> dict[str, Any]:
    """Return the metadata of the file; tensors stay unread."""
    if not path.is_file():
        raise DataError(f"{path}: no such GGUF file")
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: not a readable GGUF file ({error})") from error
    return {name: field.contents() for name, field in reader.fields.items()}


def _bpe(fields: dict[str, Any]) -> Tokenizer:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    pairs = [merge.split(" ", 1) for merge in fields["tokenizer.ggml.merges"]]
    bpe = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)}, merges=[(left, right) for left, right in pairs]
    )
    tokenizer = Tokenizer(bpe)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    return tokenizer


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    """Return tokenizer_config.json; where the file says pad == eos, so does this."""
    tokens = fields["tokenizer.ggml.tokens"]
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in named.items()}
    architecture = fields["general.architecture"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields.get(f"{architecture}.context_length"),
        "clean_up_tokenization_spaces": False,
        **{name: tokens[i] for name, i in ids.items() if i is not None},
    }
