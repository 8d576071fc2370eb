from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyperrl.errors import DataError

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("gguf")

from hyperrl.train.models.gguf_tokenizer import convert_gguf_tokenizer  # noqa: E402


def test_digits_are_split_off_before_the_byte_level_pieces(smollm2_tokenizer_dir: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(smollm2_tokenizer_dir / "tokenizer.json"))
    assert tokenizer.encode("\n\n1").tokens == ["ĊĊ", "1"]
    assert tokenizer.encode("123").tokens == ["1", "2", "3"]


def test_pad_is_eos_and_control_tokens_have_the_files_ids(smollm2_tokenizer_dir: Path) -> None:
    config = json.loads((smollm2_tokenizer_dir / "tokenizer_config.json").read_text())
    assert config["pad_token"] == config["eos_token"] == "<|im_end|>"
    assert config["model_max_length"] == 8192
    tokenizer = tokenizers.Tokenizer.from_file(str(smollm2_tokenizer_dir / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 49152
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>").ids == [0, 1, 2]


def test_text_survives_a_round_trip(smollm2_tokenizer_dir: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(smollm2_tokenizer_dir / "tokenizer.json"))
    text = "def f(x):\n\treturn x ** 2  # café, 世界, 🧑‍🚀, 3.14\n\n"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.gguf: no such GGUF file"):
        convert_gguf_tokenizer(tmp_path / "absent.gguf", tmp_path / "out")
    foreign = tmp_path / "foreign.gguf"
    foreign.write_bytes(b"not a model" * 10)
    with pytest.raises(DataError, match=r"foreign\.gguf: not a readable GGUF file"):
        convert_gguf_tokenizer(foreign, tmp_path / "out")
