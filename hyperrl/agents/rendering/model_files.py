"""What a model directory says about text: tokenizer, chat template, end-of-sequence ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hyperrl.errors import ModelError, TemplateError

__all__ = ["read_chat_template", "read_eos_ids", "read_tokenizer"]


def read_tokenizer(model_dir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tokenizer.json and tokenizer_config.json (empty if there is none).

    Raises:
        ModelError: no such directory, no tokenizer.json, or a file that is not JSON.
    """
    if not model_dir.is_dir():
        raise ModelError(
            f"{model_dir}: no such model directory. Expected a folder in the Hugging Face layout, with"
            " tokenizer.json and a chat template"
        )
    if not (model_dir / "tokenizer.json").is_file():
        found = ", ".join(sorted(path.name for path in model_dir.iterdir())[:12]) or "nothing"
        raise ModelError(
            f"{model_dir}: no tokenizer.json (found {found}). A fast tokenizer is needed: save the tokenizer"
            " with transformers' `save_pretrained`, which writes it"
        )
    config = _read_json(model_dir / "tokenizer_config.json", required=False)
    return _read_json(model_dir / "tokenizer.json"), config


def read_chat_template(model_dir: Path, config: dict[str, Any]) -> str:
    """Return the chat template: chat_template.jinja, else ``chat_template`` of tokenizer_config.json.

    Raises:
        TemplateError: there is none.
    """
    path = model_dir / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several, each with a name
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if not isinstance(template, str):
        raise TemplateError(
            f"{model_dir}: the tokenizer has no chat template. Expected chat_template.jinja, or a"
            " 'chat_template' in tokenizer_config.json: use an instruct model, or add its family's template"
        )
    return template


def read_eos_ids(model_dir: Path) -> tuple[int, ...]:
    """Return the ids that end a sequence, as generation_config.json lists them; often none."""
    listed = _read_json(model_dir / "generation_config.json", required=False).get("eos_token_id")
    return tuple(listed) if isinstance(listed, list) else () if listed is None else (int(listed),)


def _read_json(path: Path, *, required: bool = True) -> dict[str, Any]:
    if not required and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
